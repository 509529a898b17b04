"""A client that writes to what its run made, and to nothing else: the cluster is somebody else's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Self

from harness.errors import EnvironmentBlocked
from harness.kube import NAMESPACES, NODES, ApiError, KubeClient
from harness.labels import RUN

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_REVIEW = re.compile(r"^/apis/(authentication|authorization)\.k8s\.io/v1/\w+reviews$")
"""Questions that are asked with POST."""
_IN_NAMESPACE = re.compile(r"/namespaces/([^/]+)/.")

Allows = Callable[[str], bool]


class OwnOnly(KubeClient):
    """Reads everything, and writes only to objects that it created and in namespaces that it created.

    What it creates in no namespace has to carry the run's label, and is no Node. Whatever else is asked of it
    ends in EnvironmentBlocked before anything is sent, as does acting as another user; so does a taken name.
    """

    _run_id = ""
    _allows: Allows | None = None

    @classmethod
    def of(cls, kube: KubeClient, run_id: str, allows: Allows | None = None) -> Self:
        """The same connection, for one run.

        Args:
            kube: whose connection and credentials.
            run_id: of the run.
            allows: is asked about the path of each new object, if given.
        """
        made = cls(kube.connection)
        made._run_id = run_id
        made._allows = allows
        return made

    def acting_as(self, user: str, *, group: str = "") -> KubeClient:
        """Refused: other people's users are not the run's to be."""
        raise EnvironmentBlocked(f"it would act as {user}, on a cluster that is somebody else's")

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
        """Send one request; see `KubeClient.request`.

        Raises:
            EnvironmentBlocked: it would change what is not the run's.
        """
        if method in _WRITES and "dryRun" not in (query or {}) and not _REVIEW.match(path):
            self._require_own(method, path, body)
        try:
            return super().request(
                method,
                path,
                body=body,
                query=query,
                content_type=content_type,
                accept=accept,
                headers=headers,
            )
        except ApiError as error:
            if error.reason == "AlreadyExists":
                raise EnvironmentBlocked(f"somebody else's object is in the way: {error.message}") from error
            raise

    def _require_own(self, method: str, path: str, body: Any) -> None:
        inside = _IN_NAMESPACE.search(path)
        if inside:
            own = NAMESPACES.path(name=inside[1]) in self.created
        elif method == "POST":
            own = path != NODES.path() and body["metadata"].get("labels", {}).get(RUN) == self._run_id
        else:
            own = any(path == each or path.startswith(f"{each}/") for each in self.created)
        if not own:
            raise EnvironmentBlocked(f"{method} {path} would change what is somebody else's on this cluster")
        if method == "POST" and self._allows:
            new = f"{path}/{body['metadata'].get('name', '')}"
            if not self._allows(new):
                raise EnvironmentBlocked(f"it would create {new}, which `run --dry-run` doesn't show")
