"""What a request is about, by its method, path and query."""

from __future__ import annotations

import pytest

from mutants.changes import parse_path

CORE = "/api/v1/namespaces/space"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/space/resourceclaims"

# method, path, query -> verb, resource, subresource, namespace, name
PATHS = [
    ("GET", f"{CORE}/pods", {}, "list pods  space "),
    ("GET", f"{CORE}/pods/one", {}, "get pods  space one"),
    ("GET", "/api/v1/pods", {"watch": "true"}, "watch pods   "),
    ("GET", "/api/v1/pods", {"watch": "false"}, "list pods   "),
    ("GET", f"{CORE}/pods/one/log", {"container": "main"}, "get pods log space one"),
    ("POST", f"{CORE}/pods", {}, "create pods  space "),
    ("POST", f"{CORE}/pods/one/exec", {}, "create pods exec space one"),
    ("PUT", f"{CORE}/pods/one/status", {}, "update pods status space one"),
    ("PATCH", f"{CORE}/pods/one/ephemeralcontainers", {}, "patch pods ephemeralcontainers space one"),
    ("GET", "/api/v1/nodes", {}, "list nodes   "),
    ("GET", "/api/v1/nodes/n1/proxy/metrics", {}, "get nodes proxy  n1"),
    ("GET", "/api/v1/namespaces", {}, "list namespaces   "),
    ("DELETE", "/api/v1/namespaces/space", {}, "delete namespaces   space"),
    ("PUT", "/api/v1/namespaces/space/finalize", {}, "update namespaces finalize  space"),
    ("GET", CLAIMS, {}, "list resourceclaims  space "),
    ("GET", CLAIMS, {"watch": "1", "timeoutSeconds": "5"}, "watch resourceclaims  space "),
    ("DELETE", CLAIMS, {}, "deletecollection resourceclaims  space "),
    ("DELETE", f"{CLAIMS}/one", {}, "delete resourceclaims  space one"),
    ("PATCH", f"{CLAIMS}/one/status", {"dryRun": "All"}, "patch resourceclaims status space one"),
    ("GET", "/apis/resource.k8s.io/v1/deviceclasses/gpu", {}, "get deviceclasses   gpu"),
    ("GET", "/metrics", {}, "GET    "),
    ("GET", "/version", {}, "GET    "),
    ("GET", "/apis", {}, "GET    "),
    ("GET", "/apis/resource.k8s.io/v1", {}, "GET    "),
    ("GET", "/", {}, "GET    "),
]


@pytest.mark.parametrize(("method", "path", "query", "meaning"), PATHS)
def test_paths(method: str, path: str, query: dict[str, str], meaning: str) -> None:
    request = parse_path(method, "kube-apiserver", path, query)
    found = (request.verb, request.resource, request.subresource, request.namespace, request.name)
    assert " ".join(found) == meaning
    assert (request.component, request.path, request.query) == ("kube-apiserver", path, query)


def test_targets() -> None:
    request = parse_path("PUT", "kube-apiserver", f"{CORE}/pods/one/status", {})
    assert request.target == "pods/status"
    assert parse_path("GET", "kube-apiserver", f"{CORE}/pods/one", {}).target == "pods"
    assert parse_path("GET", "kube-apiserver", "/metrics", {}).target == ""
