"""`KubeClient` against a real HTTP server on loopback, which records its requests and answers as told."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.local.pki import CertificateAuthority, write_kubeconfig
from harness.errors import UsageError
from harness.kube import (
    APPLY_PATCH,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    JSON_PATCH,
    MERGE_PATCH,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STRATEGIC_PATCH,
    ApiError,
    KubeClient,
    _is_loopback,
)

TOKEN = "t0ken-of-a-user"
PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: str
    peer: str = ""
    """Common name of the client's certificate."""


@dataclass
class Server:
    url: str = ""
    answers: list[tuple[int, Any]] = field(default_factory=list)
    """Status and body, one per request; a list of bytes is sent as chunks."""
    requests: list[Request] = field(default_factory=list)

    def answer(self, status: int, body: Any) -> None:
        self.answers.append((status, body))

    @property
    def last(self) -> Request:
        return self.requests[-1]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Server

    def log_message(self, *args: object) -> None:
        pass

    def handle_request(self) -> None:
        split = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        peer = ""
        if isinstance(self.connection, ssl.SSLSocket):
            subject: Any = (self.connection.getpeercert() or {}).get("subject", ())
            peer = dict(pair for part in subject for pair in part).get("commonName", "")
        query = dict(urllib.parse.parse_qsl(split.query))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.state.requests.append(Request(self.command, split.path, query, headers, body, peer))
        status, answer = self.state.answers.pop(0)
        self.send_response(status)
        if isinstance(answer, list):
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in answer:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        else:
            content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_request


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    started: list[tuple[http.server.ThreadingHTTPServer, threading.Thread]] = []

    def start(context: ssl.SSLContext | None = None) -> Server:
        state = Server()
        handler = type("BoundHandler", (Handler,), {"state": state})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        state.url = f"http{'s' if context else ''}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        started.append((server, thread))
        return state

    yield start
    for server, thread in started:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    return serve()


def write_config(path: Path, server: str, user: dict[str, Any], **cluster: Any) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "anonymous", "context": {"cluster": "c", "user": ""}},
        ],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def kube(server: Server, tmp_path: Path) -> Iterator[KubeClient]:
    client = KubeClient.from_kubeconfig(write_config(tmp_path / "config", server.url, {"token": TOKEN}))
    yield client
    client._api.rest_client.pool_manager.clear()


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


def test_an_object_is_read_from_its_path_with_the_users_token(kube: KubeClient, server: Server) -> None:
    claim = {"metadata": {"name": "a"}, "futureField": {"x": [1, None]}}
    server.answer(200, claim)
    assert kube.get(RESOURCE_CLAIMS, "a", "ns") == claim
    assert (server.last.method, server.last.path) == (
        "GET",
        "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/a",
    )
    assert server.last.headers["authorization"] == f"Bearer {TOKEN}"
    assert server.last.headers["accept"] == "application/json"
    assert server.last.headers["user-agent"] == "dra-harness"
    assert "content-type" not in server.last.headers


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("ns"), "/api/v1/namespaces/ns/pods"),
        (PODS.path("ns", "p", "log"), "/api/v1/namespaces/ns/pods/p/log"),
        (NODES.path("ns", "n"), "/api/v1/nodes/n"),
        (NODES.path(None, "n", "status"), "/api/v1/nodes/n/status"),
        (DEPLOYMENTS.path("ns", "d"), "/apis/apps/v1/namespaces/ns/deployments/d"),
        (CLUSTER_ROLES.path(None, "r"), "/apis/rbac.authorization.k8s.io/v1/clusterroles/r"),
        (RESOURCE_SLICES.path(), "/apis/resource.k8s.io/v1/resourceslices"),
    ],
)
def test_paths_of_resources(path: str, expected: str) -> None:
    assert path == expected


def test_a_refusal_carries_status_reason_and_message(kube: KubeClient, server: Server) -> None:
    server.answer(403, status(403, "Forbidden", "pods is forbidden: exceeded quota"))
    with pytest.raises(ApiError) as raised:
        kube.create(PODS, {"metadata": {"name": "a"}}, "ns")
    error = raised.value
    assert (error.status, error.reason, error.message) == (
        403,
        "Forbidden",
        "pods is forbidden: exceeded quota",
    )
    assert str(error) == ("POST /api/v1/namespaces/ns/pods: 403 Forbidden: pods is forbidden: exceeded quota")


