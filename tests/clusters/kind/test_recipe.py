"""What the node image consists of."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters.kind import recipe

NAMES = [
    "registry.k8s.io/kube-apiserver:v1.37.2",
    "registry.k8s.io/kube-controller-manager:v1.37.2",
    "registry.k8s.io/kube-scheduler:v1.37.2",
    "registry.k8s.io/kube-proxy:v1.37.2",
    "registry.k8s.io/coredns/coredns:v1.14.6",
    "registry.k8s.io/pause:3.10.2",
    "registry.k8s.io/etcd:3.7.0-0",
]

PROGRAMS = [
    "kubeadm",
    "kubelet",
    "kubectl",
    "crictl",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "runc",
    "bridge",
    "loopback",
    "host-local",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "etcd",
    "pod",
]


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, Path]:
    found = {name: tmp_path / name for name in PROGRAMS}
    for name, path in found.items():
        path.write_text(name)
    return found


def test_images_have_the_names_that_kubeadm_asks_for(programs: dict[str, Path]) -> None:
    nft = {"usr/sbin/nft": Path("nft")}
    made = {image.name: dict(image.files) for image in recipe.images(NAMES, programs, nft)}
    assert made["registry.k8s.io/etcd:3.7.0-0"] == {"usr/local/bin/etcd": programs["etcd"]}
    proxy = {"usr/local/bin/kube-proxy": programs["kube-proxy"], "usr/sbin/nft": Path("nft")}
    assert made["registry.k8s.io/kube-proxy:v1.37.2"] == proxy
    assert "registry.k8s.io/pause:3.10.2" not in made
    assert len(made) == 6


def test_the_pause_image_is_the_one_that_containerd_is_told_of(programs: dict[str, Path]) -> None:
    (pause, *_) = recipe.images(NAMES, programs, {})
    assert f'sandbox = "{pause.name}"' in (recipe.FILES / "containerd.toml").read_text()


def test_programs_and_units_lie_where_kind_and_systemd_look(programs: dict[str, Path]) -> None:
    placed = recipe.placed(programs)
    assert placed["usr/local/bin/kubeadm"] == recipe.Placed(programs["kubeadm"], 0o755)
    assert placed["opt/cni/bin/bridge"].source == programs["bridge"]
    assert placed["etc/systemd/system/kubelet.service"].mode == 0o644
    assert placed["etc/containerd/config.toml"].source.name == "containerd.toml"
    assert {"kind/manifests/default-cni.yaml", "kind/manifests/default-storage.yaml"} <= set(placed)
    assert placed["usr/local/bin/entrypoint"].mode == 0o755
    assert "usr/local/bin/kube-apiserver" not in placed  # it is in an image of its own


def test_another_program_or_version_is_another_image(programs: dict[str, Path]) -> None:
    first = recipe.digest("v1.37.2", programs)
    assert recipe.digest("v1.37.2", programs) == first
    assert recipe.digest("v1.37.0", programs) != first
    programs["kubelet"].write_text("changed")
    assert recipe.digest("v1.37.2", programs) != first
