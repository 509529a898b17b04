"""Kubernetes objects as plain JSON, over the official client's connection and credentials.

The typed models of the client drop fields newer than themselves; a harness for release candidates must
not, so objects are dicts as the API server sends them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import kubernetes.client
import kubernetes.stream
from kubernetes.stream.ws_client import ERROR_CHANNEL

from harness.connection import Connection

Object = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Ask for the metadata of objects only."""

_UID_DIFFERS = re.compile(r"UID in (the )?precondition")
"""In the words of the API server's refusal: pkg/storage and pkg/registry/rest of k8s.io/apiserver."""


class ApiError(Exception):
    """The API server refused: its status code, reason and message."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        try:
            parsed = json.loads(body)
        except ValueError:
            parsed = {}
        self.status = status
        self.reason: str = parsed.get("reason", "") if isinstance(parsed, dict) else ""
        self.message: str = parsed.get("message", body) if isinstance(parsed, dict) else body
        super().__init__(f"{method} {path}: {status} {self.reason}: {self.message}")


class Resource:
    """One kind of object: where it lives in the API."""

    def __init__(self, api_version: str, plural: str, *, namespaced: bool) -> None:
        self.api_version = api_version
        self.plural = plural
        self.namespaced = namespaced

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The URL path of the collection, or of one object."""
        parts = ["api" if "/" not in self.api_version else "apis", self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/" + "/".join(parts)


NAMESPACES = Resource("v1", "namespaces", namespaced=False)
NODES = Resource("v1", "nodes", namespaced=False)
PODS = Resource("v1", "pods", namespaced=True)
EVENTS = Resource("v1", "events", namespaced=True)
SERVICE_ACCOUNTS = Resource("v1", "serviceaccounts", namespaced=True)
RESOURCE_QUOTAS = Resource("v1", "resourcequotas", namespaced=True)
LEASES = Resource("coordination.k8s.io/v1", "leases", namespaced=True)
DEPLOYMENTS = Resource("apps/v1", "deployments", namespaced=True)
DEVICE_CLASSES = Resource("resource.k8s.io/v1", "deviceclasses", namespaced=False)
DEVICE_TAINT_RULES = Resource("resource.k8s.io/v1", "devicetaintrules", namespaced=False)
RESOURCE_CLAIMS = Resource("resource.k8s.io/v1", "resourceclaims", namespaced=True)
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io/v1", "resourceclaimtemplates", namespaced=True)
RESOURCE_SLICES = Resource("resource.k8s.io/v1", "resourceslices", namespaced=False)
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io/v1", "rolebindings", namespaced=True)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource("rbac.authorization.k8s.io/v1", "clusterrolebindings", namespaced=False)
ADMISSION_POLICIES = Resource(
    "admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False
)
ADMISSION_BINDINGS = Resource(
    "admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False
)
FLOW_SCHEMAS = Resource("flowcontrol.apiserver.k8s.io/v1", "flowschemas", namespaced=False)
PRIORITY_LEVELS = Resource("flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations", namespaced=False)


class KubeClient:
    """A small JSON client. Thread-safe, as its connection is."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.created: dict[str, str] = {}
        """UIDs of the objects that this client created, by path."""
        self.attempted: set[str] = set()
        """Paths of all that it was to create, also of what was refused."""

    @classmethod
    def from_kubeconfig(cls, path: Path, context: str | None = None, *, timeout: float = 30.0) -> KubeClient:
        """Connect with the credentials of a kubeconfig file; see `Connection.from_kubeconfig`."""
        return cls(Connection.from_kubeconfig(path, context, timeout=timeout))

    def acting_as(self, user: str, *, group: str = "") -> KubeClient:
        """A client of the same server that impersonates a user, for what the API limits per identity.

        Its own credentials have to be allowed to; `group` is a group of the user.
        """
        return KubeClient(self.connection.acting_as(user, group=group))

    def sharing(self) -> KubeClient:
        """A client of its own over the same connections."""
        return KubeClient(self.connection)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Send one request, with further `headers` if given, and return the body.

        Raises:
            ApiError: for any status of 400 and above.
        """
        response = self.connection.send(
            method,
            path,
            body=body,
            query=query,
            content_type=content_type,
            accept=accept,
            headers=headers,
        )
        try:
            text: str = response.data.decode(errors="replace")  # a container may log anything
        finally:
            response.release_conn()
        if response.status >= 400:
            raise ApiError(method, path, response.status, text)
        return text

    def headers(self, path: str) -> Mapping[str, str]:
        """The headers of the answer to a GET, whatever its status; names in any case.

        The API server says in them where priority and fairness put the request, also of one that it refuses.
        """
        response = self.connection.send("GET", path)
        response.release_conn()
        headers: Mapping[str, str] = response.headers
        return headers

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Read one object."""
        return _object(self.request("GET", resource.path(namespace, name)))

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
        """Read one object, or None if it isn't there."""
        try:
            return self.get(resource, name, namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """List objects, over all namespaces if none is given."""
        query = {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        items: list[Object] = _object(self.request("GET", resource.path(namespace), query=query))["items"]
        return items

    def metadata(
        self, resource: Resource, namespace: str | None = None, *, limit: int = 0
    ) -> tuple[Sequence[Object], int]:
        """List the metadata of objects, and say how many there are besides; cheap where there are many.

        Args:
            resource: their kind.
            namespace: all namespaces if none is given.
            limit: at most so many; 0 for all.
        """
        query = {"limit": limit} if limit else None
        text = self.request("GET", resource.path(namespace), query=query, accept=METADATA_LIST)
        found = _object(text)
        items = found["items"] or ()  # null if there is none
        return [item["metadata"] for item in items], found["metadata"].get("remainingItemCount", 0)

    def create(
        self,
        resource: Resource,
        obj: Object,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        strict: bool = False,
    ) -> Object:
        """Create an object and return it as stored.

        `dry_run` stores nothing; `strict` refuses fields that the server doesn't know, and would else drop.
        """
        metadata = obj.get("metadata", {})
        kept = not dry_run and "name" in metadata
        path = resource.path(namespace, metadata.get("name"))
        if kept:
            self.attempted.add(path)
        query = {"dryRun": "All"} if dry_run else {}
        if strict:
            query["fieldValidation"] = "Strict"
        stored = _object(self.request("POST", resource.path(namespace), body=obj, query=query))
        if kept and (uid := stored["metadata"].get("uid")):
            self.created[path] = uid
        return stored

    def adopt(self, resource: Resource, obj: Object, namespace: str | None = None) -> None:
        """Take an object for one that this client created: something of the caller's own made it."""
        self.created[resource.path(namespace, obj["metadata"]["name"])] = obj["metadata"]["uid"]

    def replace(
        self, resource: Resource, obj: Object, namespace: str | None = None, *, subresource: str = ""
    ) -> Object:
        """PUT an object over the stored one."""
        path = resource.path(namespace, obj["metadata"]["name"], subresource)
        return _object(self.request("PUT", path, body=obj))

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        subresource: str = "",
        content_type: str = MERGE_PATCH,
        query: Mapping[str, Any] | None = None,
    ) -> Object:
        """Patch an object; a JSON merge patch unless told otherwise."""
        path = resource.path(namespace, name, subresource)
        return _object(self.request("PATCH", path, body=patch, content_type=content_type, query=query))

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        grace_seconds: int | None = None,
        uid: str = "",
    ) -> None:
        """Delete an object; one that is already gone is fine.

        One that this client created, or of a given `uid`, is deleted only if it is still that one: another
        of its name is left alone.
        """
        path = resource.path(namespace, name)
        uid = uid or self.created.get(path, "")
        options: Object = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self.request("DELETE", path, body=options or None)
        except ApiError as error:
            replaced = error.status == 409 and _UID_DIFFERS.search(error.message)
            if error.status != 404 and not replaced:
                raise

    def logs(self, namespace: str, pod: str, container: str = "", *, previous: bool = False) -> str:
        """A container's log, through the API server and the kubelet."""
        query: dict[str, Any] = {"container": container} if container else {}
        if previous:
            query["previous"] = "true"
        return self.request("GET", PODS.path(namespace, pod, "log"), query=query, accept="*/*")

    def exec(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        """Run a command in a running container and return its output.

        Raises:
            ApiError: there is no such container, or the command did not end well or in time.
        """
        core = kubernetes.client.CoreV1Api(self.connection.api)
        path = PODS.path(namespace, pod, "exec")
        options = {"container": container, "command": list(command), "stdout": True, "stderr": True}
        try:
            stream: Any = kubernetes.stream.stream(
                core.connect_get_namespaced_pod_exec, pod, namespace, _preload_content=False, **options
            )
        except kubernetes.client.ApiException as error:
            raise ApiError("EXEC", path, error.status or 0, str(error.reason)) from None
        try:
            stream.run_forever(timeout=self.connection.timeout)
            output: str = stream.read_stdout(timeout=1)
            # The status of the command, as an object; none yet if it still runs.
            status = json.loads(stream.read_channel(ERROR_CHANNEL, timeout=1) or "{}")
            if status.get("status") != "Success":
                raise ApiError("EXEC", path, status.get("code", 0), status.get("message", "no end in time"))
        finally:
            stream.sock.shutdown()  # close() leaves a socket open whose other end has said goodbye
        return output

    @property
    def server(self) -> str:
        """The API server's address."""
        return self.connection.server

    def read(self, path: str) -> Object | None:
        """Read what is at a path of the API, such as a group's versions; None if nothing is."""
        try:
            return _object(self.request("GET", path))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def metrics(self) -> str:
        """The API server's own metrics, as text."""
        return self.request("GET", "/metrics", accept="*/*")

    def version(self) -> str:
        """The server's gitVersion, such as v1.37.2."""
        version: str = _object(self.request("GET", "/version"))["gitVersion"]
        return version

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str = "",
        fields: str = "",
        labels: str = "",
        seconds: float,
    ) -> Iterator[Object]:
        """Yield watch events (`{type, object}`) until the server ends the watch, at most `seconds`."""
        options = {"resourceVersion": resource_version, "fieldSelector": fields, "labelSelector": labels}
        query = {"watch": "true", "timeoutSeconds": max(1, int(seconds))}
        query |= {key: value for key, value in options.items() if value}
        path = resource.path(namespace)
        response = self.connection.send("GET", path, query=query, stream_seconds=seconds + 5)
        try:
            if response.status >= 400:
                raise ApiError("WATCH", path, response.status, response.read().decode())
            buffer = b""
            for chunk in response.stream(65536):
                buffer += chunk
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _object(line)
        finally:
            response.close()


def _object(text: str | bytes) -> Object:
    value: Object = json.loads(text)
    return value
