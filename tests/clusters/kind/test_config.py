"""The settings that kind gets."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from clusters.interface import Profile
from clusters.kind import config
from tests.clusters.kind.conftest import MakeState


def patches(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The patches for kubeadm by their kind."""
    loaded = [yaml.safe_load(patch) for patch in document["kubeadmConfigPatches"]]
    return {patch["kind"]: patch for patch in loaded}


def test_a_control_plane_and_as_many_workers_as_nodes(make_state: MakeState) -> None:
    document = config.document(make_state(nodes=3), {})

    assert [node["role"] for node in document["nodes"]] == ["control-plane", "worker", "worker", "worker"]
    assert document["name"] == "dra-harness-paper"


def test_each_worker_shares_its_own_folders(make_state: MakeState) -> None:
    state = make_state(nodes=2)
    document = config.document(state, {})

    first, second = (node["extraMounts"] for node in document["nodes"][1:])
    inside = [mount["containerPath"] for mount in first]
    assert set(inside) == {
        "/var/lib/kubelet/plugins",
        "/var/lib/kubelet/plugins_registry",
        "/var/lib/kubelet/device-plugins",
        "/var/lib/kubelet/pod-resources",
        "/etc/cdi",
    }
    assert inside == [mount["containerPath"] for mount in second]
    outside = [mount["hostPath"] for mount in (*first, *second)]
    assert len(set(outside)) == len(outside)
    node = state.cluster().nodes[0]
    assert f"{node.kubelet_dir}/plugins" in outside
    assert str(node.cdi_dir) in outside


def test_gates_reach_every_component(make_state: MakeState) -> None:
    """kind replaces its own lists by those of a patch, so the gates have to be in ours again."""
    document = config.document(make_state(), {"DRAExtendedResource": True, "Other": False})

    assert document["featureGates"] == {"DRAExtendedResource": True, "Other": False}
    cluster = patches(document)["ClusterConfiguration"]
    for component in ("controllerManager", "scheduler"):
        arguments = {each["name"]: each["value"] for each in cluster[component]["extraArgs"]}
        assert arguments["feature-gates"] == "DRAExtendedResource=true,Other=false"


def test_no_gates_no_flag(make_state: MakeState) -> None:
    cluster = patches(config.document(make_state(), {}))["ClusterConfiguration"]

    assert not [each for each in cluster["scheduler"]["extraArgs"] if each["name"] == "feature-gates"]


def test_before_1_36_kubeadm_takes_flags_as_a_map(make_state: MakeState) -> None:
    cluster = patches(config.document(make_state(kubernetes="v1.35.4"), {}))["ClusterConfiguration"]

    assert cluster["scheduler"]["extraArgs"]["leader-elect"] == "false"
    assert cluster["etcd"]["local"]["extraArgs"] == {"unsafe-no-fsync": "true"}


@pytest.mark.parametrize(("profile", "served"), [(Profile.GA, {}), (Profile.ALPHA, {"api/all": "true"})])
def test_the_alpha_profile_serves_all_versions(
    make_state: MakeState, profile: Profile, served: dict[str, str]
) -> None:
    assert config.document(make_state(profile=profile), {})["runtimeConfig"] == served


def test_only_our_own_image_goes_without_dns_and_iptables(make_state: MakeState) -> None:
    ours, other = (config.document(make_state(), {}, own_image=own) for own in (True, False))

    assert patches(ours)["InitConfiguration"]["skipPhases"] == ["preflight", "addon/coredns"]
    assert ours["networking"]["kubeProxyMode"] == "nftables"
    assert "InitConfiguration" not in patches(other)
    assert "kubeProxyMode" not in other["networking"]


def test_metrics_and_the_api_are_on_loopback_only(make_state: MakeState) -> None:
    document = config.document(make_state(), {}, port=6443)

    published = document["nodes"][0]["extraPortMappings"]
    assert {each["containerPort"] for each in published} == {10257, 10259}
    assert {each["listenAddress"] for each in published} == {"127.0.0.1"}
    assert document["networking"]["apiServerAddress"] == "127.0.0.1"
    assert document["networking"]["apiServerPort"] == 6443


def test_kubelets_get_what_the_machine_needs(make_state: MakeState) -> None:
    document = config.document(
        make_state(), {}, kubelet_gates={"KubeletInUserNamespace": True}, fail_cgroup_v1=False
    )

    kubelet = patches(document)["KubeletConfiguration"]
    assert kubelet["featureGates"] == {"KubeletInUserNamespace": True}
    assert kubelet["failCgroupV1"] is False
    assert "failCgroupV1" not in patches(config.document(make_state(), {}))["KubeletConfiguration"]
