"""Init processes, and what is started inside, with an `unshare` and an `nsenter` that say what they got."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from clusters import processes
from clusters.interface import Profile
from clusters.local import control_plane, namespaces, restart
from clusters.local.layout import Layout, Ports
from clusters.local.node import LocalNode
from clusters.local.state import ClusterState
from harness.errors import EnvironmentBlocked, UsageError

HOLD = """
echo "unshare $*"
for argument; do [ "$before" = --ready ] && ready=$argument; before=$argument; done
exec {init} -c 'touch '"$ready"'; read line < {fifo}'
"""
"""An init process that is ready at once and waits for what nobody writes."""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder at the front of PATH; its `unshare` runs a shell that is called node-init."""
    folder = tmp_path / "bin"
    folder.mkdir()
    shell = shutil.which("sh")
    assert shell
    shutil.copy(Path(shell).resolve(), folder / "node-init")
    os.mkfifo(tmp_path / "fifo")
    for name in ("nsenter", "kube-apiserver", "kube-scheduler"):
        write_script(folder / name, f'echo "{name} $*"')
    write_script(folder / "unshare", HOLD.format(init=folder / "node-init", fifo=tmp_path / "fifo"))
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


def write_script(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def layout(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Layout]:
    monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path / "state"))
    state = ClusterState(
        id=secrets.token_hex(8),
        name="c",
        kubernetes="v1.37.2",
        profile=Profile.GA,
        nodes=("node-1", "node-2"),
        slot=3,
    )
    state.directory.mkdir(parents=True)
    programs = {name: tools / name for name in ("node-init", "kube-apiserver", "kube-scheduler", "kubelet")}
    yield Layout(state, programs, Ports(1001, 1002, 1003, 1004, 1005))
    processes.kill(state.id)


def test_an_init_process_gets_what_is_to_be_mounted(layout: Layout, tmp_path: Path, tools: Path) -> None:
    namespaces.start(layout, "x", {tmp_path / "a": "/etc/a", tmp_path / "b": "/var/b"})
    command = layout.log("node-init/x").read_text().strip()
    options, _, inside = command.partition(" -- ")
    assert options == "unshare --mount --pid --fork --kill-child --propagation private"
    assert inside == (
        f"{tools / 'node-init'} --proc --ready {layout.state.directory / 'init-ready-x'} "
        f"--bind={tmp_path / 'a'}=/etc/a --bind={tmp_path / 'b'}=/var/b"
    )


def test_what_is_entered_is_the_init_process_of_that_owner(layout: Layout) -> None:
    for owner in ("x", "y"):
        namespaces.start(layout, owner, {})
    (init,) = processes.find(layout.state.id, "node-init/y")
    assert namespaces.enter(layout, "y") == ["nsenter", "--target", str(init.pid), "--mount", "--pid", "--"]


def test_without_its_init_process_nothing_can_be_entered(layout: Layout) -> None:
    namespaces.start(layout, "x", {})
    processes.kill(layout.state.id, "node-init/x")
    with pytest.raises(EnvironmentBlocked, match=r"^the init process of x is gone$"):
        namespaces.enter(layout, "x")


def test_an_init_process_that_ends_is_told_with_its_words(layout: Layout, tools: Path) -> None:
    write_script(tools / "unshare", "echo 'unshare failed: Operation not permitted' >&2; exit 1")
    with pytest.raises(EnvironmentBlocked) as raised:
        namespaces.start(layout, "x", {})
    assert str(raised.value) == "node-init/x ended: unshare failed: Operation not permitted"


def test_an_init_process_that_is_never_ready_is_told_with_its_words(
    layout: Layout, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "_START_SECONDS", 0.0)
    write_script(tools / "unshare", f"read line < {tmp_path / 'fifo'}")
    with pytest.raises(EnvironmentBlocked, match="waited 0 s for the namespaces of x"):
        namespaces.start(layout, "x", {})


def test_the_api_server_finds_every_kubelet_on_loopback(layout: Layout) -> None:
    control_plane.prepare(layout)
    hosts = layout.state.directory / "hosts"
    assert hosts.read_text() == "127.0.0.1 localhost node-1 node-2\n"
    assert f"--bind={hosts}=/etc/hosts" in layout.log("node-init/control-plane").read_text().split()


@pytest.mark.parametrize(("component", "inside"), [("kube-apiserver", True), ("kube-scheduler", False)])
def test_only_the_api_server_runs_in_those_namespaces(
    layout: Layout, tools: Path, component: str, inside: bool
) -> None:
    control_plane.prepare(layout)
    assert control_plane.start(layout, component).wait(60) == 0
    words = layout.log(component).read_text().split()
    enter = namespaces.enter(layout, "control-plane")
    assert words[: len(enter) + 1] == [*enter, str(tools / component)] if inside else words[0] == component
    assert "--bind-address=127.0.0.1" in words
    # The kubelet's certificate has the node's name, and that is what the hosts file leads to loopback.
    assert ("--kubelet-preferred-address-types=Hostname" in words) is inside


def test_flags_of_a_restart_come_last_where_they_count(layout: Layout, tools: Path) -> None:
    flags = {"kube-api-qps": "1000", "kube-api-burst": "2000"}
    restarted = dataclasses.replace(layout, other_flags=flags)
    assert control_plane.start(restarted, "kube-scheduler").wait(60) == 0
    words = layout.log("kube-scheduler").read_text().split()
    assert words[-2:] == ["--kube-api-qps=1000", "--kube-api-burst=2000"]
    assert "--leader-elect=false" in words


def test_a_kubelet_serves_on_loopback_only(layout: Layout, tools: Path) -> None:
    node = LocalNode(layout, 2, kubelet_port=2001, healthz_port=2002)
    namespaces.start(layout, "node-2", {})
    node.directory.mkdir()
    assert node.start_kubelet().wait(60) == 0
    config = yaml.safe_load((node.directory / "kubelet.yaml").read_text())
    assert (config["address"], config["port"]) == ("127.0.0.1", 2001)
    assert (config["healthzBindAddress"], config["healthzPort"]) == ("127.0.0.1", 2002)
    assert config["tlsCertFile"] == str(layout.pki / "kubelet-node-2-server.crt")
    words = layout.log("kubelet/node-2").read_text().split()
    enter = namespaces.enter(layout, "node-2")
    assert words[: len(enter) + 1] == [*enter, str(tools / "kubelet")]
    (address,) = [word.partition("=")[2] for word in words if word.startswith("--node-ip=")]
    assert not ipaddress.ip_address(address).is_loopback  # the kubelet would refuse it


@pytest.mark.parametrize(
    "component",
    ["", "etcd", "kubelet", "kubelet/node-3", "containerd/node-1", "kube-proxy", "node-init/node-1"],
)
def test_what_can_not_be_restarted_is_refused(layout: Layout, component: str) -> None:
    with pytest.raises(UsageError) as raised:
        restart.restart(layout, component)
    assert str(raised.value) == f"{component!r}: no component that can be restarted"
