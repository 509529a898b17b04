"""The way to the control endpoint of a driver in a pod: through the API server's proxy."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import urllib3
from fake_driver.control.token import HEADER

from harness.kube import PODS, ApiError, KubeClient

_IN_URL = 4096
"""Bytes of a request that go without a body. What is longer changes the driver, and has a short answer."""


@dataclass(frozen=True)
class PodProxyTransport:
    """A `fake_driver.transports.Transport` to one pod's control port.

    The client needs `create` on `pods/proxy`. Between API server and pod the request travels without TLS, as
    the cluster's network carries it.
    """

    client: KubeClient
    namespace: str
    pod: str
    port: int
    token: str = field(repr=False)

    @property
    def where(self) -> str:
        """The endpoint, for people."""
        return f"pod {self.namespace}/{self.pod} port {self.port}"

    def post(self, operation: str, body: bytes) -> bytes:
        """Send a request and return the answer's body, whatever its status.

        Raises:
            OSError: there was no answer.
        """
        path = f"{PODS.path(self.namespace, f'{self.pod}:{self.port}', 'proxy')}/{operation}"
        # The API server's proxy (Go's httputil.ReverseProxy) may still look for the end of a request's body
        # while it passes the answer on; if that fails, it hangs up, and a large answer is cut off.
        content, query = (b"", {"request": body.decode()}) if len(body) <= _IN_URL else (body, None)
        try:
            headers = {HEADER: self.token}
            return self.client.request("POST", path, body=content, query=query, headers=headers).encode()
        except ApiError as error:
            if _is_answer(error.message):  # the driver's own refusal
                return error.message.encode()
            raise OSError(str(error)) from error
        except urllib3.exceptions.HTTPError as error:
            raise OSError(str(error)) from error


def _is_answer(body: str) -> bool:
    try:
        parsed = json.loads(body)
    except ValueError:
        return False
    return isinstance(parsed, dict) and "error" in parsed
