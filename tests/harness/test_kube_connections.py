"""To whom `KubeClient` connects, and as whom."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusters.local.pki import CertificateAuthority, write_kubeconfig
from harness.connection import _is_loopback
from harness.errors import UsageError
from harness.kube import (
    NODES,
    PODS,
    ApiError,
    KubeClient,
)
from tests.harness.api_server import PROXY_VARIABLES, TOKEN, Server, write_config


def test_another_context_is_another_user(server: Server, tmp_path: Path) -> None:
    path = write_config(tmp_path / "config", server.url, {"token": TOKEN})
    kube = KubeClient.from_kubeconfig(path, "anonymous")
    server.answer(200, {})
    kube.get(NODES, "n")
    assert "authorization" not in server.last.headers
    kube.connection.api.rest_client.pool_manager.clear()


def test_a_client_certificate_is_shown_and_the_server_verified(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    authority = CertificateAuthority.create(tmp_path / "pki")
    certificate, key = authority.issue("server", "server", hosts=("127.0.0.1",))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    server = serve(context)
    client_certificate, client_key = authority.issue("client", "somebody")
    path = write_kubeconfig(
        tmp_path / "config",
        server=server.url,
        ca=authority.certificate,
        certificate=client_certificate,
        key=client_key,
        name="c",
    )
    kube = KubeClient.from_kubeconfig(path)
    server.answer(200, {"gitVersion": "v1.37.2"})
    assert kube.version() == "v1.37.2"
    assert server.last.peer == "somebody"
    kube.connection.api.rest_client.pool_manager.clear()

    stranger = CertificateAuthority.create(tmp_path / "other")
    foreign = write_kubeconfig(
        tmp_path / "foreign",
        server=server.url,
        ca=stranger.certificate,
        certificate=client_certificate,
        key=client_key,
        name="c",
    )
    with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
        KubeClient.from_kubeconfig(foreign).version()


NOT_BASE64 = {"client-certificate-data": "%%%", "client-key-data": "x"}


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "just text",
        "- a\n- b\n",
        "a: [\n",
        "\tx: 1",
        "clusters: []\n",
        "apiVersion: v1\nkind: Config\ncurrent-context: gone\ncontexts: []\nclusters: []\nusers: []\n",
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [1]\nclusters: []\nusers: []\n",
        "apiVersion: v1\nkind: Config\ncurrent-context: 7\ncontexts: 7\nclusters: []\nusers: []\n",
        b"\xff\xfe\x00",
        NOT_BASE64,
    ],
)
def test_a_bad_kubeconfig_is_the_users_error_and_named(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "config"
    if isinstance(content, dict):
        write_config(path, "https://127.0.0.1:1", content)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.write_text(content)
    with pytest.raises(UsageError) as raised:
        KubeClient.from_kubeconfig(path)
    assert str(raised.value).startswith(f"{path}: not a usable kubeconfig: ")


def test_an_unknown_context_is_the_users_error(tmp_path: Path) -> None:
    path = write_config(tmp_path / "config", "https://127.0.0.1:1", {"token": TOKEN})
    with pytest.raises(UsageError, match=r"config: not a usable kubeconfig: .*nowhere"):
        KubeClient.from_kubeconfig(path, "nowhere")


def test_a_server_on_this_machine_is_not_reached_through_a_proxy(
    serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, proxy = serve(), serve()
    server.answer(200, {"gitVersion": "v1.37.2"})
    for variable in PROXY_VARIABLES:
        monkeypatch.setenv(variable, proxy.url)
    client = KubeClient.from_kubeconfig(write_config(tmp_path / "config", server.url, {"token": TOKEN}))
    assert client.version() == "v1.37.2"
    assert (len(server.requests), proxy.requests) == (1, [])
    client.connection.api.rest_client.pool_manager.clear()


def test_a_server_elsewhere_is_reached_through_the_proxy(
    serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve()
    proxy.answer(200, {"gitVersion": "v1.37.2"})
    for variable in PROXY_VARIABLES:
        monkeypatch.setenv(variable, proxy.url)
    config = write_config(tmp_path / "config", "http://cluster.invalid", {"token": TOKEN})
    client = KubeClient.from_kubeconfig(config)
    assert client.version() == "v1.37.2"
    assert proxy.last.headers["host"] == "cluster.invalid"
    client.connection.api.rest_client.pool_manager.clear()


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("https://127.0.0.1:6443", True),
        ("https://127.8.0.1", True),
        ("https://[::1]:6443", True),
        ("https://localhost:6443", True),
        ("https://198.18.0.1", False),
        ("https://localhost.example", False),
        ("https://127.0.0.1.example", False),
        ("", False),
    ],
)
def test_which_servers_are_on_this_machine(url: str, loopback: bool) -> None:
    assert _is_loopback(url) is loopback


def test_a_client_acts_as_somebody_else(kube: KubeClient, server: Server) -> None:
    for _ in range(3):
        server.answer(200, {"items": []})
    kube.acting_as("jane", group="teams").list(PODS)
    kube.acting_as("joe").list(PODS)
    kube.list(PODS)
    told = [
        {name: value for name, value in request.headers.items() if name.startswith("impersonate")}
        for request in server.requests
    ]
    assert told == [
        {"impersonate-user": "jane", "impersonate-group": "teams"},
        {"impersonate-user": "joe"},
        {},
    ]
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {TOKEN}"}


def test_a_command_that_can_not_be_run_is_refused(
    kube: KubeClient, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in PROXY_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    server.answer(404, {"reason": "NotFound", "message": "no pod p"})
    with pytest.raises(ApiError, match=r"^EXEC /api/v1/namespaces/ns/pods/p/exec: .*404 Not Found.*no pod p"):
        kube.exec("ns", "p", "main", ["cat", "/x y"])
    assert server.last.path == "/api/v1/namespaces/ns/pods/p/exec"
    assert server.last.query["container"] == "main"