@pytest.mark.parametrize("body", ["upstream down", "", "[1]", '"text"'])
def test_a_refusal_without_a_status_object_keeps_the_body(
    kube: KubeClient, server: Server, body: str
) -> None:
    server.answer(502, body)
    with pytest.raises(ApiError) as raised:
        kube.get(NODES, "n")
    assert (raised.value.status, raised.value.reason, raised.value.message) == (502, "", body)


def test_find_gives_none_for_what_is_not_there_only(kube: KubeClient, server: Server) -> None:
    server.answer(404, status(404, "NotFound", "no"))
    assert kube.find(PODS, "a", "ns") is None
    server.answer(200, {"metadata": {"name": "a"}})
    assert kube.find(PODS, "a", "ns") == {"metadata": {"name": "a"}}
    server.answer(500, status(500, "InternalError", "etcd"))
    with pytest.raises(ApiError, match="500 InternalError: etcd"):
        kube.find(PODS, "a", "ns")


def test_a_refused_request_is_not_sent_again(kube: KubeClient, server: Server) -> None:
    server.answer(503, status(503, "ServiceUnavailable", "later"))
    with pytest.raises(ApiError):
        kube.get(NODES, "n")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        ({}, {}),
        ({"labels": "a=b,c!=d"}, {"labelSelector": "a=b,c!=d"}),
        ({"fields": "spec.driver=x/y"}, {"fieldSelector": "spec.driver=x/y"}),
        (
            {"labels": "a in (b, c)", "fields": "f=1"},
            {"labelSelector": "a in (b, c)", "fieldSelector": "f=1"},
        ),
    ],
)
def test_lists_select(
    kube: KubeClient, server: Server, arguments: dict[str, str], query: dict[str, str]
) -> None:
    server.answer(200, {"kind": "PodList", "items": [{"a": 1}, {"a": 2}]})
    assert kube.list(PODS, "ns", **arguments) == [{"a": 1}, {"a": 2}]
    assert (server.last.path, server.last.query) == ("/api/v1/namespaces/ns/pods", query)


def test_a_list_without_namespace_is_over_all(kube: KubeClient, server: Server) -> None:
    server.answer(200, {"items": []})
    assert kube.list(PODS) == []
    assert server.last.path == "/api/v1/pods"


@pytest.mark.parametrize(("limit", "query"), [(0, {}), (1, {"limit": "1"})])
def test_metadata_comes_alone_and_with_how_many_there_are_besides(
    kube: KubeClient, server: Server, limit: int, query: dict[str, str]
) -> None:
    server.answer(200, {"metadata": {"remainingItemCount": 7}, "items": [{"metadata": {"name": "a"}}]})
    assert kube.metadata(PODS, "ns", limit=limit) == ([{"name": "a"}], 7)
    assert (server.last.path, server.last.query) == ("/api/v1/namespaces/ns/pods", query)
    assert ";as=PartialObjectMetadataList;" in server.last.headers["accept"]
    server.answer(200, {"metadata": {}, "items": None})
    assert kube.metadata(PODS) == ([], 0)


def test_what_is_created_and_replaced_is_sent_as_json(kube: KubeClient, server: Server) -> None:
    obj = {"metadata": {"name": "a"}, "spec": {"x": "é"}}
    server.answer(201, {**obj, "stored": True})
    assert kube.create(PODS, obj, "ns") == {**obj, "stored": True}
    assert (server.last.method, server.last.path, server.last.query) == (
        "POST",
        "/api/v1/namespaces/ns/pods",
        {},
    )
    assert json.loads(server.last.body) == obj
    assert server.last.headers["content-type"] == "application/json"
    server.answer(201, obj)
    kube.create(PODS, obj, "ns", dry_run=True)
    assert server.last.query == {"dryRun": "All"}
    server.answer(200, obj)
    kube.replace(PODS, obj, "ns", subresource="status")
    assert (server.last.method, server.last.path) == ("PUT", "/api/v1/namespaces/ns/pods/a/status")
    assert json.loads(server.last.body) == obj


@pytest.mark.parametrize("content_type", [None, MERGE_PATCH, STRATEGIC_PATCH, JSON_PATCH, APPLY_PATCH])
def test_a_patch_says_of_which_kind_it_is(kube: KubeClient, server: Server, content_type: str | None) -> None:
    server.answer(200, {"metadata": {}})
    more = {"content_type": content_type} if content_type else {}
    kube.patch(PODS, "a", {"x": None}, "ns", subresource="status", query={"fieldManager": "me"}, **more)
    assert (server.last.method, server.last.path) == ("PATCH", "/api/v1/namespaces/ns/pods/a/status")
    assert server.last.headers["content-type"] == content_type or "application/merge-patch+json"
    assert json.loads(server.last.body) == {"x": None}
    assert server.last.query == {"fieldManager": "me"}


