"""How many API servers a cluster has: each counts what it answered itself, and any of them may be asked."""

from __future__ import annotations

import datetime

import urllib3

from clusters.existing.presence import ServerClock
from harness.kube import LEASES, ApiError, KubeClient, Object

_IDENTITIES = "apiserver.kubernetes.io/identity=kube-apiserver"


def api_servers(kube: KubeClient) -> int | None:
    """API servers that renew the Lease of their identity; None where the Leases can't be listed."""
    try:
        leases = kube.list(LEASES, "kube-system", labels=_IDENTITIES)
        now = ServerClock(kube).now()
    except (ApiError, OSError, urllib3.exceptions.HTTPError):
        return None
    return sum(_is_renewed(lease["spec"], now) for lease in leases)


def _is_renewed(spec: Object, now: datetime.datetime) -> bool:
    renewed, lasts = spec.get("renewTime"), spec.get("leaseDurationSeconds")
    if not renewed or not lasts:
        return False
    return now - datetime.datetime.fromisoformat(renewed) < datetime.timedelta(seconds=lasts)
