"""The driver as a process of its own: start, stop, crash, two instances, long paths."""

from __future__ import annotations

import json
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from fake_driver.client import DriverClient, DriverError
from fake_driver.faults import Fault, FaultKind

from harness.waiting import wait_until
from tests.fake_driver.conftest import DRIVER, NODE, Rig, node_config
from tests.fake_driver.kubelet import StubKubelet
from tests.fake_driver.standin import ApiServerStandin

pytestmark = pytest.mark.process

Claims = Callable[..., dict[str, Any]]
Spawn = Callable[[Path], "subprocess.Popen[str]"]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts `fake-driver serve`; what still runs at the end is killed."""
    with ExitStack() as stack:

        def start(config: Path, command: str = "serve") -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-m", "fake_driver", command, "--config", str(config)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def plugin_config(tmp_path: Path) -> Path:
    """The configuration of a device plugin for one node."""
    config = tmp_path / "plugin.yaml"
    settings = {
        "resource": "example.com/x",
        "nodes": [{"name": "n", "kubeletDir": str(tmp_path / "kubelet")}],
        "control": {"socket": str(tmp_path / "plugin.sock")},
    }
    config.write_text(yaml.safe_dump(settings))
    return config


def first_line(process: subprocess.Popen[str]) -> Any:
    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], 20)
    assert ready, "the driver said nothing"
    return json.loads(process.stdout.readline())


def test_ready_line_then_graceful_end(
    write_config: Callable[..., Path], spawn: Spawn, api: ApiServerStandin, tmp_path: Path
) -> None:
    process = spawn(write_config())
    assert first_line(process) == {"ready": True, "driver": DRIVER, "nodes": [NODE]}
    assert len(api.slices()) == 1
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (0, "")
    assert "Traceback" not in stderr
    assert len(api.slices()) == 1
    assert list((tmp_path / NODE / "kubelet" / "plugins_registry").iterdir()) == []
    assert not (tmp_path / "control.sock").exists()


@pytest.mark.parametrize("command", ["serve", "device-plugin"])
def test_the_thread_that_waits_gets_the_signals(
    write_config: Callable[..., Path], plugin_config: Path, spawn: Any, command: str
) -> None:
    """One that another thread got would wake nobody."""
    process = spawn(write_config() if command == "serve" else plugin_config, command)
    first_line(process)

    def taking() -> list[str]:
        threads = list(Path(f"/proc/{process.pid}/task").iterdir())
        assert len(threads) > 3
        return [thread.name for thread in threads if _takes_signals(thread)]

    wait_until(lambda: taking() == [str(process.pid)], 60, "the main thread to wait for signals")


def test_a_signal_during_the_start_ends_it_afterwards(
    write_config: Callable[..., Path], spawn: Spawn, tmp_path: Path
) -> None:
    """The first process of a container would ignore it, and leave its sockets once it is killed."""
    process = spawn(write_config())
    main_thread = Path(f"/proc/{process.pid}")
    wait_until(lambda: not _takes_signals(main_thread), 60, "signals to wait", interval=0.001)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert list((tmp_path / NODE / "kubelet" / "plugins_registry").iterdir()) == []


def _takes_signals(thread: Path) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        (blocked,) = re.findall(r"^SigBlk:\s*(\w+)$", (thread / "status").read_text(), re.MULTILINE)
        return not int(blocked, 16) & 1 << (signal.SIGTERM - 1)
    return False


def test_running_calls_are_finished_on_stop(
    write_config: Callable[..., Path], spawn: Spawn, claim: Claims, tmp_path: Path
) -> None:
    process = spawn(write_config())
    first_line(process)
    client = DriverClient(tmp_path / "control.sock")
    client.set_fault(Fault(method="NodePrepareResources", kind=FaultKind.HANG))
    one = claim(("req", "dev-0"))
    kubelet = StubKubelet(tmp_path / NODE / "kubelet", DRIVER)
    answers: list[Any] = []
    caller = threading.Thread(target=lambda: answers.append(kubelet.prepare(one)))
    caller.start()
    wait_until(client.calls, 60, "the call to arrive", interval=0.02)
    client.stop()
    caller.join(60)
    assert answers[0][one["metadata"]["uid"]].error == ""
    assert process.wait(60) == 0


@pytest.mark.parametrize(("when", "prepared"), [("before", False), ("after", True)])
def test_crash_then_recovery(
    write_config: Callable[..., Path],
    spawn: Spawn,
    claim: Claims,
    tmp_path: Path,
    when: Any,
    prepared: bool,
) -> None:
    config = write_config()
    process = spawn(config)
    first_line(process)
    client = DriverClient(tmp_path / "control.sock")
    client.set_fault(Fault(method="NodePrepareResources", kind=FaultKind.CRASH, when=when))
    one = claim(("req", "dev-0"))
    uid = one["metadata"]["uid"]
    kubelet = StubKubelet(tmp_path / NODE / "kubelet", DRIVER)
    with pytest.raises(grpc.RpcError):
        kubelet.prepare(one)
    assert process.wait(60) == 70
    with pytest.raises(DriverError, match="no answer"):
        client.status()
    first_line(spawn(config))  # finds the dead one's sockets in its way
    assert client.status().node(NODE).prepared_claims == ([uid] if prepared else [])
    assert kubelet.prepare(one)[uid].error == ""


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "the checkpoint is damaged: not the expected JSON; "),
        (
            lambda text: text.replace("dev-0", "dev-1"),
            "the checkpoint is damaged: the checksum doesn't match; ",
        ),
        (lambda text: text.replace('"v1"', '"v9"'), "the checkpoint has version 'v9', expected 'v1'; "),
    ],
)
def test_damaged_checkpoint_stops_the_start(
    start: Callable[..., Rig],
    write_config: Callable[..., Path],
    spawn: Spawn,
    claim: Claims,
    damage: Callable[[str], str],
    message: str,
) -> None:
    rig = start()
    rig.kubelet().prepare(claim(("req", "dev-0")))
    rig.stop()
    path = rig.kubelet().plugin_dir / "checkpoint.json"
    path.write_text(damage(path.read_text()))
    process = spawn(write_config())
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (1, "")
    assert stderr == (
        f"fake-driver: {path}: {message}restore it, or remove it once no pod uses this driver's devices\n"
    )


def test_bad_config_exits_with_2(tmp_path: Path, spawn: Spawn) -> None:
    path = tmp_path / "driver.yaml"
    path.write_text("{driver: d.dev, nodes: []}")
    process = spawn(path)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert stderr == f"fake-driver: {path}: nodes: list should have at least 1 item after validation, " + (
        "not 0, got []\n"
    )


def test_refused_slices_exit_with_1(
    write_config: Callable[..., Path], spawn: Spawn, api: ApiServerStandin
) -> None:
    api.reject = {"all": 422}
    process = spawn(write_config())
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (1, "")
    assert "fake-driver: the API server refuses the slices of node node-1: POST " in stderr
    assert stderr.rstrip().endswith("refused by the test")


def test_several_nodes_in_deep_directories(
    start: Callable[..., Rig], api: ApiServerStandin, claim: Claims, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    for name in ("node-1", "node-2"):
        api.node(name)
    rig = start(
        nodes=[node_config(deep, "node-1"), node_config(deep, "node-2") | {"inventory": "h200"}],
        control={"socket": str(deep / "control.sock")},
    )
    assert [len(node.devices) for node in rig.client.status().nodes] == [2, 8]
    kubelet = StubKubelet(deep / "node-2" / "kubelet", DRIVER)
    assert kubelet.register().endpoint == f"/var/lib/kubelet/plugins/{DRIVER}/dra.sock"
    one = claim({"request": "req", "device": "gpu-7", "pool": "node-2"})
    assert kubelet.prepare(one)[one["metadata"]["uid"]].error == ""
    assert [node.prepared_claims for node in rig.client.status().nodes] == [[], [one["metadata"]["uid"]]]
    assert [call.node for call in rig.client.calls(node="node-2", method="GetInfo")] == ["node-2"]


def test_two_instances_share_their_claims(start: Callable[..., Rig], claim: Claims, tmp_path: Path) -> None:
    old = start(instance="old", control={"socket": str(tmp_path / "old.sock")})
    before = old.api.slices()
    new = start(instance="new", control={"socket": str(tmp_path / "new.sock")})
    registry = old.kubelet().registry
    assert sorted(path.name for path in registry.iterdir()) == [
        f"{DRIVER}-new-reg.sock",
        f"{DRIVER}-old-reg.sock",
    ]
    first, second = claim(("req", "dev-0")), claim(("req", "dev-0"))
    uids = [first["metadata"]["uid"], second["metadata"]["uid"]]
    kubelet = old.kubelet()
    assert kubelet.prepare(first, socket="dra-old.sock")[uids[0]].error == ""
    assert "is in use by claim" in kubelet.prepare(second, socket="dra-new.sock")[uids[1]].error
    old.stop()
    assert [path.name for path in registry.iterdir()] == [f"{DRIVER}-new-reg.sock"]
    assert new.api.slices() == before
    assert kubelet.unprepare(first, socket="dra-new.sock")[uids[0]].error == ""
    assert kubelet.prepare(second, socket="dra-new.sock")[uids[1]].error == ""


def test_device_plugin_process(tmp_path: Path, plugin_config: Path, spawn: Any) -> None:
    process = spawn(plugin_config, "device-plugin")
    assert first_line(process) == {"ready": True, "resource": "example.com/x", "nodes": ["n"]}
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert list((tmp_path / "kubelet" / "device-plugins").iterdir()) == []
