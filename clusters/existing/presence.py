"""A run says on the cluster that it is alive, so that nobody takes its objects for those of a dead one.

It has a namespace of its own, made before everything else and removed last, with a Lease that it renews. Both
sides tell the time by the API server's clock, so it doesn't matter whose machine is ahead.
"""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import getpass
import hashlib
import os
import socket
import time
from functools import partial
from types import TracebackType
from typing import Self

import urllib3

from clusters.existing.reach import explained
from harness.errors import EnvironmentBlocked
from harness.kube import LEASES, NAMESPACES, ApiError, KubeClient, Object
from harness.labels import RUN
from harness.regularly import regularly

LEASE_SECONDS = 40
"""A run whose Lease was not renewed for so long is dead."""
LEASE = "run"
_RENEW_SECONDS = LEASE_SECONDS / 4
_TROUBLE = (ApiError, OSError, urllib3.exceptions.HTTPError)


def namespace_of(run_id: str) -> str:
    """The name of a run's own namespace."""
    return f"dra-harness-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}"


class ServerClock:
    """The API server's time, by its answers' Date header."""

    def __init__(self, kube: KubeClient) -> None:
        headers = {key.lower(): value for key, value in kube.headers("/version").items()}
        now = time.monotonic()
        self._server = email.utils.parsedate_to_datetime(headers["date"])
        self._at = now

    def now(self) -> datetime.datetime:
        """What time it is there, give or take a second."""
        return self._server + datetime.timedelta(seconds=time.monotonic() - self._at)


class Presence:
    """Holds a run's Lease while it is entered.

    Args:
        kube: of whoever runs.
        run_id: of the run.

    Raises:
        EnvironmentBlocked: on entering: a namespace of that name is there already, the run's or not.
    """

    def __init__(self, kube: KubeClient, run_id: str) -> None:
        self._kube = kube
        self._run_id = run_id
        self._namespace = namespace_of(run_id)
        self._going_on = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with explained(self._kube.server):
            clock = ServerClock(self._kube)
            self._create_namespace()
            try:
                self._kube.create(LEASES, self._lease(clock), self._namespace)
            except BaseException:
                self._kube.delete(NAMESPACES, self._namespace)
                raise
        self._going_on.enter_context(regularly("presence", _RENEW_SECONDS, partial(self._renew, clock)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._going_on.close()
        with contextlib.suppress(*_TROUBLE):  # the run's own sweep has said what can't be removed
            self._kube.delete(NAMESPACES, self._namespace)

    def _create_namespace(self) -> None:
        metadata = {"name": self._namespace, "labels": {RUN: self._run_id}}
        try:
            self._kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        except ApiError as error:
            if error.status != 409:
                raise
            there = self._kube.find(NAMESPACES, self._namespace) or {"metadata": {}}
            label = there["metadata"].get("labels", {}).get(RUN)
            what = f"of run {label}; choose another --run-id" if label else f"without the label {RUN}"
            raise EnvironmentBlocked(
                f"namespace {self._namespace} is in the way: there is one {what}"
            ) from error

    def _lease(self, clock: ServerClock) -> Object:
        now = _micro(clock.now())
        return {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": LEASE, "labels": {RUN: self._run_id}},
            "spec": {
                "holderIdentity": f"{_user()}@{socket.gethostname()}/{os.getpid()}",
                "leaseDurationSeconds": LEASE_SECONDS,
                "acquireTime": now,
                "renewTime": now,
            },
        }

    def _renew(self, clock: ServerClock) -> bool:
        patch = {"spec": {"renewTime": _micro(clock.now())}}
        with contextlib.suppress(*_TROUBLE):  # the next one may come through
            self._kube.patch(LEASES, LEASE, patch, self._namespace)
        return True


def _user() -> str:
    """Who runs it; in a pod that may be a number without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def is_alive(kube: KubeClient, run_id: str, now: datetime.datetime) -> bool:
    """Whether a run has said so recently enough; one that has just made its namespace gets the same time.

    One whose namespace is being deleted has ended: that goes last.
    """
    namespace = kube.find(NAMESPACES, namespace_of(run_id)) or {"metadata": {}}
    metadata = namespace["metadata"]
    if metadata.get("labels", {}).get(RUN) != run_id or "deletionTimestamp" in metadata:
        return False
    lease = kube.find(LEASES, LEASE, namespace_of(run_id))
    said = lease["spec"]["renewTime"] if lease else metadata["creationTimestamp"]
    return now - datetime.datetime.fromisoformat(said) < datetime.timedelta(seconds=LEASE_SECONDS)


def _micro(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