def test_text_is_sent_as_it_is(kube: KubeClient, server: Server) -> None:
    server.answer(200, {})
    kube.patch(PODS, "a", "metadata: {}\n", "ns", content_type=APPLY_PATCH)
    assert server.last.body == "metadata: {}\n"


def test_deleting_what_is_gone_is_fine(kube: KubeClient, server: Server) -> None:
    server.answer(404, status(404, "NotFound", "no"))
    kube.delete(PODS, "a", "ns")
    assert (server.last.method, server.last.query) == ("DELETE", {})
    server.answer(200, {})
    kube.delete(PODS, "a", "ns", grace_seconds=0)
    assert server.last.query == {"gracePeriodSeconds": "0"}
    server.answer(409, status(409, "Conflict", "busy"))
    with pytest.raises(ApiError, match="409 Conflict"):
        kube.delete(PODS, "a", "ns")


def test_logs_metrics_and_version_are_text(kube: KubeClient, server: Server) -> None:
    server.answer(200, "line\né\n")
    assert kube.logs("ns", "p", "main", previous=True) == "line\né\n"
    assert server.last.path == "/api/v1/namespaces/ns/pods/p/log"
    assert server.last.query == {"container": "main", "previous": "true"}
    assert server.last.headers["accept"] == "*/*"
    server.answer(200, "metric 1\n")
    assert kube.metrics() == "metric 1\n"
    assert server.last.path == "/metrics"
    server.answer(200, {"gitVersion": "v1.37.2", "major": "1"})
    assert kube.version() == "v1.37.2"


@pytest.mark.parametrize("code", [200, 403])
def test_the_headers_of_an_answer_are_read_whatever_its_status(
    kube: KubeClient, server: Server, code: int
) -> None:
    server.answer(code, {})
    headers = {name.lower() for name in kube.headers("/api/v1/pods")}
    assert "content-length" in headers
    assert (server.last.method, server.last.path) == ("GET", "/api/v1/pods")
    server.answer(200, "ok")
    assert kube.request("GET", "/readyz", accept="*/*") == "ok"  # and the connection goes on


STREAM = [
    {"type": "ADDED", "object": {"n": "é"}},
    {"type": "BOOKMARK", "object": {}},
    {"type": "DELETED", "n": 3},
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_watch_events_arrive_whole_however_they_are_cut(kube: KubeClient, server: Server, size: int) -> None:
    whole = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in STREAM).encode()
    server.answer(200, [whole[n : n + size] for n in range(0, len(whole), size)])
    assert list(kube.watch(PODS, "ns", seconds=30)) == STREAM


def test_a_watch_asks_for_what_it_was_told(kube: KubeClient, server: Server) -> None:
    server.answer(200, [])
    assert list(kube.watch(PODS, seconds=0.5, resource_version="7", fields="f=1", labels="l=2")) == []
    assert server.last.path == "/api/v1/pods"
    assert server.last.query == {
        "watch": "true",
        "timeoutSeconds": "1",
        "resourceVersion": "7",
        "fieldSelector": "f=1",
        "labelSelector": "l=2",
    }
    assert server.last.headers["authorization"] == f"Bearer {TOKEN}"


def test_a_refused_watch_is_an_api_error(kube: KubeClient, server: Server) -> None:
    server.answer(410, status(410, "Expired", "too old resource version"))
    with pytest.raises(ApiError, match="410 Expired: too old resource version"):
        next(kube.watch(PODS, seconds=5))


def test_another_context_is_another_user(server: Server, tmp_path: Path) -> None:
    path = write_config(tmp_path / "config", server.url, {"token": TOKEN})
    kube = KubeClient.from_kubeconfig(path, "anonymous")
    server.answer(200, {})
    kube.get(NODES, "n")
    assert "authorization" not in server.last.headers
    kube._api.rest_client.pool_manager.clear()


def test_a_client_certificate_is_shown_and_the_server_verified(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    authority = CertificateAuthority(tmp_path / "pki")
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
    kube._api.rest_client.pool_manager.clear()

    stranger = CertificateAuthority(tmp_path / "other")
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
    client._api.rest_client.pool_manager.clear()


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
    client._api.rest_client.pool_manager.clear()


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
