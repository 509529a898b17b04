"""Restarts one component of a kind cluster, perhaps with other gates and flags; workloads stay.

The control plane runs as static pods: the kubelet restarts one when its manifest changes
(https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/). The manifests that kubeadm wrote
are kept, and every restart starts from them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import urllib3
import yaml

from clusters.kind import logs, nodes
from clusters.kind.state import KindState
from clusters.node_ready import all_take_pods
from clusters.profiles import gates_value
from harness.errors import EnvironmentBlocked, UsageError
from harness.files import write_atomically
from harness.kube import NODES, ApiError, KubeClient
from harness.waiting import NotYet, WaitTimeout, wait_until

CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_MANIFESTS = "/etc/kubernetes/manifests"
_KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"
_KUBELET_FLAGS = "/etc/default/kubelet"
_MARK = "dra-harness.dev/restarted"
_STOP_SECONDS = 4.0
"""Watches keep an API server from ending sooner than its longest grace; nobody is served meanwhile."""
_SECONDS = 90.0


def remember(state: KindState) -> None:
    """Keep the settings of all components as kubeadm wrote them."""
    for component in CONTROL_PLANE:
        _original(state, component).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        manifest = nodes.read(state.control_plane, f"{_MANIFESTS}/{component}.yaml")
        write_atomically(_original(state, component), manifest)
    for node in state.workers:
        write_atomically(_original(state, node), nodes.read(node, _KUBELET_CONFIG))


def restart(
    state: KindState,
    component: str,
    gates: Mapping[str, bool] | None = None,
    flags: Mapping[str, str] | None = None,
) -> None:
    """Restart a component and wait until it is healthy; see `ClusterProvider.restart`.

    Raises:
        UsageError: the cluster has no such component, or it can't be restarted.
        EnvironmentBlocked: it did not come back.
    """
    program, _, node = component.partition("/")
    if program == "kubelet" and node in state.workers:
        _restart_kubelet(state, node, gates or {}, flags or {})
    elif component in CONTROL_PLANE:
        _restart_static_pod(state, component, gates or {}, flags or {})
    else:
        raise UsageError(f"{component!r}: no component that can be restarted")


def manifest(original: str, gates: Mapping[str, bool], flags: Mapping[str, str], mark: str) -> str:
    """A static pod's manifest with gates and flags on top of its own.

    Args:
        original: as kubeadm wrote it.
        gates: feature gates that differ from those in it.
        flags: flags of the command line; those in it are replaced.
        mark: makes it differ from any before, so that the kubelet restarts the pod in any case.
    """
    pod: dict[str, Any] = yaml.safe_load(original)
    pod["metadata"].setdefault("annotations", {})[_MARK] = mark
    (container,) = pod["spec"]["containers"]
    program, *arguments = container["command"]
    given = dict(argument.removeprefix("--").partition("=")[::2] for argument in arguments)
    if gates:
        pairs = (pair.split("=") for pair in given.get("feature-gates", "").split(",") if pair)
        own = {gate: on == "true" for gate, on in pairs}
        given["feature-gates"] = gates_value({**own, **gates})
    given |= flags
    container["command"] = [program, *(f"--{flag}={value}" for flag, value in given.items())]
    return yaml.safe_dump(pod, sort_keys=False)


def command(manifest: str) -> tuple[str, ...]:
    """The command line of a static pod's container."""
    (container,) = yaml.safe_load(manifest)["spec"]["containers"]
    return tuple(container["command"])


def kubelet_config(original: str, gates: Mapping[str, bool]) -> str:
    """A KubeletConfiguration with gates on top of its own."""
    config: dict[str, Any] = yaml.safe_load(original)
    config["featureGates"] = {**config.get("featureGates", {}), **gates}
    return yaml.safe_dump(config, sort_keys=False)


def _original(state: KindState, what: str) -> Path:
    return state.directory / "manifests" / f"{what}.yaml"


def _restart_static_pod(
    state: KindState, component: str, gates: Mapping[str, bool], flags: Mapping[str, str]
) -> None:
    node = state.control_plane
    before = {process.pid for process in nodes.running(node, component)}
    original = _original(state, component).read_text(encoding="utf-8")
    changed = manifest(original, gates, flags, secrets.token_hex(4))
    nodes.write(node, f"{_MANIFESTS}/{component}.yaml", changed)
    with contextlib.suppress(WaitTimeout):
        wait_until(lambda: not before & _pids(node, component), _STOP_SECONDS, f"{component} to end")
    for pid in before & _pids(node, component):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # The kubelet may start the old one again before it has read the manifest.
    wanted = command(changed)

    def started() -> bool:
        found = nodes.running(node, component)
        return bool(found) and all(each.pid not in before and each.arguments == wanted for each in found)

    _wait(state, component, started, f"the new {component} to start")
    _wait(state, component, lambda: _healthy(state, component), f"{component} to be healthy")


def _pids(node: str, program: str) -> set[int]:
    return {process.pid for process in nodes.running(node, program)}


def _restart_kubelet(
    state: KindState, node: str, gates: Mapping[str, bool], flags: Mapping[str, str]
) -> None:
    original = _original(state, node).read_text(encoding="utf-8")
    nodes.write(node, _KUBELET_CONFIG, kubelet_config(original, gates))
    given = " ".join(f"--{flag}={value}" for flag, value in flags.items())
    nodes.write(node, _KUBELET_FLAGS, f"KUBELET_EXTRA_ARGS={given}\n")
    nodes.execute(node, ["systemctl", "restart", "kubelet"])

    client = KubeClient.from_kubeconfig(state.kubeconfig("admin"), timeout=5.0)
    healthz = f"{NODES.path(name=node)}/proxy/healthz"

    def healthy() -> bool:
        return client.request("GET", healthz, accept="*/*") == "ok"

    _wait(state, f"kubelet/{node}", healthy, f"the kubelet of {node} to be healthy")
    _wait(state, f"kubelet/{node}", lambda: all_take_pods(client, [node]), f"{node} to be Ready")


def _healthy(state: KindState, component: str) -> bool:
    if component == "kube-apiserver":
        client = KubeClient.from_kubeconfig(state.kubeconfig("admin"), timeout=2.0)
        return client.request("GET", "/readyz", accept="*/*") == "ok"
    path = "/readyz" if component == "kube-scheduler" else "/healthz"
    url = f"https://127.0.0.1:{state.ports[component]}{path}"
    with urllib3.PoolManager(ca_certs=str(state.pki / "ca.crt"), retries=False) as pool:
        return pool.request("GET", url, timeout=2.0).status == HTTPStatus.OK


def _wait(state: KindState, component: str, probe: Callable[[], bool], what: str) -> None:
    def reached() -> bool:
        try:
            return probe()
        except (EnvironmentBlocked, ApiError, OSError, urllib3.exceptions.HTTPError) as error:
            raise NotYet(error) from error

    try:
        wait_until(reached, _SECONDS, what, interval=0.2)
    except WaitTimeout as error:
        said = logs.tail(state, component)
        raise EnvironmentBlocked(f"{state.name}: {component}: {error}\n{said}") from error
