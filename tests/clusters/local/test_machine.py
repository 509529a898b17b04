"""What a local cluster finds and changes on its machine, on stand-ins in temporary folders."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from clusters.interface import ClusterSpec
from clusters.local import cgroups, containerd, preflight, sysctls
from harness import waiting
from harness.errors import EnvironmentBlocked, UsageError


@pytest.fixture
def ready_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing is missing; returns the folder that PATH leads to."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("unshare", "nsenter", "mount", "ip"):
        write_tool(tools / name, "exit 0")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path / "state" / "deep"))
    monkeypatch.setenv("DRA_HARNESS_CACHE", str(tmp_path / "cache" / "deep"))
    monkeypatch.setenv("DRA_HARNESS_MACHINE", str(tmp_path / "machine"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tools


def write_tool(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_good_spec_on_a_good_machine_is_accepted(ready_machine: Path, tmp_path: Path) -> None:
    preflight.require(ClusterSpec(name="a", nodes=1))
    preflight.require(ClusterSpec(name="a-1" * 10, nodes=15, simulated_nodes=5000))
    assert all(each.ok for each in preflight.check_machine())
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a" * 33, "a.b", "a/b", "a\n", "é", ".."])
def test_a_name_that_is_no_label_is_refused(ready_machine: Path, name: str) -> None:
    with pytest.raises(UsageError) as raised:
        preflight.require(ClusterSpec(name=name))
    assert str(raised.value) == (
        f"cluster name {name!r}: expected at most 32 of a-z, 0-9 and -, not at the ends"
    )


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (ClusterSpec(name="a", nodes=0), "--nodes 0: expected 1 to 15"),
        (ClusterSpec(name="a", nodes=16), "--nodes 16: expected 1 to 15"),
        (ClusterSpec(name="a", simulated_nodes=-1), "--simulated-nodes -1: expected 0 to 5000"),
        (ClusterSpec(name="a", simulated_nodes=5001), "--simulated-nodes 5001: expected 0 to 5000"),
    ],
)
def test_too_many_or_too_few_are_refused(ready_machine: Path, spec: ClusterSpec, complaint: str) -> None:
    with pytest.raises(UsageError) as raised:
        preflight.require(spec)
    assert str(raised.value) == complaint


def finding(subject: str) -> tuple[bool, str]:
    return next((each.ok, each.message) for each in preflight.check_machine() if each.subject == subject)


@pytest.mark.parametrize(
    ("tool", "package"),
    [("unshare", "util-linux"), ("nsenter", "util-linux"), ("mount", "mount"), ("ip", "iproute2")],
)
def test_a_missing_tool_is_named_with_its_package(ready_machine: Path, tool: str, package: str) -> None:
    assert finding(tool) == (True, str(ready_machine / tool))
    (ready_machine / tool).unlink()
    assert finding(tool) == (False, f"not on PATH: apt-get install {package}")
    with pytest.raises(UsageError, match=f"^{tool}: not on PATH: apt-get install {package}$"):
        preflight.require(ClusterSpec(name="a"))


def test_without_root_the_user_is_told(ready_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finding("root") == (True, "yes")
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    ok, message = finding("root")
    assert not ok
    assert "needs root" in message
    with pytest.raises(UsageError, match=r"^root: a local cluster needs root"):
        preflight.require(ClusterSpec(name="a"))


@pytest.mark.parametrize(
    ("tool", "subject", "command"),
    [
        (
            "unshare",
            "namespaces",
            "unshare --mount --pid --fork --kill-child --propagation private true",
        ),
        ("ip", "network settings", "ip -j link show lo"),
    ],
)
def test_what_only_trying_tells_is_tried(ready_machine: Path, tool: str, subject: str, command: str) -> None:
    assert finding(subject) == (True, "yes")
    write_tool(
        ready_machine / tool, f'[ "{tool} $*" = "{command}" ] && echo "Operation not permitted" >&2; exit 1'
    )
    assert finding(subject) == (False, f"{command}: Operation not permitted")
    with pytest.raises(UsageError) as raised:
        preflight.require(ClusterSpec(name="a"))
    assert str(raised.value) == f"{subject}: {command}: Operation not permitted"


def test_a_tool_that_is_no_program_is_named(ready_machine: Path) -> None:
    (ready_machine / "ip").write_bytes(b"")
    ok, message = finding("network settings")
    assert not ok
    assert message.startswith("ip -j link show lo: ")
    assert "Exec format error" in message


def test_nothing_is_tried_on_a_machine_that_lacks_something(ready_machine: Path) -> None:
    write_tool(ready_machine / "unshare", f"touch {ready_machine}/tried")
    (ready_machine / "nsenter").unlink()
    assert [each.subject for each in preflight.check_machine() if not each.ok] == ["nsenter"]
    assert not (ready_machine / "tried").exists()


PLACES = [("state directory", "DRA_HARNESS_STATE"), ("cache", "DRA_HARNESS_CACHE")]


@pytest.mark.parametrize(("subject", "variable"), PLACES)
@pytest.mark.parametrize(
    ("place", "real", "masked"),
    [
        ("/run/x", "/run/x", "/run"),
        ("/var/lib/x", "/var/lib/x", "/var/lib"),
        ("/var/log", "/var/log", "/var/log"),
        ("/var/lib/../lib/y", "/var/lib/y", "/var/lib"),
    ],
)
def test_a_place_that_a_node_would_hide_is_refused(
    ready_machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    subject: str,
    variable: str,
    place: str,
    real: str,
    masked: str,
) -> None:
    monkeypatch.setenv(variable, place)
    message = f"{real} is inside {masked}, which a node hides by its own; {variable} moves it"
    assert finding(subject) == (False, message)
    assert [each.subject for each in preflight.check_machine() if not each.ok] == [subject]
    with pytest.raises(UsageError) as raised:
        preflight.require(ClusterSpec(name="a"))
    assert str(raised.value) == f"{subject}: {message}"


@pytest.mark.parametrize(("subject", "variable"), PLACES)
@pytest.mark.parametrize("place", ["/runner/x", "/var/libx", "/srv/run"])
def test_a_similar_place_is_fine(
    ready_machine: Path, monkeypatch: pytest.MonkeyPatch, subject: str, variable: str, place: str
) -> None:
    monkeypatch.setenv(variable, place)
    assert finding(subject) == (True, place)


@pytest.mark.parametrize(("subject", "variable"), PLACES)
def test_a_link_into_a_hidden_place_is_seen_through(
    ready_machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, subject: str, variable: str
) -> None:
    (tmp_path / "link").symlink_to("/var/lib")
    monkeypatch.setenv(variable, str(tmp_path / "link" / "x"))
    ok, message = finding(subject)
    assert not ok
    assert message.startswith("/var/lib/x is inside /var/lib")


@pytest.mark.parametrize(("subject", "variable"), PLACES)
@pytest.mark.parametrize("below", [".", "a/b"])
def test_a_place_that_can_be_no_folder_is_refused(
    ready_machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    subject: str,
    variable: str,
    below: str,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(variable, str(tmp_path / "file" / below))
    assert finding(subject) == (False, f"{tmp_path / 'file'} is no folder")


@pytest.fixture
def proc_sys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "proc-sys"
    values = {
        "vm/overcommit_memory": "0",
        "kernel/panic": "0",
        "net/ipv4/ip_forward": "0",
        "fs/inotify/max_user_instances": "128",
    }
    for name, value in values.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(value + "\n")
    monkeypatch.setattr(sysctls, "PROC_SYS", root)
    return root


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Where the settings are remembered."""
    return tmp_path / "sysctls.json"


