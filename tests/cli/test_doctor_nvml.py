"""`doctor --nvml` as a program of its own: what it shows of GPUs, and that there are none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_driver.nvml.machine import (
    DRIVER_NOT_LOADED,
    DRIVER_VERSION,
    LARGE,
    LOST,
    SMALL,
    Machine,
    build,
)

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(library: Path, tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "machine", tmp_path / "host", library)
    made.add(f"driver {DRIVER_VERSION} 13000")
    return made


def doctor(folder: Path, *arguments: str, file: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The loader looks for NVML in `folder`."""
    places = {"LD_LIBRARY_PATH": str(folder), "NVML_STANDIN": str(file or "")}
    return subprocess.run(
        [sys.executable, "-m", "cli.main", "doctor", "--nvml", *arguments],
        env=os.environ | places | {"NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_what_there_is(machine: Machine) -> None:
    machine.gpu("a100", 0, LARGE, SMALL)
    machine.gpu("k80", 1)
    machine.gpu("h100", 2)
    machine.add("ecc 0 5", f"fail 2 * {LOST}")
    done = doctor(machine.library.parent, "-o", "json", file=machine.file)
    assert done.returncode == 0, done.stderr
    assert "warning: GPU 2 is lost: GPU is lost" in done.stderr.splitlines()
    shown = {device["name"]: device for device in json.loads(done.stdout)}
    assert set(shown) == {"gpu-0-mig-3g20gb-9-0", "gpu-0-mig-1g5gb-19-4", "gpu-1"}
    assert shown["gpu-1"]["attributes"]["productName"] == {"string": "Tesla K80"}
    assert shown["gpu-1"]["capacity"] == {"memory": {"value": "11441Mi"}}
    assert (shown["gpu-1"]["health"], shown["gpu-1"]["message"]) == (
        "Unknown",
        "not monitored: this GPU reports no XIDs",
    )
    assert shown["gpu-1"]["taints"] == [{"key": "gpu.dra-harness.dev/unmonitored", "effect": "None"}]
    assert shown["gpu-0-mig-1g5gb-19-4"]["health"] == "Unhealthy"


def test_as_a_table(machine: Machine) -> None:
    machine.gpu("h100", 0)
    done = doctor(machine.library.parent, file=machine.file)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["DEVICE", "KEY", "TYPE", "VALUE"]
    assert ["gpu-0", "health", "Healthy"] in lines
    assert ["gpu-0", "cudaComputeCapability", "version", "9.0.0"] in lines
    assert ["gpu-0", "memory", "capacity", "81559Mi"] in lines


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([f"fail -1 nvmlInitWithFlags {DRIVER_NOT_LOADED}"], "NVML can't be used: Driver Not Loaded"),
        ([], "NVML lists no GPU"),
        (["gpu h100 0", f"fail 0 * {LOST}"], "GPU 0 is lost: GPU is lost"),
    ],
)
def test_nothing_to_publish(machine: Machine, lines: list[str], message: str) -> None:
    machine.add(*lines)
    done = doctor(machine.library.parent, file=machine.file)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines() == [f"error: {message}"]


def test_no_library(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").touch()  # which hides a real one
    done = doctor(tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines() == ["error: NVML can't be used: NVML Shared Library Not Found"]
