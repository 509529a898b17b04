"""What `KubeClient` sends, and what it makes of the answers."""

from __future__ import annotations

import json

import pytest

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
)
from tests.harness.api_server import TOKEN, Server, status


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
    server.answer(201, obj)
    kube.create(PODS, obj, "ns", dry_run=True, strict=True)
    assert server.last.query == {"dryRun": "All", "fieldValidation": "Strict"}
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
    assert json.loads(server.last.body) == {"gracePeriodSeconds": 0}
    server.answer(409, status(409, "Conflict", "busy"))
    with pytest.raises(ApiError, match="409 Conflict"):
        kube.delete(PODS, "a", "ns")


def test_only_what_was_created_is_deleted_not_another_of_its_name(kube: KubeClient, server: Server) -> None:
    pod = {"metadata": {"name": "a"}}
    server.answer(201, {"metadata": {"name": "a", "uid": "1"}})
    kube.create(PODS, pod, "ns")
    server.answer(200, {"metadata": {"name": "a", "uid": "2"}})
    kube.create(PODS, pod, "ns", dry_run=True)
    replaced = "the UID in the precondition (1) does not match the UID in record (3). The object might have"
    server.answer(409, status(409, "Conflict", replaced))
    kube.delete(PODS, "a", "ns", grace_seconds=1)
    assert json.loads(server.last.body) == {"gracePeriodSeconds": 1, "preconditions": {"uid": "1"}}
    server.answer(200, {})
    kube.delete(PODS, "a", "ns", uid="4")
    assert json.loads(server.last.body) == {"preconditions": {"uid": "4"}}
    server.answer(409, status(409, "Conflict", "busy"))
    with pytest.raises(ApiError, match="busy"):
        kube.delete(PODS, "a", "ns")
    server.answer(200, {})
    kube.sharing().delete(PODS, "a", "ns")
    assert server.last.body == ""  # what another client created is not known


def test_what_was_to_be_created_is_known_also_if_it_was_refused(kube: KubeClient, server: Server) -> None:
    server.answer(403, status(403, "Forbidden", "quota"))
    with pytest.raises(ApiError):
        kube.create(PODS, {"metadata": {"name": "a"}}, "ns")
    server.answer(200, {"metadata": {}})
    kube.create(PODS, {"metadata": {"name": "b"}}, "ns", dry_run=True)
    assert (kube.attempted, kube.created) == ({"/api/v1/namespaces/ns/pods/a"}, {})


def test_a_path_may_have_nothing(kube: KubeClient, server: Server) -> None:
    server.answer(200, {"versions": []})
    assert kube.read("/apis/resource.k8s.io") == {"versions": []}
    server.answer(404, status(404, "NotFound", "no"))
    assert kube.read("/apis/resource.k8s.io") is None
    server.answer(403, status(403, "Forbidden", "no"))
    with pytest.raises(ApiError):
        kube.read("/apis/resource.k8s.io")


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
