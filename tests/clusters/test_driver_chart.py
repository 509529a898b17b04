"""The driver's chart, as the real Helm renders it, read by the real configuration."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_driver.config import ServeConfig, load_config
from fake_driver.deviceplugin.config import load_plugin_config
from fake_driver.inventory.nvml.config import NvmlChoice

from clusters import driver_chart
from harness.errors import UsageError
from tests.support.commands import Command

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]  # Helm may have to be built

Objects = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def helm() -> Path:
    return driver_chart.helm()


def render(helm: Path, **values: Any) -> Objects:
    """The objects by kind."""
    documents = yaml.safe_load_all(driver_chart.render(helm, values))
    return {document["kind"]: document for document in documents if document}


def pod(objects: Objects) -> dict[str, Any]:
    spec: dict[str, Any] = objects["DaemonSet"]["spec"]["template"]["spec"]
    return spec


def config(objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServeConfig:
    """The driver's configuration, as it reads it in a pod."""
    monkeypatch.setenv("NODE_NAME", "node-1")
    monkeypatch.setenv("POD_IP", "10.0.0.1")
    (tmp_path / "driver.yaml").write_text(objects["ConfigMap"]["data"]["driver.yaml"])
    return load_config(tmp_path / "driver.yaml")


def test_helm_finds_nothing_to_complain_about(helm: Path) -> None:
    done = subprocess.run(
        [helm, "lint", "--strict", driver_chart.chart()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_manifest_in_the_tree_is_what_the_command_prints(dra_harness: Command) -> None:
    printed = dra_harness("driver-manifest")
    in_tree = driver_chart.chart().parent / "driver.yaml"
    assert list(yaml.safe_load_all(printed.stdout)) == list(yaml.safe_load_all(in_tree.read_text())), (
        f"run: .venv/bin/dra-harness driver-manifest > {in_tree}\n{printed.stderr}"
    )


def test_every_container_has_the_least_privilege(helm: Path) -> None:
    rendered = render(
        helm, devicePlugin={"enabled": True, "resource": "a.example/b"}, control={"enabled": True}
    )
    spec = pod(rendered)
    assert [container["name"] for container in spec["containers"]] == ["driver", "device-plugin"]
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "runAsUser": 0,
            "runAsGroup": 0,
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["automountServiceAccountToken"] is False


@pytest.mark.parametrize("inventory", ["nvml", {"nvml": {"driverRoot": "/run/nvidia/driver"}}])
def test_for_real_gpus_it_has_the_nodes_files_and_devices(
    helm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inventory: Any
) -> None:
    rendered = render(helm, inventory=inventory, devicePlugin={"enabled": True, "resource": "a.example/b"})
    driver, plugin = pod(rendered)["containers"]
    assert driver["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "privileged": True,
        "readOnlyRootFilesystem": True,
    }
    assert plugin["securityContext"]["privileged"] is False
    (mount,) = [each for each in driver["volumeMounts"] if each["name"] == "host"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/host", True)
    assert {"name": "host", "hostPath": {"path": "/", "type": "Directory"}} in pod(rendered)["volumes"]
    settings = config(rendered, tmp_path, monkeypatch).inventory
    chosen = NvmlChoice.model_validate_json(json.dumps(settings)).nvml
    assert chosen.root == Path("/host")
    assert chosen.driver_root == ("/" if inventory == "nvml" else "/run/nvidia/driver")


def test_it_sees_three_folders_of_the_node(helm: Path) -> None:
    volumes = pod(render(helm))["volumes"]
    assert {volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume} == {
        "/var/lib/kubelet/plugins/gpu.dra-harness.dev",
        "/var/lib/kubelet/plugins_registry",
        "/var/run/cdi",
    }


def test_only_the_driver_gets_a_token_for_the_api(helm: Path) -> None:
    spec = pod(render(helm, devicePlugin={"enabled": True, "resource": "a.example/b"}))
    mounted = {
        container["name"]: {mount["name"] for mount in container["volumeMounts"]}
        for container in spec["containers"]
    }
    assert "api-access" in mounted["driver"]
    assert "api-access" not in mounted["device-plugin"]


def test_roles_name_every_verb(helm: Path) -> None:
    rules = render(helm)["ClusterRole"]["rules"]
    assert {
        resource: (rule["verbs"], rule.get("resourceNames"))
        for rule in rules
        for resource in rule["resources"]
    } == {
        "nodes": (["get"], None),
        "resourceclaims": (["get"], None),
        "resourceslices": (["get", "list", "watch", "create", "update", "delete"], None),
        "resourceclaims/status": (["update", "patch"], None),
        "resourceclaims/driver": (
            ["associated-node:update", "associated-node:patch"],
            ["gpu.dra-harness.dev"],
        ),
    }
    without = render(helm, claimStatus=False)["ClusterRole"]["rules"]
    assert [rule["resources"] for rule in without] == [["nodes"], ["resourceclaims"], ["resourceslices"]]


def test_the_driver_takes_its_configuration(
    helm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = {
        "driver": "x.example.com",
        "inventory": {"devices": [{"count": 3, "name": "d-{index}"}]},
        "kubeletDir": "/opt/kubelet",
        "cdiDir": "/etc/cdi",
        "config": {"health": {"enabled": False}, "driver": "not-this"},
        "control": {"enabled": True, "port": 9000},
    }
    loaded = config(render(helm, **values), tmp_path, monkeypatch)
    (node,) = loaded.nodes
    assert (loaded.driver, loaded.health.enabled) == ("x.example.com", False)
    assert loaded.inventory["devices"][0]["count"] == 3
    assert (node.name, str(node.kubelet_dir), node.kubelet_dir_in_node, str(node.cdi_dir)) == (
        "node-1",
        "/opt/kubelet",
        "/opt/kubelet",
        "/etc/cdi",
    )
    assert (loaded.control.address, loaded.control.port, loaded.control.socket) == ("10.0.0.1", 9000, None)


def test_without_control_nothing_listens(helm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = render(helm)
    loaded = config(rendered, tmp_path, monkeypatch)
    assert (loaded.control.port, str(loaded.control.socket)) == (None, "/run/fake-driver/control.sock")
    assert "ports" not in pod(rendered)["containers"][0]


def test_the_device_plugin_takes_its_configuration(
    helm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "node-1")
    monkeypatch.setenv("POD_IP", "10.0.0.1")
    rendered = render(
        helm, devicePlugin={"enabled": True, "resource": "a.example/b", "count": 4}, control={"enabled": True}
    )
    (tmp_path / "plugin.yaml").write_text(rendered["ConfigMap"]["data"]["device-plugin.yaml"])
    loaded = load_plugin_config(tmp_path / "plugin.yaml")
    assert (loaded.resource, loaded.nodes[0].name, loaded.nodes[0].count) == ("a.example/b", "node-1", 4)
    assert loaded.control.port == 8081


def test_of_a_device_plugin_alone_there_is_nothing_of_the_driver(helm: Path) -> None:
    plugin = {"enabled": True, "only": True, "resource": "a.example/b"}
    for control in ({"enabled": True}, {"enabled": False}):
        rendered = render(helm, devicePlugin=plugin, control=control)

        assert set(rendered) == {"ServiceAccount", "ConfigMap", "DaemonSet"}
        assert set(rendered["ConfigMap"]["data"]) == {"device-plugin.yaml"}
        spec = pod(rendered)
        (container,) = spec["containers"]
        assert container["name"] == "device-plugin"
        assert [volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume] == [
            "/var/lib/kubelet/device-plugins"
        ]
        assert {volume["name"] for volume in spec["volumes"]} == {
            mount["name"] for mount in container["volumeMounts"]
        }


def test_each_node_of_a_device_plugin_can_have_a_count_of_its_own(
    helm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = {"enabled": True, "resource": "a.example/b", "counts": {"node-1": 0, "node-2": 5}}
    rendered = render(helm, devicePlugin=plugin)
    path = pod(rendered)["containers"][1]["args"][-1]
    for node, count in plugin["counts"].items():  # type: ignore[attr-defined]
        monkeypatch.setenv("NODE_NAME", node)
        name = Path(path.replace("$(NODE_NAME)", node)).name
        (tmp_path / name).write_text(rendered["ConfigMap"]["data"][name])
        (loaded,) = load_plugin_config(tmp_path / name).nodes
        assert (loaded.name, loaded.count) == (node, count)


def test_the_device_class_has_the_name_that_pods_ask_for(helm: Path) -> None:
    assert render(helm)["DeviceClass"]["spec"] == {
        "selectors": [{"cel": {"expression": 'device.driver == "gpu.dra-harness.dev"'}}]
    }
    named = render(helm, deviceClass={"name": "gold", "extendedResourceName": "example.com/gpu"})[
        "DeviceClass"
    ]
    assert (named["metadata"]["name"], named["spec"]["extendedResourceName"]) == ("gold", "example.com/gpu")
    assert "DeviceClass" not in render(helm, deviceClass={"create": False})


def test_where_the_api_server_is_can_be_said(helm: Path) -> None:
    (driver,) = pod(render(helm, apiServer={"host": "10.1.1.1", "port": 6443}))["containers"]
    environment = {each["name"]: each.get("value") for each in driver["env"]}
    assert environment["KUBERNETES_SERVICE_HOST"] == "10.1.1.1"
    assert environment["KUBERNETES_SERVICE_PORT"] == "6443"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"drivr": "x"}, "additional properties 'drivr' not allowed"),
        ({"driver": "No Name"}, "/driver"),
        ({"control": {"enabled": "yes"}}, "/control/enabled"),
        ({"devicePlugin": {"enabled": True}}, "devicePlugin.resource: is required"),
        ({"devicePlugin": {"only": True}}, "devicePlugin.only: needs devicePlugin.enabled"),
        ({"devicePlugin": {"counts": {"node-1": "two"}}}, "/devicePlugin/counts/node-1"),
        ({"apiServer": {"host": "10.1.1.1"}}, "apiServer.port: is required beside apiServer.host"),
        ({"kubeletDir": "relative"}, "/kubeletDir"),
    ],
)
def test_a_wrong_value_is_one_error_that_names_it(helm: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        driver_chart.render(helm, values)
