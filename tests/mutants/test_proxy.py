"""The proxy in front of a real TLS server: what arrives there, and what comes back to the client."""

from __future__ import annotations

import json
import socket
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import urllib3

from clusters import metrics
from clusters.interface import Cluster
from harness.kube import PODS, ApiError, KubeClient
from mutants.changes import (
    Ask,
    Judge,
    Mutant,
    Read,
    See,
    hide,
    ignore,
    metric,
    put,
    reword,
    rewrite,
)
from mutants.proxy import disguise
from tests.mutants.upstream import Said, Upstream, server_of

POD = "/api/v1/namespaces/space/pods/one"
PODS_PATH = "/api/v1/namespaces/space/pods"


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[Upstream]:
    server = Upstream(tmp_path / "cluster")
    yield server
    server.stop()


@contextmanager
def disguised(
    upstream: Upstream,
    *,
    asks: tuple[Ask, ...] = (),
    sees: tuple[See, ...] = (),
    judges: tuple[Judge, ...] = (),
    reads: tuple[Read, ...] = (),
) -> Iterator[Cluster]:
    mutant = Mutant("mutant", "", (), asks=asks, sees=sees, judges=judges, reads=reads)
    with disguise(upstream.cluster, mutant, upstream.cluster.directory) as cluster:
        yield cluster


def client_of(cluster: Cluster) -> KubeClient:
    return KubeClient.from_kubeconfig(cluster.kubeconfig, timeout=10)


def test_an_object_is_seen_changed(upstream: Upstream) -> None:
    upstream.answers[POD] = Said(body={"kind": "Pod", "spec": {"nodeName": "n1"}})
    with disguised(upstream, sees=(put("pods", "spec.nodeName", "n2"),)) as cluster:
        assert client_of(cluster).get(PODS, "one", "space") == {"kind": "Pod", "spec": {"nodeName": "n2"}}
    assert [(seen.method, seen.user) for seen in upstream.seen] == [("GET", "admin")]


def test_a_list_is_seen_changed_and_its_query_arrives(upstream: Upstream) -> None:
    pods = [{"metadata": {"name": name}} for name in "ab"]
    upstream.answers[PODS_PATH] = Said(body={"kind": "PodList", "items": pods})
    with disguised(upstream, sees=(hide("pods", lambda pod: pod["metadata"]["name"] == "a"),)) as cluster:
        assert client_of(cluster).list(PODS, "space", labels="x=y z") == pods[1:]
    assert [seen.path for seen in upstream.seen] == [f"{PODS_PATH}?labelSelector=x%3Dy+z"]


def test_what_is_written_arrives_changed_under_the_clients_name(upstream: Upstream) -> None:
    upstream.answers[PODS_PATH] = Said(201, {"kind": "Pod"})
    change = rewrite("pods", lambda pod: pod.update(spec="other"))
    with disguised(upstream, asks=(change,)) as cluster:
        client = client_of(cluster).acting_as("somebody", group="some")
        assert client.create(PODS, {"kind": "Pod", "spec": "this"}, "space") == {"kind": "Pod"}
    (seen,) = upstream.seen
    assert (seen.method, seen.path, seen.body) == ("POST", PODS_PATH, {"kind": "Pod", "spec": "other"})
    assert seen.headers["Impersonate-User"] == "somebody"
    assert seen.headers["Impersonate-Group"] == "some"


def test_a_patch_keeps_its_content_type(upstream: Upstream) -> None:
    upstream.answers[f"{POD}/status"] = Said(body={"kind": "Pod"})
    with disguised(upstream) as cluster:
        patch = [{"op": "remove", "path": "/status"}]
        kind = "application/json-patch+json"
        client_of(cluster).patch(PODS, "one", patch, "space", subresource="status", content_type=kind)
    (seen,) = upstream.seen
    assert (seen.method, seen.headers["Content-Type"], seen.body) == ("PATCH", kind, patch)


def test_what_is_ignored_does_not_arrive(upstream: Upstream) -> None:
    with disguised(upstream, asks=(ignore("create", "pods"),)) as cluster:
        assert client_of(cluster).create(PODS, {"kind": "Pod"}, "space") == {"kind": "Pod"}
    assert upstream.seen == []


def test_a_refusal_comes_back_as_one(upstream: Upstream) -> None:
    body = {"kind": "Status", "reason": "Forbidden", "message": "exceeded quota"}
    upstream.answers[PODS_PATH] = Said(403, body)
    with disguised(upstream) as cluster, pytest.raises(ApiError) as refusal:
        client_of(cluster).create(PODS, {"kind": "Pod"}, "space")
    assert (refusal.value.status, refusal.value.reason) == (403, "Forbidden")
    assert refusal.value.message == "exceeded quota"
    with disguised(upstream, judges=(reword("pods", "no"),)) as cluster, pytest.raises(ApiError) as reworded:
        client_of(cluster).create(PODS, {"kind": "Pod"}, "space")
    assert (reworded.value.status, reworded.value.message) == (403, "no")


def test_a_hidden_object_is_not_found(upstream: Upstream) -> None:
    upstream.answers[POD] = Said(body={"kind": "Pod"})
    with disguised(upstream, sees=(hide("pods"),)) as cluster:
        assert client_of(cluster).find(PODS, "one", "space") is None


