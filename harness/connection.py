"""The way to an API server: the official client's connections and credentials, and requests over them."""

from __future__ import annotations

import ipaddress
import json
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes.client
import kubernetes.config
import urllib3
import yaml

from harness.errors import UsageError

_MALFORMED = (ValueError, TypeError, AttributeError, KeyError)
"""What the client raises for a kubeconfig whose parts aren't what it takes for granted."""


class Connection:
    """Sends requests. Thread-safe: one connection pool underneath.

    Args:
        api: the official client.
        timeout: seconds for an answer to begin or go on.
        headers: sent with every request.
    """

    def __init__(self, api: Any, *, timeout: float = 30.0, headers: Mapping[str, str] | None = None) -> None:
        self.api = api
        self.timeout = timeout
        self._headers = dict(headers or {})

    @classmethod
    def from_kubeconfig(cls, path: Path, context: str | None = None, *, timeout: float = 30.0) -> Connection:
        """Connect with the credentials of a kubeconfig file.

        Raises:
            UsageError: if the file can't be read or has no such context.
        """
        try:
            configuration = kubernetes.client.Configuration()
            kubernetes.config.load_kube_config(
                str(path), context=context, client_configuration=configuration, persist_config=False
            )
            if _is_loopback(configuration.host):
                configuration.proxy = None  # HTTPS_PROXY is for what lies beyond this machine
            api = kubernetes.client.ApiClient(configuration)
        except (kubernetes.config.ConfigException, OSError, yaml.YAMLError, *_MALFORMED) as error:
            raise UsageError(f"{path}: not a usable kubeconfig: {error}") from error
        return cls(api, timeout=timeout)

    def acting_as(self, user: str, *, group: str = "") -> Connection:
        """The same connections, impersonating a user, who is in a group if one is given."""
        headers = {"Impersonate-User": user}
        if group:
            headers["Impersonate-Group"] = group
        return Connection(self.api, timeout=self.timeout, headers=headers)

    @property
    def server(self) -> str:
        """The API server's address."""
        return str(self.api.configuration.host)

    def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        content_type: str = "",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
        stream_seconds: float | None = None,
    ) -> Any:
        """Send one request, with further `headers`; returns urllib3's response, whatever its status.

        With `stream_seconds` the body is left to be read, and each part of it may take that long.
        """
        own = {"Accept": accept, "User-Agent": "dra-harness", **self._headers, **(headers or {})}
        payload = None
        if body is not None:
            own["Content-Type"] = content_type
            payload = body if isinstance(body, str | bytes | Iterator) else json.dumps(body)
        self.api.update_params_for_auth(own, [], ["BearerToken"], path, method, payload)
        pool: Any = self.api.rest_client.pool_manager
        url = self.server + path
        if query:
            url += "?" + urllib.parse.urlencode(query)
        return pool.request(
            method,
            url,
            body=payload,
            headers=own,
            timeout=urllib3.Timeout(connect=10.0, read=stream_seconds or self.timeout),
            preload_content=stream_seconds is None,
            retries=False,
        )


def _is_loopback(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
