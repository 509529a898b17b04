"""The evidence of a failure: objects, events, component and driver logs, the record of gRPC calls.

Collected in the worker right after the failed phase, before the fixtures take things away. Whatever can't be
had is noted in place of it: collecting never hides the failure itself.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters import providers
from clusters.driver_host import HostedDevicePlugin, HostedDriver, HostedProcess
from clusters.interface import Cluster
from harness.errors import EnvironmentBlocked
from harness.kube import (
    ADMISSION_POLICIES,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    EVENTS,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    KubeClient,
    Resource,
)
from harness.redaction import redact
from suites.drivers import Drivers
from suites.naming import slug

_LOG_BYTES = 256 * 1024
_NAMESPACED = {
    "pods": PODS,
    "resourceclaims": RESOURCE_CLAIMS,
    "resourceclaimtemplates": RESOURCE_CLAIM_TEMPLATES,
    "resourcequotas": RESOURCE_QUOTAS,
    "deployments": DEPLOYMENTS,
    "events": EVENTS,
}
_CLUSTER_SCOPED = {"nodes": NODES, "deviceclasses": DEVICE_CLASSES, "admissionpolicies": ADMISSION_POLICIES}


def collect(item: pytest.Item, call: pytest.CallInfo[None]) -> list[str]:
    """Write the diagnostics of a phase that went wrong; returns the files, relative to the run's folder."""
    run_dir: Path | None = item.config.getoption("--run-dir")
    fixtures: dict[str, Any] = getattr(item, "funcargs", {})
    if run_dir is None or "cluster" not in fixtures:
        return []
    folder = run_dir / "diagnostics" / slug(item.nodeid)
    if call.when != "call":
        folder /= call.when  # what the check itself left is not to be overwritten
    folder.mkdir(parents=True, exist_ok=True)
    contents = _contents(fixtures)
    obj = getattr(call.excinfo.value, "obj", None) if call.excinfo else None
    if obj is not None:
        contents.append(("object.yaml", partial(_dump, [obj])))
    for name, content in contents:
        (folder / name).write_text(redact(_attempt(content)), encoding="utf-8")
    return sorted(str((folder / name).relative_to(run_dir)) for name, _ in contents)


def _contents(fixtures: dict[str, Any]) -> list[tuple[str, Callable[[], str]]]:
    cluster: Cluster = fixtures["cluster"]
    kube: KubeClient | None = fixtures.get("kube")
    namespace: str | None = fixtures.get("namespace")
    drivers: Drivers | None = fixtures.get("drivers")
    contents: list[tuple[str, Callable[[], str]]] = []
    if kube is not None:
        for name, resource in _CLUSTER_SCOPED.items():
            contents.append((f"{name}.yaml", partial(_objects, kube, resource)))
    if kube is not None and namespace is not None:
        for name, resource in _NAMESPACED.items():
            contents.append((f"{name}.yaml", partial(_objects, kube, resource, namespace)))
    with contextlib.suppress(EnvironmentBlocked):  # a cluster of somebody else has no logs for us
        providers.of(cluster).collect_logs(cluster.name)
    logs = sorted((cluster.directory / "logs").glob("*.log"))
    contents += [(path.name, partial(_tail, path)) for path in logs]
    for driver in drivers.hosted if drivers else ():
        stem = f"driver-{slug(driver.name)}"
        contents.append((f"{stem}.log", partial(_tail, driver.log)))
        contents.append((f"{stem}-calls.json", partial(_calls, driver)))
        if drivers and isinstance(driver, HostedDriver):
            contents.append((f"{stem}-slices.yaml", partial(_slices, drivers, driver)))
    return contents


def _slices(drivers: Drivers, driver: HostedDriver) -> str:
    return _dump(drivers.slices(driver))


def _attempt(content: Callable[[], str]) -> str:
    try:
        return content()
    except Exception as error:
        return f"not to be had: {type(error).__name__}: {error}\n"


def _objects(kube: KubeClient, resource: Resource, namespace: str | None = None) -> str:
    return _dump(kube.list(resource, namespace))


def _dump(objects: list[dict[str, Any]]) -> str:
    for obj in objects:
        obj.get("metadata", {}).pop("managedFields", None)
    return str(yaml.safe_dump_all(objects, sort_keys=False))


def _calls(process: HostedProcess) -> str:
    assert isinstance(process, HostedDriver | HostedDevicePlugin)
    return json.dumps([call.model_dump() for call in process.client.calls()], indent=1)


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _LOG_BYTES))
        return file.read().decode(errors="replace")
