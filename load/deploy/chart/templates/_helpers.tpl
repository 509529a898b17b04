{{- define "load.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "load.labels" -}}
{{ include "load.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "load.master" -}}
{{ .Release.Name }}-master
{{- end }}

{{- /* What both pods have in common: no token of their own cluster, no root, nothing that can be written but /tmp. */}}
{{- define "load.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
restartPolicy: Never
terminationGracePeriodSeconds: 60
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "load.container" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "load.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: key, mountPath: /var/run/dra-load/key, readOnly: true}
{{- end }}

{{- /* In memory: a worker's credentials lie there while a trial lasts. */}}
{{- define "load.volumes" -}}
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 128Mi}
- name: key
  secret:
    secretName: {{ .Values.key.secret }}
    defaultMode: 0400
    items: [{key: {{ .Values.key.item }}, path: key}]
{{- end }}

{{- define "load.env" -}}
- {name: HOME, value: /tmp}
- {name: DRA_HARNESS_STATE, value: /tmp/state}
- {name: DRA_HARNESS_MACHINE, value: /tmp/machine}
- {name: NO_COLOR, value: "1"}
{{- end }}
