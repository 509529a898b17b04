"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler as plain processes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path

import urllib3

from clusters import processes
from clusters.local import namespaces
from clusters.local.layout import KUBELET_CLIENT, Layout
from clusters.local.network import node_address
from clusters.profiles import gates_flag, runtime_config
from harness.errors import EnvironmentBlocked
from harness.files import write_atomically
from harness.kube import ApiError, KubeClient
from harness.waiting import NotYet, WaitTimeout, wait_until

SERVICE_CIDR = "10.96.0.0/16"

ETCD = "etcd"
APISERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
_OWNER = "control-plane"
CONTROLLERS = (CONTROLLER_MANAGER, SCHEDULER)
COMPONENTS = (ETCD, APISERVER, *CONTROLLERS)


def start(layout: Layout, component: str) -> subprocess.Popen[bytes]:
    """Start one component of the control plane; all serve on 127.0.0.1 with TLS.

    The API server has a hosts file of its own in which every node's name is 127.0.0.1, where the kubelets
    serve: a kubelet refuses a loopback address as its node's, so the node's address can't lead there.
    """
    arguments = {
        ETCD: _etcd,
        APISERVER: _apiserver,
        CONTROLLER_MANAGER: _controller_manager,
        SCHEDULER: _scheduler,
    }[component](layout)
    inside = namespaces.enter(layout, _OWNER) if component == APISERVER else []
    return processes.spawn(
        [*inside, layout.programs[component], *arguments, *layout.flags],
        cluster_id=layout.state.id,
        component=component,
        log=layout.log(component),
    )


def prepare(layout: Layout) -> None:
    """Make the namespaces that the API server runs in."""
    hosts = layout.state.directory / "hosts"
    names = " ".join(("localhost", *layout.state.nodes))
    write_atomically(hosts, f"127.0.0.1 {names}\n")
    namespaces.start(layout, _OWNER, {hosts: "/etc/hosts"})


def wait_for_apiserver(
    layout: Layout, started: Mapping[str, subprocess.Popen[bytes]], deadline: float
) -> KubeClient:
    """Wait until the API server is ready, and connect to it as admin.

    Args:
        layout: the cluster.
        started: the processes of etcd and of the API server, by component.
        deadline: seconds.

    Raises:
        EnvironmentBlocked: one ended or did not get ready; the end of its log is in the message.
    """
    client = KubeClient.from_kubeconfig(layout.kubeconfig("admin"))

    def ready() -> bool:
        for component, popen in started.items():
            if popen.poll() is not None:
                raise EnvironmentBlocked(f"{component} ended: {processes.tail(layout.log(component))}")
        try:
            return client.request("GET", "/readyz", accept="*/*") == "ok"
        except ApiError as error:
            raise NotYet(error.message) from error
        except (OSError, urllib3.exceptions.HTTPError) as error:
            raise NotYet(error) from error

    try:
        wait_until(ready, deadline, "the API server to be ready", interval=0.05)
    except WaitTimeout as error:
        raise EnvironmentBlocked(f"{error}\n{processes.tail(layout.log(APISERVER))}") from error
    return client


def wait_for_controllers(
    layout: Layout,
    started: Mapping[str, subprocess.Popen[bytes]],
    deadline: float,
    *,
    which: Collection[str] = CONTROLLERS,
) -> None:
    """Wait until the controller manager and the scheduler are healthy, as far as they are waited for.

    Args:
        layout: the cluster.
        started: those that were started just now: until a process is past `exec`, its mark can't be seen.
        deadline: seconds.
        which: those to wait for.

    Raises:
        EnvironmentBlocked: one ended or was not healthy in time; the end of its log is in the message.
    """
    ports = layout.ports
    # Serving comes first: only these say that the controllers run, and that the informers are filled.
    with urllib3.PoolManager(ca_certs=str(layout.pki / "ca.crt"), retries=False) as pool:
        manager = partial(
            pool.request, "GET", f"https://127.0.0.1:{ports.controller_manager}/healthz?verbose"
        )
        sign = b"[+]resourceclaim-controller ok"
        if CONTROLLER_MANAGER in which:
            _wait_working(layout, CONTROLLER_MANAGER, started, manager, sign, deadline)
        scheduler = partial(pool.request, "GET", f"https://127.0.0.1:{ports.scheduler}/readyz?verbose")
        if SCHEDULER in which:
            _wait_working(layout, SCHEDULER, started, scheduler, b"[+]", deadline)


