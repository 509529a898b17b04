"""Bad input gives one error that names the file, the key and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_driver.config import load_config
from fake_driver.deviceplugin.config import load_plugin_config
from fake_driver.driver import Driver
from fake_driver.errors import ConfigError
from fake_driver.inventory.synthetic import BUNDLED, load_inventory
from fake_driver.kubeapi.kubeconfig import load_access

NODE = {"name": "n", "kubeletDir": "/k", "cdiDir": "/c"}
GOOD: dict[str, Any] = {"driver": "d.dev", "nodes": [NODE], "control": {"socket": "/s"}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodez": []}, "nodez: unknown key; did you mean 'nodes'?"),
        ({"zzz": 1}, "zzz: unknown key; expected one of apiVersions, cdiClass, control, driver, "),
        (
            {"nodes": [{**NODE, "kubeletdir": "/k"}]},
            "nodes.0.kubeletdir: unknown key; did you mean 'kubeletDir'?",
        ),
        ({"nodes": [{"name": "n", "cdiDir": "/c"}]}, "nodes.0.kubeletDir: is required"),
        ({"nodes": "all"}, 'nodes: expected a list, got "all"'),
        ({"nodes": [NODE, NODE]}, "the whole document: nodes: expected each name once, 'n' is repeated"),
        ({"driver": 7}, "driver: expected a string, got 7"),
        (
            {"metadata": {"enabled": "yes please"}},
            'metadata.enabled: expected true or false, got "yes please"',
        ),
        ({"health": {"timeoutSeconds": "30"}}, 'health.timeoutSeconds: expected an integer, got "30"'),
        ({"apiVersions": ["v2"]}, "apiVersions.0: input should be 'v1' or 'v1beta1', got \"v2\""),
        ({"control": None}, "control: expected a mapping, got null"),
    ],
)
def test_driver_config(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "driver.yaml"
    path.write_text(yaml.safe_dump(GOOD | change))
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


def test_good_config_has_defaults(tmp_path: Path) -> None:
    path = tmp_path / "driver.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    config = load_config(path)
    assert config.api_versions == ["v1", "v1beta1"]
    assert config.metadata.versions == ["v1beta1", "v1alpha1"]
    assert config.nodes[0].kubelet_dir_in_node == "/var/lib/kubelet"


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.yaml: can't read it: No such file or directory$"):
        load_config(tmp_path / "none.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("driver: d: e")
    with pytest.raises(ConfigError, match=r"broken.yaml: not valid YAML at line 1, column 10: "):
        load_config(broken)


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ({"devices": [{"cuont": 2}]}, "inventory.devices.0.cuont: unknown key; did you mean 'count'?"),
        ({"devices": [{"count": "2"}]}, 'inventory.devices.0.count: expected an integer, got "2"'),
        ({"devices": [{"count": 2, "name": "gpu"}]}, "inventory.devices.0: name: expected {index} in it"),
        (
            {"devices": [{"attributes": {"a": {"int": 1, "string": "x"}}}]},
            "inventory.devices.0.attributes.a: expected exactly one of int, bool, string, version, ints",
        ),
        (
            {"devices": [{"attributes": {"a": {"int": True}}}]},
            "inventory.devices.0.attributes.a.int: expected an integer, got true",
        ),
        (
            {"devices": [{"capacity": {"memory": {"value": "much"}}}]},
            "inventory.devices.0.capacity.memory.value: expected a quantity such as 141Gi or 500m",
        ),
        (
            {"devices": [{"name": "GPU"}]},
            "inventory: devices: expected a DNS label as device name, got 'GPU'",
        ),
        (
            {"devices": [{"name": "a"}, {"name": "a"}]},
            "inventory: devices: expected each device name once, 'a' is repeated",
        ),
        (7, "inventory: expected a profile (a mapping), a path or a bundled profile's name"),
    ],
)
def test_inventory(tmp_path: Path, profile: Any, message: str) -> None:
    source = tmp_path / "driver.yaml"
    with pytest.raises(ConfigError) as caught:
        load_inventory(profile, source)
    assert str(caught.value).startswith(f"{source}: {message}")


def test_inventory_file_is_named_in_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("devices: [{taints: [{key: a, effect: Sometimes}]}]")
    with pytest.raises(ConfigError) as caught:
        load_inventory("mine.yaml", tmp_path / "driver.yaml")
    assert str(caught.value) == (
        f"{path}: devices.0.taints.0.effect: input should be 'None', 'NoSchedule' or 'NoExecute', "
        'got "Sometimes"'
    )
    with pytest.raises(ConfigError, match="bundled profiles are h200, nic, partitioned, shared, small"):
        load_inventory("nowhere", tmp_path / "driver.yaml")


def test_nodes_own_inventory_is_named(write_config: Callable[..., Path], tmp_path: Path) -> None:
    node = {"name": "n", "kubeletDir": str(tmp_path), "cdiDir": str(tmp_path), "inventory": {"devices": 1}}
    path = write_config(nodes=[node])
    with pytest.raises(ConfigError) as caught:
        Driver(load_config(path), path)
    assert str(caught.value) == f"{path}: nodes.0.inventory.devices: expected a list, got 1"


@pytest.mark.parametrize("name", sorted(path.stem for path in BUNDLED.glob("*.yaml")))
def test_bundled_profiles_load_and_are_the_same_every_time(name: str) -> None:
    first, second = (load_inventory(name, Path("driver.yaml")).for_node("node-1") for _ in range(2))
    assert first == second
    assert first.devices


def test_h200_preset_has_the_attribute_contract() -> None:
    devices = load_inventory("h200", Path("driver.yaml")).for_node("node-1").devices
    kinds = {name: next(iter(value)) for name, value in devices[0]["attributes"].items()}
    assert kinds == {
        "type": "string",
        "uuid": "string",
        "productName": "string",
        "brand": "string",
        "architecture": "string",
        "cudaComputeCapability": "version",
        "driverVersion": "version",
        "cudaDriverVersion": "version",
        "addressingMode": "string",
        "resource.kubernetes.io/pciBusID": "string",
        "resource.kubernetes.io/pcieRoot": "string",
        "resource.kubernetes.io/numaNode": "int",
    }
    uuids = {device["attributes"]["uuid"]["string"] for device in devices}
    other = load_inventory("h200", Path("driver.yaml")).for_node("node-2").devices
    uuids |= {device["attributes"]["uuid"]["string"] for device in other}
    assert len(uuids) == 16
    numa = [device["attributes"]["resource.kubernetes.io/numaNode"]["int"] for device in devices]
    assert numa == [0, 0, 0, 0, 1, 1, 1, 1]


def test_nics_share_the_pcie_root_of_their_gpu() -> None:
    devices = load_inventory("nic", Path("driver.yaml")).for_node("node-1").devices
    root = {d["name"]: d["attributes"]["resource.kubernetes.io/pcieRoot"] for d in devices}
    bus = {d["name"]: d["attributes"]["resource.kubernetes.io/pciBusID"]["string"] for d in devices}
    assert all(root[f"gpu-{n}"] == root[f"nic-{n}"] for n in range(4))
    assert len(set(bus.values())) == 8


def test_partitions_draw_on_their_parents_counters() -> None:
    inventory = load_inventory("partitioned", Path("driver.yaml")).for_node("node-1")
    assert [counters["name"] for counters in inventory.shared_counters] == [
        "gpu-0-counter-set",
        "gpu-1-counter-set",
    ]
    part = inventory.device("gpu-1-mig-1g18gb-6")
    parent = inventory.device("gpu-1")
    assert part is not None
    assert parent is not None
    assert part["attributes"]["parentUUID"] == parent["attributes"]["uuid"]
    assert "uuid" not in part["attributes"]
    assert part["consumesCounters"][0]["counterSet"] == "gpu-1-counter-set"
    assert part["consumesCounters"][0]["counters"]["memory"] == {"value": "16Gi"}


@pytest.mark.parametrize(
    ("kubeconfig", "message"),
    [
        ("[]", "expected a kubeconfig (a mapping)"),
        ("{}", "contexts: expected an entry named None"),
        (
            "{current-context: c, contexts: [{name: c, context: {cluster: x, user: u}}], "
            "clusters: [{name: x, cluster: {server: 'ftp://x'}}], users: [{name: u, user: {token: t}}]}",
            "clusters.cluster.server: expected a http(s) URL, got 'ftp://x'",
        ),
        (
            "{current-context: c, contexts: [{name: c, context: {cluster: x, user: u}}], "
            "clusters: [{name: x, cluster: {server: 'https://x'}}], users: [{name: u, user: {exec: {}}}]}",
            "users.user.exec: not supported; expected a client certificate, token or tokenFile",
        ),
    ],
)
def test_kubeconfig(tmp_path: Path, kubeconfig: str, message: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig)
    with pytest.raises(ConfigError) as caught:
        load_access(path)
    assert str(caught.value) == f"{path}: {message}"


def test_device_plugin_config(tmp_path: Path) -> None:
    path = tmp_path / "plugin.yaml"
    path.write_text("{resource: gpu, nodes: [{name: n, kubeletDir: /k}], control: {socket: /s}}")
    with pytest.raises(ConfigError) as caught:
        load_plugin_config(path)
    assert str(caught.value).startswith(f"{path}: resource: string should match pattern")