def test_a_watch_is_seen_changed_event_by_event(upstream: Upstream) -> None:
    names = ["a", "b", "c"]
    events = [{"type": "ADDED", "object": {"metadata": {"name": name}, "spec": {}}} for name in names]
    lines = [json.dumps(event).encode() + b"\n" for event in events]
    # Lines don't end where chunks do.
    upstream.answers[PODS_PATH] = Said(stream=[lines[0] + lines[1][:9], lines[1][9:] + lines[2][:-1], b"\n"])
    sees = (hide("pods", lambda pod: pod["metadata"]["name"] == "b"), put("pods", "spec.nodeName", "n2"))
    with disguised(upstream, sees=sees) as cluster:
        watch = client_of(cluster).watch(PODS, "space", resource_version="7", seconds=10)
        upstream.go_on.release()
        # The stream is still open, and the event is here.
        assert next(watch)["object"] == {"metadata": {"name": "a"}, "spec": {"nodeName": "n2"}}
        upstream.go_on.release(2)
        assert [event["object"]["metadata"]["name"] for event in watch] == ["c"]
    (seen,) = upstream.seen
    assert seen.path == f"{PODS_PATH}?watch=true&timeoutSeconds=10&resourceVersion=7"


def test_a_watch_that_is_refused(upstream: Upstream) -> None:
    upstream.answers[PODS_PATH] = Said(410, {"kind": "Status", "reason": "Expired", "message": "too old"})
    with disguised(upstream) as cluster, pytest.raises(ApiError) as refusal:
        next(client_of(cluster).watch(PODS, "space", resource_version="1", seconds=10))
    assert (refusal.value.status, refusal.value.message) == (410, "too old")


def test_text_is_passed_on_byte_by_byte(upstream: Upstream) -> None:
    log = b"started \xff\xfe\n\tdone"
    upstream.answers[f"{POD}/log"] = Said(body=log, kind="text/plain")
    with disguised(upstream, sees=(put("pods", "spec", 1),)) as cluster:
        answer = urllib3.request("GET", f"{server_of(cluster.kubeconfig)}{POD}/log")
    assert (answer.data, answer.headers["Content-Type"]) == (log, "text/plain")


def test_metrics_of_components_are_changed(upstream: Upstream) -> None:
    for path in ("/metrics", "/scheduler/metrics"):
        upstream.answers[path] = Said(body=b'claims_total{a="b"} 3\n', kind="text/plain; version=0.0.4")
    with disguised(upstream, reads=(metric("claims_total", 7, "kube-scheduler"),)) as cluster:
        found = {
            component: metrics.total(metrics.read(cluster, client_of(cluster), component), "claims_total")
            for component in (metrics.APISERVER, metrics.SCHEDULER)
        }
    assert found == {metrics.APISERVER: 3, metrics.SCHEDULER: 7}
    assert sorted(seen.path for seen in upstream.seen) == ["/metrics", "/scheduler/metrics"]


def test_a_body_without_an_end_arrives_piece_by_piece(upstream: Upstream) -> None:
    upstream.answers[PODS_PATH] = Said(201, {"kind": "Pod"})

    def body() -> Iterator[bytes]:
        yield b'{"kind": '
        assert upstream.arrived.wait(10)  # before the rest is sent
        yield b'"Pod"}'

    with disguised(upstream) as cluster:
        client_of(cluster).request("POST", PODS_PATH, body=body())
    assert upstream.pieces == [b'{"kind": ', b'"Pod"}']
    assert upstream.seen[0].body == {"kind": "Pod"}


def test_an_upgraded_connection_is_passed_through(upstream: Upstream) -> None:
    with disguised(upstream) as cluster:
        url = urllib.parse.urlsplit(f"{server_of(cluster.kubeconfig)}{POD}/exec?command=ls")
        with socket.create_connection((url.hostname or "", url.port or 0), timeout=10) as connection:
            head = f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\n"
            connection.sendall(f"{head}Connection: Upgrade\r\nUpgrade: echo\r\n\r\n".encode())
            answer = _read_until(connection, b"\r\n\r\n")
            connection.sendall(b"hello")
            assert _read_until(connection, b"HELLO") == b"HELLO"
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert [(seen.path, seen.user) for seen in upstream.seen] == [(f"{POD}/exec?command=ls", "admin")]


def _read_until(connection: socket.socket, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        piece = connection.recv(1000)
        assert piece, data
        data += piece
    return data


def test_nobody_gets_through_without_the_secret(upstream: Upstream) -> None:
    upstream.answers[POD] = Said(body={"kind": "Pod"})
    with disguised(upstream) as cluster:
        address = server_of(cluster.kubeconfig)
        base, secret, component = address.rsplit("/", 2)
        assert len(secret) >= 20
        assert (component, urllib3.request("GET", address + POD).status) == ("kube-apiserver", 200)
        wrong = [f"{base}/{secret[:-1]}/{component}{POD}", f"{base}/{component}{POD}", f"{base}/", base]
        wrong += [f"{base}/{secret}/etcd{POD}", f"{base}/{secret}"]
        assert [urllib3.request("GET", url).status for url in wrong] == [404] * len(wrong)
    assert len(upstream.seen) == 1


def test_the_disguise_ends(upstream: Upstream) -> None:
    with disguised(upstream) as cluster:
        url = urllib.parse.urlsplit(server_of(cluster.kubeconfig))
        assert cluster.kubeconfig.stat().st_mode & 0o777 == 0o600
        assert url.hostname == "127.0.0.1"
        assert cluster.endpoints.keys() == upstream.cluster.endpoints.keys()
        assert cluster.driver_kubeconfig == upstream.cluster.driver_kubeconfig
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((url.hostname or "", url.port or 0), timeout=10)
