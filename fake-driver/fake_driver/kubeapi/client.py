"""A JSON client for the API server with the six verbs that a DRA driver needs."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import urllib3

from fake_driver.kubeapi.kubeconfig import Access

Object = dict[str, Any]

RESOURCE_API = "/apis/resource.k8s.io/v1"
SLICES = f"{RESOURCE_API}/resourceslices"
_TIMEOUT = urllib3.Timeout(connect=5, read=30)
_WATCH_SECONDS = 300


class ApiError(Exception):
    """The API server's refusal, or `status` 0 when it couldn't be reached."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def rejected(self) -> bool:
        """Whether asking again with the same object is pointless."""
        return self.status in (400, 401, 403, 405, 413, 415, 422)


class Watch:
    """An open watch: iterate over its events, `close` it from any thread."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response

    def __iter__(self) -> Iterator[Object]:
        pending = b""
        try:
            for chunk in self._response.stream(65536):
                *lines, pending = (pending + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
        except (urllib3.exceptions.HTTPError, ValueError, OSError, AttributeError):
            return  # cut off; the owner lists again and goes on
        finally:
            self._response.release_conn()
            self._response.close()

    def close(self) -> None:
        """End the iteration, also one that waits for data right now."""
        try:
            self._response.shutdown()
        except (ValueError, RuntimeError, OSError):
            self._response.close()


class ApiClient:
    """One connection pool to one API server; safe to use from several threads."""

    def __init__(self, access: Access) -> None:
        self._access = access
        if access.tls and access.tls.verify_mode == ssl.CERT_NONE:  # asked for in the kubeconfig
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        extra: dict[str, Any] = {"ssl_context": access.tls} if access.tls else {}
        if access.server_name:
            extra |= {"server_hostname": access.server_name, "assert_hostname": access.server_name}
        self._pool = urllib3.PoolManager(maxsize=16, retries=False, timeout=_TIMEOUT, **extra)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Object:
        """Read one object, or a list.

        Raises:
            ApiError: as for every verb of this class.
        """
        return self._call("GET", path, query=query)

    def create(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        """Create `body` in the collection at `path`; a dry run only validates it."""
        return self._call("POST", path, body, {"dryRun": "All"} if dry_run else None)

    def replace(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        """Replace the object at `path`, provided that its resourceVersion is still the one in `body`."""
        return self._call("PUT", path, body, {"dryRun": "All"} if dry_run else None)

    def delete(self, path: str) -> None:
        """Delete the object at `path`; one that is gone already counts as deleted."""
        try:
            self._call("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, path: str, resource_version: str, query: Mapping[str, str]) -> Watch:
        """Open a watch on the collection at `path` from `resource_version` on."""
        fields = {
            **query,
            "watch": "1",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        timeout = urllib3.Timeout(connect=5, read=_WATCH_SECONDS + 30)
        response = self._request("GET", path, None, fields, timeout=timeout, preload_content=False)
        if response.status != 200:
            message = response.read().decode(errors="replace")
            raise ApiError(response.status, f"watch {path}: {message}")
        return Watch(response)

    def close(self) -> None:
        """Drop all idle connections."""
        self._pool.clear()

    def _call(
        self, method: str, path: str, body: Object | None = None, query: Mapping[str, str] | None = None
    ) -> Object:
        response = self._request(method, path, body, query)
        try:
            answer = response.json()
        except ValueError:
            answer = {"message": response.data.decode(errors="replace").strip()}
        if response.status >= 400:
            raise ApiError(response.status, f"{method} {path}: {answer.get('message') or response.status}")
        return dict(answer)

    def _request(
        self,
        method: str,
        path: str,
        body: Object | None,
        query: Mapping[str, str] | None,
        **options: Any,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": "fake-driver"}
        token = self._access.token
        if self._access.token_file:
            try:
                token = self._access.token_file.read_text(encoding="utf-8").strip()
            except OSError as error:
                raise ApiError(0, f"{method} {path}: no token: {error}") from error
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        url = self._access.server + path
        if query:
            url += "?" + urlencode(query)
        data = None if body is None else json.dumps(body).encode()
        try:
            return self._pool.request(method, url, body=data, headers=headers, **options)
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, f"{method} {path}: can't reach {self._access.server}: {error}") from error
