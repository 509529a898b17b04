"""A stand-in API server, and drivers that run in this process against it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_driver.client import DriverClient
from fake_driver.config import load_config
from fake_driver.control.operations import operations
from fake_driver.control.server import ControlServer
from fake_driver.driver import ControlError, Driver

from tests.fake_driver.kubelet import StubKubelet
from tests.fake_driver.standin import ApiServerStandin

DRIVER = "gpu.test.dev"
NODE = "node-1"


@dataclass
class Rig:
    """A running driver with everything around it."""

    directory: Path
    api: ApiServerStandin
    driver: Driver
    client: DriverClient
    control: ControlServer

    def kubelet(self, node: str = NODE) -> StubKubelet:
        return StubKubelet(self.directory / node / "kubelet", DRIVER)

    def cdi_dir(self, node: str = NODE) -> Path:
        return self.directory / node / "cdi"

    def stop(self) -> None:
        self.driver.stop()
        self.control.stop()


@pytest.fixture
def api() -> Iterator[ApiServerStandin]:
    standin = ApiServerStandin()
    standin.node(NODE)
    yield standin
    standin.stop()


@pytest.fixture
def default_inventory() -> Any:
    """What the driver's config has as inventory unless a test says otherwise."""
    return "small"


@pytest.fixture
def write_config(tmp_path: Path, api: ApiServerStandin, default_inventory: Any) -> Callable[..., Path]:
    """Writes a config file for a driver against the stand-in; keyword arguments are top-level keys."""

    def write(**overrides: Any) -> Path:
        kubeconfig = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": api.url}}],
            "users": [{"name": "test", "user": {"token": "secret"}}],
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        config = {
            "driver": DRIVER,
            "kubeconfig": str(tmp_path / "kubeconfig"),
            "nodes": [node_config(tmp_path, NODE)],
            "control": {"socket": str(tmp_path / "control.sock")},
            "inventory": default_inventory,
            "stopGraceSeconds": 1,
        } | overrides
        path = tmp_path / "driver.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    return write


def node_config(directory: Path, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "kubeletDir": str(directory / name / "kubelet"),
        "cdiDir": str(directory / name / "cdi"),
    }


@pytest.fixture
def start(
    tmp_path: Path, api: ApiServerStandin, write_config: Callable[..., Path]
) -> Iterator[Callable[..., Rig]]:
    """Starts a driver in this process; it's stopped at the end of the test."""
    rigs: list[Rig] = []

    def start_driver(**overrides: Any) -> Rig:
        path = write_config(**overrides)
        config = load_config(path)
        driver = Driver(config, path)
        control = ControlServer(config.control, operations(driver), (ControlError,))
        assert config.control.socket
        rig = Rig(tmp_path, api, driver, DriverClient(config.control.socket), control)
        rigs.append(rig)
        control.start()
        driver.start()
        return rig

    yield start_driver
    for rig in rigs:
        rig.stop()


@pytest.fixture
def rig(start: Callable[..., Rig]) -> Rig:
    """A driver with two devices, `dev-0` and `dev-1`, on one node."""
    return start()


@pytest.fixture
def claim(api: ApiServerStandin) -> Callable[..., dict[str, Any]]:
    """Creates an allocated ResourceClaim; results are `(request, device)` or mappings."""
    numbers = itertools.count()

    def create(
        *results: Any, config: Any = (), name: str = "", annotations: Any = None, **more: Any
    ) -> dict[str, Any]:
        name = name or f"claim-{next(numbers)}"
        filled = []
        for result in results:
            given = result if isinstance(result, dict) else {"request": result[0], "device": result[1]}
            filled.append({"driver": DRIVER, "pool": NODE} | given)
        body = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": str(uuid.uuid4()),
                "annotations": annotations or {},
            },
            "status": {"allocation": {"devices": {"results": filled, "config": list(config)}}},
        } | more
        return api.put(f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}", body)

    return create
