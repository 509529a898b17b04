"""A request that takes the one place of a priority level without seats, and does not end.

A level of no seats still lets one request through at a time, and clients repeat a rejected request up to ten
times: with the place taken for good, all of these are rejected, and the client gives up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import urllib3

from harness.kube import ApiError, KubeClient, Object, Resource

_ACCESS_REVIEWS = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews", namespaced=False)
"""What every user may create, and what leaves nothing behind."""
_HEARTBEAT_SECONDS = 0.1
_OCCUPY_SECONDS = 50.0  # the API server ends a request after 60


class Occupant:
    """Holds the place from `start` to `leave`; where somebody else has it, it tries until it's free."""

    def __init__(self, admin: KubeClient, user: str) -> None:
        self.user = user
        self._client = admin.acting_as(user)
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._occupy, name=user, daemon=True)

    def rule(self) -> Object:
        """The rule of a FlowSchema that the request falls under."""
        requests = {
            "apiGroups": ["authorization.k8s.io"],
            "resources": [_ACCESS_REVIEWS.plural],
            "verbs": ["create"],
            "clusterScope": True,
        }
        subject = {"kind": "User", "user": {"name": self.user}}
        return {"subjects": [subject], "resourceRules": [requests]}

    def start(self) -> None:
        """Ask for the place, until it is had."""
        self._thread.start()

    def leave(self) -> None:
        """Free the place."""
        self._left.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _occupy(self) -> None:
        while not self._left.is_set():
            try:
                self._client.request("POST", _ACCESS_REVIEWS.path(), body=self._incomplete())
            except ApiError:
                self._left.wait(0.02)  # the place was taken, or the body ended before an object came
            except (OSError, urllib3.exceptions.HTTPError):
                self._left.wait(0.02)  # rejected while the body was still being sent

    def _incomplete(self) -> Iterator[bytes]:
        """The spaces before a JSON object that never comes."""
        deadline = time.monotonic() + _OCCUPY_SECONDS
        while not self._left.wait(_HEARTBEAT_SECONDS) and time.monotonic() < deadline:
            yield b" "
