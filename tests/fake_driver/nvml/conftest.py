"""Machines of the stand-in library, and the driver's inventory on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_driver.inventory.nvml.config import NvmlConfig
from fake_driver.inventory.nvml.inventory import NvmlInventory

from tests.fake_driver.conftest import DRIVER
from tests.fake_driver.nvml.machine import DRIVER_VERSION, Machine, build, install_driver

FAST = {"checkSeconds": 0.05}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in `libnvidia-ml.so.1`; pynvml keeps it as long as the process lives."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with NVIDIA's driver and no GPU so far."""
    root = tmp_path / "host"
    install_driver(root)
    made = Machine(tmp_path / "machine", root, library)
    made.add(f"driver {DRIVER_VERSION} 13000")
    monkeypatch.setenv("NVML_STANDIN", str(made.file))
    return made


def settings(machine: Machine, **more: Any) -> dict[str, Any]:
    """The `nvml` settings for a machine, that looks often."""
    return FAST | {"library": str(machine.library), "root": str(machine.root)} | more


@pytest.fixture
def inventory(machine: Machine) -> Iterator[Callable[..., NvmlInventory]]:
    """Makes an inventory of the machine; it is stopped at the end."""
    made: list[NvmlInventory] = []

    def make(**more: Any) -> NvmlInventory:
        config = NvmlConfig.model_validate_json(json.dumps(settings(machine, **more)))
        made.append(NvmlInventory(config, DRIVER))
        return made[-1]

    yield make
    for each in made:
        each.stop()