def test_settings_are_put_back_as_they_were_before_the_first_cluster(proc_sys: Path, record: Path) -> None:
    sysctls.remember(record)
    assert record.stat().st_mode & 0o777 == 0o600
    (proc_sys / "kernel/panic").write_text("10\n")
    sysctls.remember(record)  # a second cluster
    (proc_sys / "net/ipv4/ip_forward").write_text("1\n")
    untouched = (proc_sys / "vm/overcommit_memory").stat().st_mtime_ns
    sysctls.restore(record)
    assert (proc_sys / "kernel/panic").read_text().strip() == "0"
    assert (proc_sys / "net/ipv4/ip_forward").read_text().strip() == "0"
    assert (proc_sys / "vm/overcommit_memory").stat().st_mtime_ns == untouched
    assert not record.exists()


def test_restoring_twice_or_without_a_record_changes_nothing(proc_sys: Path, record: Path) -> None:
    sysctls.restore(record)
    sysctls.remember(record)
    sysctls.restore(record)
    (proc_sys / "kernel/panic").write_text("10\n")
    sysctls.restore(record)
    assert (proc_sys / "kernel/panic").read_text() == "10\n"


def test_a_setting_that_went_does_not_keep_the_others(proc_sys: Path, record: Path) -> None:
    sysctls.remember(record)
    (proc_sys / "kernel/panic").unlink()
    (proc_sys / "kernel").rmdir()
    (proc_sys / "net/ipv4/ip_forward").write_text("1\n")
    sysctls.restore(record)
    assert (proc_sys / "net/ipv4/ip_forward").read_text().strip() == "0"


