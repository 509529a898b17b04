"""What the control client sends through the API server's pod proxy, and what it makes of the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_driver.client import DriverClient, DriverError

from clusters.pod_proxy import PodProxyTransport
from harness.kube import KubeClient
from tests.harness.api_server import TOKEN, Server, write_config
from tests.harness.conftest import kube, serve, server

__all__ = ["kube", "serve", "server"]

CONTROL_TOKEN = "the-control-endpoint's-token"


@pytest.fixture
def client(kube: KubeClient) -> DriverClient:
    return DriverClient(PodProxyTransport(kube, "drivers", "driver-x7", 8080, CONTROL_TOKEN))


def test_the_request_goes_to_the_pods_port_with_both_credentials(
    client: DriverClient, server: Server
) -> None:
    server.answer(200, {"result": 7})
    assert client.clear_faults() == 7
    assert (server.last.method, server.last.path) == (
        "POST",
        "/api/v1/namespaces/drivers/pods/driver-x7:8080/proxy/clear-faults",
    )
    assert server.last.headers["authorization"] == f"Bearer {TOKEN}"
    assert server.last.headers["fake-driver-token"] == CONTROL_TOKEN
    assert (server.last.query, server.last.body) == ({"request": "{}"}, "")


def test_only_a_long_request_has_a_body_since_large_answers_get_lost_to_those_that_have(
    client: DriverClient, server: Server
) -> None:
    server.answer(200, {"result": []})
    client.calls(method="NodePrepareResources")
    assert server.last.path.endswith("/calls")
    assert json.loads(server.last.query["request"]) == {"method": "NodePrepareResources", "after": 0}
    assert server.last.body == ""

    server.answer(200, {"result": None})
    client.set_inventory({"devices": [{"name": "x" * 5000}]})
    assert (server.last.path.rpartition("/")[2], server.last.query) == ("set-inventory", {})
    assert json.loads(server.last.body)["inventory"] == {"devices": [{"name": "x" * 5000}]}


@pytest.mark.parametrize(
    ("status", "answer", "message"),
    [
        (400, {"error": "device: no such device"}, "^device: no such device$"),
        (401, {"error": "expected the control token"}, "^expected the control token$"),
        (
            503,
            {"kind": "Status", "reason": "ServiceUnavailable", "message": "no way to it"},
            "^pod drivers/driver-x7 port 8080: clear-calls: no answer: .*503 ServiceUnavailable: no way",
        ),
        (404, {"kind": "Status", "reason": "NotFound", "message": 'pods "driver-x7" not found'}, "not found"),
        (502, "<html>", "no answer: .*502"),
        (200, "<html>", "no answer"),
        (200, [1], "not an answer"),
    ],
)
def test_whose_refusal_it_is_can_be_told(
    client: DriverClient, server: Server, status: int, answer: Any, message: str
) -> None:
    server.answer(status, answer if not isinstance(answer, list) else "[1]")
    with pytest.raises(DriverError, match=message):
        client.clear_calls()


def test_an_api_server_that_is_not_there_is_the_clients_error(tmp_path: Path) -> None:
    kube = KubeClient.from_kubeconfig(write_config(tmp_path / "c", "http://127.0.0.1:1", {"token": "t"}))
    with pytest.raises(DriverError, match="pod a/b port 1: clear-calls: no answer"):
        DriverClient(PodProxyTransport(kube, "a", "b", 1, CONTROL_TOKEN)).clear_calls()


def test_the_token_is_not_in_its_text(kube: KubeClient) -> None:
    assert CONTROL_TOKEN not in repr(PodProxyTransport(kube, "a", "b", 1, CONTROL_TOKEN))