def _wait_working(
    layout: Layout,
    component: str,
    started: Mapping[str, subprocess.Popen[bytes]],
    ask: Callable[..., urllib3.BaseHTTPResponse],
    sign: bytes,
    deadline: float,
) -> None:
    def ended() -> bool:
        if popen := started.get(component):
            return popen.poll() is not None
        return not processes.find(layout.state.id, component)

    def working() -> bool:
        if ended():
            raise EnvironmentBlocked(f"{component} ended: {processes.tail(layout.log(component))}")
        try:
            answer = ask(timeout=2.0)
        except urllib3.exceptions.HTTPError as error:
            raise NotYet(error) from error
        if answer.status != HTTPStatus.OK or sign not in answer.data:
            raise NotYet(f"{answer.status} {answer.data[-300:]!r}")
        return True

    try:
        wait_until(working, deadline, f"{component} to be healthy", interval=0.05)
    except WaitTimeout as error:
        raise EnvironmentBlocked(f"{error}\n{processes.tail(layout.log(component))}") from error


def _certificate(layout: Layout, name: str) -> tuple[Path, Path]:
    return layout.pki / f"{name}.crt", layout.pki / f"{name}.key"


def _etcd(layout: Layout) -> list[str]:
    certificate, key = _certificate(layout, "etcd")
    ca = layout.pki / "ca.crt"
    client = f"https://127.0.0.1:{layout.ports.etcd_client}"
    peer = f"https://127.0.0.1:{layout.ports.etcd_peer}"
    return [
        "--name=default",
        f"--data-dir={layout.state.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        f"--cert-file={certificate}",
        f"--key-file={key}",
        f"--trusted-ca-file={ca}",
        "--client-cert-auth",
        f"--peer-cert-file={certificate}",
        f"--peer-key-file={key}",
        f"--peer-trusted-ca-file={ca}",
        "--peer-client-cert-auth",
        "--unsafe-no-fsync",  # the data lives no longer than the cluster
        "--log-level=warn",
    ]


def _apiserver(layout: Layout) -> list[str]:
    certificate, key = _certificate(layout, "apiserver")
    etcd_certificate, etcd_key = _certificate(layout, "apiserver-etcd-client")
    kubelet_certificate, kubelet_key = _certificate(layout, KUBELET_CLIENT)
    state = layout.state
    arguments = [
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports.apiserver}",
        # The endpoints of the `kubernetes` service may not be loopback, so they are left alone.
        f"--advertise-address={node_address(state.slot, 0)}",
        "--endpoint-reconciler-type=none",
        f"--etcd-servers=https://127.0.0.1:{layout.ports.etcd_client}",
        f"--etcd-cafile={layout.pki / 'ca.crt'}",
        f"--etcd-certfile={etcd_certificate}",
        f"--etcd-keyfile={etcd_key}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={layout.pki / 'ca.crt'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-certificate-authority={layout.pki / 'ca.crt'}",
        f"--kubelet-client-certificate={kubelet_certificate}",
        f"--kubelet-client-key={kubelet_key}",
        "--kubelet-preferred-address-types=Hostname",
        f"--service-account-key-file={layout.pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={layout.pki / 'service-account.key'}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        *gates_flag(layout.gates),
    ]
    if config := runtime_config(state.profile):
        arguments.append(f"--runtime-config={config}")
    return arguments


def _controller_manager(layout: Layout) -> list[str]:
    kubeconfig = layout.kubeconfig("controller-manager-client")
    return [
        *_client_component(layout, "controller-manager", kubeconfig, layout.ports.controller_manager),
        "--use-service-account-credentials",
        f"--service-account-private-key-file={layout.pki / 'service-account.key'}",
        f"--root-ca-file={layout.pki / 'ca.crt'}",
        "--controllers=*",
    ]


def _scheduler(layout: Layout) -> list[str]:
    return _client_component(
        layout, "scheduler", layout.kubeconfig("scheduler-client"), layout.ports.scheduler
    )


def _client_component(layout: Layout, name: str, kubeconfig: Path, port: int) -> list[str]:
    certificate, key = _certificate(layout, name)
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--client-ca-file={layout.pki / 'ca.crt'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        "--leader-elect=false",
        *gates_flag(layout.gates),
    ]
