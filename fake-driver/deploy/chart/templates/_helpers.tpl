{{- define "fake-driver.selector" -}}
app.kubernetes.io/name: fake-driver
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fake-driver.labels" -}}
{{ include "fake-driver.selector" . }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "fake-driver.metadata" -}}
name: {{ .Release.Name }}
namespace: {{ .Release.Namespace }}
labels: {{- include "fake-driver.labels" . | nindent 2 }}
{{- end }}

{{- /* Of objects without a namespace: two releases must not meet. */}}
{{- define "fake-driver.clusterMetadata" -}}
name: {{ .Release.Namespace }}.{{ .Release.Name }}
labels: {{- include "fake-driver.labels" . | nindent 2 }}
{{- end }}

{{- define "fake-driver.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "fake-driver.controlSecret" -}}
{{ .Values.control.tokenSecret.name | default (printf "%s-control" .Release.Name) }}
{{- end }}

{{- define "fake-driver.control" -}}
{{- if .enabled -}}
port: {{ .port }}
tokenFile: /var/run/secrets/fake-driver/token
{{- else -}}
# In a folder that only this container has.
socket: /run/fake-driver/control.sock
{{- end }}
{{- end }}

{{/* Settings of `inventory: nvml`, for a container with the node's files at /host; nothing for other inventories. */}}
{{- define "fake-driver.nvml" -}}
{{- if eq (toString .) "nvml" -}}
{root: /host}
{{- else if and (kindIs "map" .) (hasKey . "nvml") -}}
{{- merge (dict) (.nvml | default dict) (dict "root" "/host") | toYaml }}
{{- end -}}
{{- end }}

{{- /* Root without a single capability: the kubelet's directories are root's, and it connects to what lies in them. */}}
{{- define "fake-driver.securityContext" -}}
runAsUser: 0
runAsGroup: 0
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}