@pytest.mark.parametrize(
    ("before", "after"), [("128", "1024"), ("1023", "1024"), ("1024", "1024"), ("8192", "8192")]
)
def test_a_limit_is_raised_and_never_lowered(proc_sys: Path, before: str, after: str) -> None:
    limit = proc_sys / "fs/inotify/max_user_instances"
    limit.write_text(before + "\n")
    sysctls.raise_limits()
    assert limit.read_text().strip() == after


def test_a_limit_that_is_not_there_is_no_obstacle(proc_sys: Path) -> None:
    (proc_sys / "fs/inotify/max_user_instances").unlink()
    sysctls.raise_limits()
    assert not (proc_sys / "fs/inotify/max_user_instances").exists()


@pytest.fixture
def hierarchies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Folders that stand in for a v1 hierarchy (cpuset) and the unified one."""
    v1, v2 = tmp_path / "cpuset", tmp_path / "unified"
    v1.mkdir()
    v2.mkdir()
    monkeypatch.setattr(cgroups, "_hierarchies", lambda: [(v1, 1), (v2, 2)])
    return v1, v2


def test_a_nodes_cgroup_is_in_every_hierarchy_and_goes_again(hierarchies: tuple[Path, Path]) -> None:
    cgroups.create("0a1b2c", "node-1")
    cgroups.create("0a1b2c", "node-2")
    assert cgroups.path("0a1b2c", "node-2") == "/dra-harness-0a1b2c/node-2"
    cgroups.create("0a1b2d", "node-1")
    for hierarchy in hierarchies:
        (hierarchy / "dra-harness-0a1b2c" / "node-1" / "kubepods" / "pod").mkdir(parents=True)
    cgroups.remove("0a1b2c")
    cgroups.remove("0a1b2c")
    for hierarchy in hierarchies:
        assert [path.name for path in hierarchy.iterdir()] == ["dra-harness-0a1b2d"]


def test_controllers_are_delegated_down_to_the_node(hierarchies: tuple[Path, Path]) -> None:
    _, v2 = hierarchies
    cluster = v2 / "dra-harness-0a1b2c"
    cluster.mkdir()
    for folder in (v2, cluster):
        (folder / "cgroup.controllers").write_text("cpuset cpu memory\n")
    cgroups.create("0a1b2c", "node-1")
    for folder in (v2, cluster):
        assert (folder / "cgroup.subtree_control").read_text() == "+cpuset +cpu +memory"
    assert not (cluster / "node-1" / "cgroup.subtree_control").exists()


def test_the_cpus_of_a_new_v1_cpuset_are_its_parents(hierarchies: tuple[Path, Path]) -> None:
    v1, _ = hierarchies
    folders = [v1, v1 / "dra-harness-0a1b2c", v1 / "dra-harness-0a1b2c" / "node-1"]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        (folder / "cpuset.cpus").write_text("")
        (folder / "cpuset.mems").write_text("")
    (v1 / "cpuset.cpus").write_text("0-3\n")
    (v1 / "cpuset.mems").write_text("0\n")
    cgroups.create("0a1b2c", "node-1")
    for folder in folders:
        assert (folder / "cpuset.cpus").read_text() == "0-3\n"
        assert (folder / "cpuset.mems").read_text() == "0\n"


def test_a_busy_cgroup_is_named(hierarchies: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    cgroups.create("0a1b2c", "node-1")
    (hierarchies[0] / "dra-harness-0a1b2c" / "node-1" / "busy").touch()  # keeps rmdir from succeeding
    waited = waiting.wait_until
    monkeypatch.setattr(
        cgroups, "wait_until", lambda probe, _, describe, **more: waited(probe, 0, describe, **more)
    )
    with pytest.raises(EnvironmentBlocked, match="cgroups dra-harness-0a1b2c to be empty"):
        cgroups.remove("0a1b2c")


def programs(folder: Path) -> dict[str, Path]:
    return {name: folder / name for name in ("bridge", "containerd-shim-runc-v2", "runc")}


@pytest.mark.parametrize("restricted", [True, False])
def test_containerds_settings(tmp_path: Path, restricted: bool) -> None:
    node = tmp_path / "node-1"
    node.mkdir()
    containerd.write_config(node, programs(tmp_path / "bin"), restricted=restricted)
    config = tomllib.loads((node / "containerd.toml").read_text())
    assert config["version"] == 3
    assert config["root"] == str(node / "containerd")
    assert config["state"].startswith("/run/")
    assert config["grpc"]["address"] == containerd.SOCKET
    assert len(config["ttrpc"]["address"]) < 108  # sun_path of unix(7)
    assert config["ttrpc"]["address"] != containerd.SOCKET
    runtime = config["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["enable_cdi"] is True
    assert runtime["cdi_spec_dirs"] == [str(node / "cdi"), "/var/run/cdi"]
    assert runtime["restrict_oom_score_adj"] is restricted
    assert runtime["cni"] == {"bin_dirs": [str(tmp_path / "bin")], "conf_dir": str(node / "cni" / "net.d")}
    default = runtime["containerd"]["default_runtime_name"]
    runc = runtime["containerd"]["runtimes"][default]
    assert runc["runtime_path"] == str(tmp_path / "bin" / "containerd-shim-runc-v2")
    assert runc["options"] == {"BinaryName": str(tmp_path / "bin" / "runc"), "SystemdCgroup": False}
    images = config["plugins"]["io.containerd.cri.v1.images"]
    assert images["snapshotter"] == containerd.snapshotter(node)
    assert images["pinned_images"]["sandbox"]
    assert not any(
        "snapshotter" in each and images["snapshotter"] in each for each in config["disabled_plugins"]
    )


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ("overlay / overlay rw 0 0", "native"),
        ("overlay / overlay rw 0 0\ntmpfs /s tmpfs rw 0 0", "overlayfs"),
        ("/dev/sda / ext4 rw 0 0\noverlay /s/c overlay rw 0 0", "native"),
        ("/dev/sda / ext4 rw 0 0\noverlay /s/clusters2 overlay rw 0 0", "overlayfs"),
        ("overlay /s/c overlay rw 0 0\next4 /s/c ext4 rw 0 0", "overlayfs"),
        ("overlay /s/c overlay rw 0 0\n/dev/sda / ext4 rw 0 0", "native"),
    ],
)
def test_overlayfs_is_not_put_on_an_overlay(
    monkeypatch: pytest.MonkeyPatch, mounts: str, expected: str
) -> None:
    monkeypatch.setattr(
        Path, "read_text", lambda path, *_: mounts if str(path) == "/proc/self/mounts" else ""
    )
    assert containerd.snapshotter(Path("/s/c/node-1")) == expected
