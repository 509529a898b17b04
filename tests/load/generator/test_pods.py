from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from load.arrivals import Arrival
from load.generator.access import Access
from load.generator.pods import PodRequests
from load.model import PodKind
from tests.load.generator.running import orders

ACCESS = Access(
    host="127.0.0.1", port=6443, tls=None, server_name="127.0.0.1", check_name=True, authorization="Bearer t"
)
KIND = PodKind(
    name="template",
    weight=1,
    claims=1,
    namespaces=["one", "two"],
    manifest={
        "metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}},
        "spec": {"containers": [{"name": "main"}]},
    },
)


def parsed(request: bytes) -> tuple[str, dict[str, str], Any]:
    """As a server reads it."""
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert len(body) == int(headers.get("Content-Length", "0"))
    return first, headers, json.loads(body) if body else None


def made(tmp_path: Path, **changed: Any) -> PodRequests:
    return PodRequests(orders(tmp_path, "http://127.0.0.1:1", kinds=[KIND], **changed), ACCESS, worker=3)


def test_a_create_is_the_manifest_with_name_and_labels(tmp_path: Path) -> None:
    requests = made(tmp_path)

    for name, namespace in (("pod-1", "one"), ("a-much-longer-name-1000000", "two"), ("pod-2", "one")):
        first, headers, body = parsed(requests.create(Arrival(0.0, name, namespace, KIND)))

        assert first == f"POST /api/v1/namespaces/{namespace}/pods?fieldManager=dra-harness-load HTTP/1.1"
        assert headers["Host"] == "127.0.0.1:6443"
        assert headers["Authorization"] == "Bearer t"
        assert headers["Accept"].startswith("application/json;as=PartialObjectMetadata")
        assert body == {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {"app": "x", "dra-harness.dev/run": "test-run", "dra-harness.dev/worker": "3"},
                "annotations": {"a": "b"},
            },
            "spec": {"containers": [{"name": "main"}]},
        }


def test_a_probe_stores_nothing(tmp_path: Path) -> None:
    first, _, body = parsed(made(tmp_path).probe(KIND, "one", "probe-0"))

    assert "dryRun=All" in first
    assert body["metadata"]["name"] == "probe-0"


def test_a_delete_says_how_long_the_pod_may_take(tmp_path: Path) -> None:
    first, headers, body = parsed(made(tmp_path).delete("one", "pod-1"))

    assert first == "DELETE /api/v1/namespaces/one/pods/pod-1?gracePeriodSeconds=0 HTTP/1.1"
    assert "Content-Length" not in headers
    assert body is None


def test_the_grace_period_may_be_the_servers(tmp_path: Path) -> None:
    first, _, _ = parsed(made(tmp_path, delete_grace_seconds=None).delete("one", "pod-1"))

    assert first == "DELETE /api/v1/namespaces/one/pods/pod-1 HTTP/1.1"
