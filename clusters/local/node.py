"""A real node: containerd and kubelet in PID and mount namespaces of their own.

The node's init process holds the namespaces. When it dies, the kernel ends everything inside and drops
its mounts, so nothing of a node can outlive it. The node's folders stand in for /var/lib, /var/log and
/run inside (the kubelet's device-plugin path is fixed), and are reached from outside as plain files.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import urllib3
import yaml

from clusters import processes
from clusters.kubelet import FREQUENCIES, KUBELET_DIR
from clusters.local import cgroups, namespaces
from clusters.local.containerd import SOCKET
from clusters.local.containerd import write_config as write_containerd_config
from clusters.local.layout import Layout
from clusters.local.network import bridge_name, node_address, pod_subnet
from harness.errors import EnvironmentBlocked
from harness.files import write_atomically, write_json
from harness.waiting import NotYet, wait_until

_CAP_SYS_RESOURCE = 24
_START_SECONDS = 20.0
_STOP_SECONDS = 15.0


@dataclass(frozen=True)
class LocalNode:
    """One node of a cluster: its number (from 1), name and the ports of its kubelet."""

    layout: Layout
    index: int
    kubelet_port: int
    healthz_port: int

    @property
    def name(self) -> str:
        """The name of its Node object."""
        return self.layout.state.nodes[self.index - 1]

    @property
    def directory(self) -> Path:
        """The node's files."""
        return self.layout.state.node_dir(self.name)

    @property
    def address(self) -> str:
        """The node's InternalIP."""
        return node_address(self.layout.state.slot, self.index)

    def component(self, program: str) -> str:
        """How a process of the node is called, such as kubelet/node-1."""
        return f"{program}/{self.name}"

    def prepare(self) -> None:
        """Write the node's settings and make its cgroup."""
        for folder in ("lib/kubelet", "lib/cni", "run", "log", "cdi", "containerd", "cni", "volume-plugins"):
            (self.directory / folder).mkdir(parents=True, exist_ok=True)
        cgroups.create(self.layout.state.id, self.name)
        write_containerd_config(self.directory, self.layout.programs, restricted=not has_cap_sys_resource())
        self._write_cni()
        write_atomically(self.directory / "resolv.conf", "nameserver 127.0.0.1\n")

    def start_init(self) -> None:
        """Start the process that holds the node's namespaces."""
        binds = {"lib": "/var/lib", "log": "/var/log", "run": "/run"}
        sources = {self.directory / source: target for source, target in binds.items()}
        namespaces.start(self.layout, self.name, sources)

    def start_containerd(self) -> None:
        """Start the runtime and wait until its socket is there: a kubelet that is earlier ends at once."""
        config = self.directory / "containerd.toml"
        popen = self._spawn(
            "containerd", [*self._enter(), self.layout.programs["containerd"], "--config", config]
        )

        def serving() -> bool:
            done = self._ctr("version")
            if done.returncode:
                raise NotYet(done.stderr.strip())
            return True

        self._wait(serving, popen, "containerd", "containerd to serve")

    def import_image(self, archive: Path) -> None:
        """Load an OCI archive into the node's runtime."""
        done = self._ctr("--namespace", "k8s.io", "images", "import", "--local", str(archive))
        if done.returncode:
            raise EnvironmentBlocked(f"{self.name}: image {archive.name}: {done.stderr.strip()}")

    def start_kubelet(self) -> subprocess.Popen[bytes]:
        """Write the kubelet's settings and start it; it registers its Node."""
        state = self.layout.state
        settings = yaml.safe_dump(self._kubelet_config(), sort_keys=False)
        write_atomically(self.directory / "kubelet.yaml", settings)
        return self._spawn(
            "kubelet",
            [
                *self._enter(),
                self.layout.programs["kubelet"],
                f"--config={self.directory / 'kubelet.yaml'}",
                f"--kubeconfig={self.layout.kubeconfig(f'kubelet-{self.name}')}",
                f"--root-dir={KUBELET_DIR}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
                f"--node-labels=dra-harness.dev/cluster={state.name}",
                *self.layout.flags,
            ],
        )

    def restart_kubelet(self) -> subprocess.Popen[bytes]:
        """Stop the kubelet, leaving the pods as they are, and start it again, until it is healthy."""
        processes.kill(self.layout.state.id, self.component("kubelet"), grace=_STOP_SECONDS)
        popen = self.start_kubelet()

        def healthy() -> bool:
            try:
                url = f"http://127.0.0.1:{self.healthz_port}/healthz"
                return urllib3.request("GET", url, timeout=2.0, retries=False).status == HTTPStatus.OK
            except urllib3.exceptions.HTTPError as error:
                raise NotYet(error) from error

        self._wait(healthy, popen, "kubelet", "the kubelet to be healthy")
        return popen

    def _spawn(self, program: str, argv: Sequence[str | Path]) -> subprocess.Popen[bytes]:
        component = self.component(program)
        # Go programs find the CNI and OCI runtimes by the paths in their settings; PATH is for mount(8).
        return processes.spawn(
            argv, cluster_id=self.layout.state.id, component=component, log=self.layout.log(component)
        )

    def _enter(self) -> list[str]:
        return namespaces.enter(self.layout, self.name)

    def _ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._enter(), self.layout.programs["ctr"], "--address", SOCKET, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def _wait(
        self, probe: Callable[[], bool], popen: subprocess.Popen[bytes], program: str, what: str
    ) -> None:
        log = self.layout.log(self.component(program))

        def alive() -> bool:
            if popen.poll() is not None:
                raise EnvironmentBlocked(f"{self.name}: {program} ended: {processes.tail(log)}")
            return bool(probe())

        try:
            wait_until(alive, _START_SECONDS, what, interval=0.03)
        except AssertionError as error:
            raise EnvironmentBlocked(f"{self.name}: {error}\n{processes.tail(log)}") from error

    def _write_cni(self) -> None:
        state = self.layout.state
        network = {
            "cniVersion": "1.0.0",
            "name": f"dra-harness-{state.name}",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": bridge_name(state.id, self.index),
                    "isGateway": True,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(self.directory / "cni" / "addresses"),
                        "ranges": [[{"subnet": pod_subnet(state.slot, self.index)}]],
                    },
                }
            ],
        }
        conf_dir = self.directory / "cni" / "net.d"
        conf_dir.mkdir(parents=True, exist_ok=True)
        write_json(conf_dir / "10-bridge.conflist", network)

    def _kubelet_config(self) -> dict[str, Any]:
        pki = self.layout.pki
        gates = self.layout.gates
        if not has_cap_sys_resource():
            gates["KubeletInUserNamespace"] = True
        config: dict[str, Any] = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": self.kubelet_port,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": self.healthz_port,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pki / f"kubelet-{self.name}-server.crt"),
            "tlsPrivateKeyFile": str(pki / f"kubelet-{self.name}-server.key"),
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": cgroups.path(self.layout.state.id, self.name),
            "failSwapOn": False,
            **FREQUENCIES,
            "makeIPTablesUtilChains": False,
            "resolvConf": str(self.directory / "resolv.conf"),
            "volumePluginDir": str(self.directory / "volume-plugins"),
            # A test cluster must not evict pods because the machine's disk is nearly full.
            "evictionHard": {"imagefs.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%"},
            "imageGCHighThresholdPercent": 100,
            "featureGates": gates,
        }
        if not cgroups.is_v2():
            config["failCgroupV1"] = False
        return config


def nodes_of(layout: Layout) -> list[LocalNode]:
    """The real nodes of a cluster."""
    ports = layout.state.kubelet_ports
    return [LocalNode(layout, index, *pair) for index, pair in enumerate(ports, start=1)]


def has_cap_sys_resource() -> bool:
    """Whether root here may raise limits and lower OOM scores; many containers lack that."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
