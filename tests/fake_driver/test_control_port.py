"""The control endpoint on a TCP port: only for holders of the token, and never more than asked for."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_driver.client import DriverClient, DriverError
from fake_driver.config import load_config
from fake_driver.control.config import ControlConfig
from fake_driver.control.listeners import MAX_BODY
from fake_driver.control.server import ControlServer
from fake_driver.deviceplugin.config import load_plugin_config
from fake_driver.driver import Driver
from fake_driver.errors import ConfigError, StartError
from fake_driver.strict import Message
from fake_driver.transports import TcpTransport

from tests.fake_driver.conftest import NODE, Rig
from tests.fake_driver.test_config_errors import GOOD

TOKEN = "a-token-of-more-than-16-characters"
Serve = Callable[..., ControlServer]
Ask = Callable[..., tuple[int, Any]]


class Echo(Message):
    """A request."""

    text: str = ""


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


@pytest.fixture
def serve(token_file: Path) -> Iterator[Serve]:
    started: list[ControlServer] = []

    def start(**settings: Any) -> ControlServer:
        config = ControlConfig.model_validate({"port": 0, "tokenFile": token_file, **settings}, by_alias=True)
        server = ControlServer(config, {"echo": (Echo, lambda request: request.text)}, ())
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def ask(serve: Serve) -> Ask:
    """Sends one request to a new server, and returns the status and the answer."""
    server = serve()
    assert server.address

    def request(
        method: str = "POST", path: str = "/echo", body: Any = b'{"text": "hi"}', **headers: str
    ) -> tuple[int, Any]:
        assert server.address
        with closing(http.client.HTTPConnection(*server.address, timeout=60)) as connection:
            sent = {name.replace("_", "-"): each for name, each in headers.items()}
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            assert response.getheader("Connection") == "close"
            return response.status, json.loads(response.read())

    return request


def test_the_token_opens_it(ask: Ask) -> None:
    assert ask(Fake_Driver_Token=TOKEN) == (200, {"result": "hi"})


def test_a_request_without_a_body_has_it_in_its_url(ask: Ask) -> None:
    url = "/echo?request=%7B%22text%22%3A%22%C3%A4%3F%26%2B%22%7D"
    assert ask(path=url, body=b"", Fake_Driver_Token=TOKEN) == (200, {"result": "\u00e4?&+"})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Fake_Driver_Token": ""},
        {"Fake_Driver_Token": TOKEN[:-1]},
        {"Fake_Driver_Token": TOKEN + "x"},
        {"Fake_Driver_Token": TOKEN.upper()},
        {"Fake_Driver_Token": "\xe4" * 20},
        {"Authorization": f"Bearer {TOKEN}"},
    ],
)
def test_nothing_else_does(ask: Ask, headers: dict[str, str]) -> None:
    expected = {"error": "expected the control token in the header Fake-Driver-Token"}
    assert ask(**headers) == (401, expected)


def test_without_the_token_the_body_is_not_even_read(ask: Ask) -> None:
    status, _ = ask(body=b"", Content_Length=str(MAX_BODY))  # which never comes
    assert status == 401


def test_a_refusal_reaches_whoever_is_still_sending(ask: Ask) -> None:
    assert ask(body=b" " * 2 * MAX_BODY)[0] == 401
    assert ask(body=b" " * 2 * MAX_BODY, Fake_Driver_Token=TOKEN)[0] == 413


@pytest.mark.parametrize(
    ("length", "status", "error"),
    [
        (str(MAX_BODY + 1), 413, "expected at most 4194304 bytes"),
        ("-1", 411, "expected a Content-Length"),
        ("some", 411, "expected a Content-Length"),
    ],
)
def test_the_body_is_limited(ask: Ask, length: str, status: int, error: str) -> None:
    assert ask(body=b"", Content_Length=length, Fake_Driver_Token=TOKEN) == (status, {"error": error})


def test_a_body_without_a_length_is_refused(ask: Ask) -> None:
    chunks = iter([b'{"text": ', b'"hi"}'])
    assert ask(body=chunks, Fake_Driver_Token=TOKEN, Transfer_Encoding="chunked")[0] == 411


def test_a_token_that_changes_needs_no_restart(ask: Ask, token_file: Path) -> None:
    assert ask(Fake_Driver_Token=TOKEN)[0] == 200
    token_file.write_text("another-token-of-enough-characters")
    assert ask(Fake_Driver_Token=TOKEN)[0] == 401
    assert ask(Fake_Driver_Token="another-token-of-enough-characters")[0] == 200
    token_file.unlink()
    assert ask(Fake_Driver_Token="another-token-of-enough-characters")[0] == 401


@pytest.mark.parametrize("content", ["", "\n", "short", None])
def test_a_token_that_can_be_guessed_is_refused_at_the_start(
    serve: Serve, token_file: Path, content: str | None
) -> None:
    if content is None:
        token_file.unlink()
    else:
        token_file.write_text(content)
    with pytest.raises(ConfigError, match=r"^control\.tokenFile: .*token"):
        serve()


def test_a_token_that_becomes_empty_opens_nothing(ask: Ask, token_file: Path) -> None:
    token_file.write_text("")
    assert ask(Fake_Driver_Token="")[0] == 401


def test_readiness_is_told_to_everybody(serve: Serve) -> None:
    server = serve()
    assert server.address

    def probe(path: str) -> tuple[int, Any]:
        assert server.address
        connection = http.client.HTTPConnection(*server.address, timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        return response.status, answer

    assert probe("/readyz") == (503, {"ready": False})
    server.ready.set()
    assert probe("/readyz") == (200, {"ready": True})
    assert probe("/echo")[0] == 404


def test_a_port_that_is_taken_is_one_clear_error(serve: Serve) -> None:
    first = serve()
    assert first.address
    with pytest.raises(
        StartError, match=f"port {first.address[1]}: can't serve the control endpoint there: "
    ):
        serve(port=first.address[1])


def test_more_clients_than_there_is_room_for_are_hung_up_on(serve: Serve) -> None:
    server = serve()
    assert server.address
    silent = [socket.create_connection(server.address, timeout=60) for _ in range(64)]
    try:
        with socket.create_connection(server.address, timeout=60) as one_more:
            assert one_more.recv(1) == b""
    finally:
        for each in silent:
            each.close()


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "example.com", ""])
def test_it_listens_on_one_address_only(tmp_path: Path, address: str) -> None:
    control = {"port": 1, "tokenFile": "/t", "address": address}
    (tmp_path / "d.yaml").write_text(yaml.safe_dump({**GOOD, "control": control}))
    with pytest.raises(ConfigError, match=r"control\.address: expected a loopback address or the pod's own"):
        load_config(tmp_path / "d.yaml")


@pytest.mark.parametrize(
    ("control", "message"),
    [
        ({}, "control: expected socket, or port and tokenFile"),
        ({"port": 8080}, "control: expected port and tokenFile together"),
        ({"socket": "/s", "tokenFile": "/t"}, "control: expected port and tokenFile together"),
        ({"port": 65536, "tokenFile": "/t"}, "control.port: input should be less than or equal to 65535"),
    ],
)
def test_half_a_configuration_is_an_error(tmp_path: Path, control: dict[str, Any], message: str) -> None:
    (tmp_path / "d.yaml").write_text(yaml.safe_dump({**GOOD, "control": control}))
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "d.yaml")
    assert message in str(caught.value)


def test_a_pod_knows_its_node_and_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "node-7")
    monkeypatch.setenv("POD_IP", "10.1.2.3")
    control = {"port": 8080, "tokenFile": "/t"}
    driver, plugin = tmp_path / "d.yaml", tmp_path / "p.yaml"
    driver.write_text(
        yaml.safe_dump({**GOOD, "nodes": [{"kubeletDir": "/k", "cdiDir": "/c"}], "control": control})
    )
    plugin.write_text(
        yaml.safe_dump({"resource": "a.b/c", "nodes": [{"kubeletDir": "/k"}], "control": control})
    )
    for config in (load_config(driver), load_plugin_config(plugin)):
        assert [node.name for node in config.nodes] == ["node-7"]
        assert config.control.address == "10.1.2.3"


def test_what_is_configured_goes_before_what_the_pod_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "node-7")
    monkeypatch.setenv("POD_IP", "10.1.2.3")
    control = {"port": 8080, "tokenFile": "/t", "address": "127.0.0.1"}
    (tmp_path / "d.yaml").write_text(yaml.safe_dump({**GOOD, "control": control}))
    config = load_config(tmp_path / "d.yaml")
    assert (config.nodes[0].name, config.control.address) == ("n", "127.0.0.1")


def test_two_nodes_cannot_both_be_the_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "node-7")
    nodes = [{"kubeletDir": "/k", "cdiDir": "/c"}] * 2
    (tmp_path / "d.yaml").write_text(yaml.safe_dump({**GOOD, "nodes": nodes}))
    with pytest.raises(ConfigError, match=r"nodes\.0\.name: is required"):
        load_config(tmp_path / "d.yaml")


def test_the_whole_client_works_through_the_port(
    start: Callable[..., Rig], tmp_path: Path, token_file: Path
) -> None:
    rig = start(control={"socket": str(tmp_path / "control.sock"), "port": 0, "tokenFile": str(token_file)})
    assert isinstance(rig.driver, Driver)
    assert rig.control.address
    client = DriverClient(TcpTransport(*rig.control.address, TOKEN))
    assert client.status() == rig.client.status()
    with pytest.raises(DriverError, match=f"device: node {NODE} has no device 'nope'"):
        client.set_health("nope", "Unhealthy")
    stranger = DriverClient(TcpTransport(*rig.control.address, "not-the-token"))
    with pytest.raises(DriverError, match="expected the control token"):
        stranger.status()
