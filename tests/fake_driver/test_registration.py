"""The kubelet finds the driver, hears what it is, and finds it again after everything that happens."""

from __future__ import annotations

import stat
from collections.abc import Callable

import pytest
from fake_driver.node.plugin import socket_names

from harness.waiting import wait_until
from tests.fake_driver.conftest import DRIVER, NODE, Rig


def test_get_info_names_driver_endpoint_and_versions(rig: Rig) -> None:
    info = rig.kubelet().register()
    assert (info.type, info.name) == ("DRAPlugin", DRIVER)
    assert info.endpoint == f"/var/lib/kubelet/plugins/{DRIVER}/dra.sock"
    assert list(info.supported_versions) == [
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]


def test_only_configured_versions_are_offered(start: Callable[..., Rig]) -> None:
    rig = start(apiVersions=["v1beta1"], health={"enabled": False})
    assert list(rig.kubelet().register().supported_versions) == ["v1beta1.DRAPlugin"]


def test_status_shows_what_the_kubelet_said(rig: Rig) -> None:
    assert not rig.client.status().node(NODE).registered
    rig.kubelet().register()
    node = rig.client.status().node(NODE)
    assert (node.registered, node.registrations, node.registration_error) == (True, 1, "")
    rig.kubelet().register(error="already registered")
    node = rig.client.status().node(NODE)
    assert (node.registered, node.registrations, node.registration_error) == (False, 1, "already registered")


def test_sockets_are_private(rig: Rig) -> None:
    for path in (rig.kubelet().registry / f"{DRIVER}-reg.sock", rig.kubelet().plugin_dir / "dra.sock"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((rig.directory / "control.sock").stat().st_mode) == 0o600


def test_removed_sockets_come_back(rig: Rig) -> None:
    registration = rig.kubelet().registry / f"{DRIVER}-reg.sock"
    registration.unlink()
    wait_until(registration.exists, 60, "the registration socket to come back", interval=0.02)
    assert rig.kubelet().register().name == DRIVER


def test_a_folder_that_was_gone_for_a_while_gets_its_socket_again(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    registry = rig.kubelet().registry
    registry.rename(registry.with_name("away"))
    registry.symlink_to("nowhere")  # no folder can be made there
    wait_until(lambda: "can't serve there" in caplog.text, 60, "an attempt to fail", interval=0.02)
    registry.unlink()
    socket = registry / f"{DRIVER}-reg.sock"
    wait_until(socket.exists, 60, "the registration socket to come back", interval=0.02)
    assert rig.kubelet().register().name == DRIVER


def test_unregister_removes_only_the_registration_socket(rig: Rig) -> None:
    registration = rig.kubelet().registry / f"{DRIVER}-reg.sock"
    rig.kubelet().register()
    rig.client.unregister()
    assert not registration.exists()
    assert (rig.kubelet().plugin_dir / "dra.sock").exists()
    assert not rig.client.status().node(NODE).registered
    rig.client.register()
    assert rig.kubelet().register().name == DRIVER


def test_stop_removes_the_sockets(rig: Rig) -> None:
    rig.driver.stop()
    assert list(rig.kubelet().registry.iterdir()) == []
    assert not (rig.kubelet().plugin_dir / "dra.sock").exists()


@pytest.mark.parametrize(
    ("driver", "instance", "registration", "service"),
    [
        ("d.dev", None, "d.dev-reg.sock", "dra.sock"),
        ("d.dev", "pod-1", "d.dev-pod-1-reg.sock", "dra-pod-1.sock"),
    ],
)
def test_socket_names(driver: str, instance: str | None, registration: str, service: str) -> None:
    assert socket_names(driver, instance, "/var/lib/kubelet") == (registration, service)


def test_socket_names_of_long_instances_fit_the_kernels_limit() -> None:
    driver = "d" * 63
    instances = ["6e3a1f56-0a65-4c6e-b57b-8a8f39e0ab1c", "6e3a1f56-0a65-4c6e-b57b-8a8f39e0ab1d"]
    names = [socket_names(driver, instance, "/var/lib/kubelet") for instance in instances]
    for registration, service in names:
        assert len(f"/var/lib/kubelet/plugins_registry/{registration}") <= 107
        assert len(f"/var/lib/kubelet/plugins/{driver}/{service}") <= 107
    assert len({name for pair in names for name in pair}) == 4
