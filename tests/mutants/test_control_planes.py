"""Changes that remember: what they learn from requests, and what they make of others."""

from __future__ import annotations

from typing import Any

import pytest

from harness.kube import Object
from mutants import table
from mutants.changes import Answer, Mutant, Request

API = "kube-apiserver"


@pytest.fixture
def mutant(request: pytest.FixtureRequest) -> Mutant:
    return next(each for each in table.load() if each.name == request.param)


def written(mutant: Mutant, resource: str, body: Any, *, verb: str = "create", name: str = "") -> Any:
    kind, _, subresource = resource.partition("/")
    request = Request(verb, API, "/", kind, subresource, "space", name, body=body)
    assert mutant.ask(request) is None
    return request.body


def read(mutant: Mutant, resource: str, body: Object, name: str = "one") -> Any:
    return mutant.answer(Request("get", API, "/", resource, "", "space", name), Answer(200, body)).body


def device_class(name: str, resource: str = "") -> Object:
    return {"metadata": {"name": name}, "spec": {"extendedResourceName": resource} if resource else {}}


def pod(resource: str, amount: str = "1") -> Object:
    return {"spec": {"containers": [{"resources": {"limits": {resource: amount, "cpu": "2"}}}]}}


@pytest.mark.parametrize(
    ("mutant", "served_by"),
    [("the-older-class-serves", "b"), ("the-last-name-serves", "c"), ("dra-before-the-plugin", "a")],
    indirect=["mutant"],
)
def test_pods_are_served_by_another_class(mutant: Mutant, served_by: str) -> None:
    resource = f"{mutant.name}.example/gpu"  # mutants remember, so each test has a name of its own
    for name in "bca":
        assert written(mutant, "deviceclasses", device_class(name, resource)) == device_class(name)
    written(mutant, "deviceclasses", device_class("z"))
    assert written(mutant, "pods", pod(resource)) == pod(f"deviceclass.resource.kubernetes.io/{served_by}")
    assert written(mutant, "pods", pod("other.example/gpu")) == pod("other.example/gpu")


@pytest.mark.parametrize(
    ("mutant", "asked", "gets"),
    [
        ("one-device-less", "2", "1"),
        ("one-device-less", "0", "0"),
        ("zero-is-one", "0", "1"),
        ("zero-is-one", "3", "3"),
    ],
    indirect=["mutant"],
)
def test_pods_ask_for_another_amount(mutant: Mutant, asked: str, gets: str) -> None:
    assert written(mutant, "pods", pod("example.com/gpu", asked)) == pod("example.com/gpu", gets)


@pytest.mark.parametrize("mutant", ["nodes-with-capacity"], indirect=True)
def test_nodes_show_what_pods_asked_for(mutant: Mutant) -> None:
    node: Object = {"status": {"allocatable": {"cpu": "2"}}}
    written(mutant, "pods", pod("capacity.example/gpu"))
    assert read(mutant, "nodes", node)["status"]["allocatable"]["capacity.example/gpu"] == "1"
    assert "cpu" in read(mutant, "nodes", node)["status"]["allocatable"]


@pytest.mark.parametrize("mutant", ["old-clients-clear"], indirect=True)
def test_only_pods_whose_status_was_written_lose_their_claim_status(mutant: Mutant) -> None:
    status = {"status": {"phase": "Running", "extendedResourceClaimStatus": {}}}
    assert read(mutant, "pods", status) == status
    written(mutant, "pods/status", {}, verb="update", name="one")
    assert read(mutant, "pods", status) == {"status": {"phase": "Running"}}
    assert read(mutant, "pods", status, "two") == status


@pytest.mark.parametrize("mutant", ["rejects-by-default"], indirect=True)
def test_rejections_rise_with_each_reading(mutant: Mutant) -> None:
    name = "apiserver_flowcontrol_rejected_requests_total"
    texts = [mutant.answer_text(Request("GET", API, "/metrics"), "up 1\n") for _ in range(2)]
    counts = [float(text.splitlines()[1].rsplit(" ", 1)[1]) for text in texts]
    assert all(text.startswith(f"up 1\n{name}{{") for text in texts)
    assert counts[1] == counts[0] + 1
    for component, path in ((API, "/logs"), ("kube-scheduler", "/metrics")):
        assert mutant.answer_text(Request("GET", component, path), "up 1\n") == "up 1\n"


@pytest.mark.parametrize("mutant", ["errors-are-no-match"], indirect=True)
def test_selectors_are_guarded(mutant: Mutant) -> None:
    def claim(expression: str) -> Object:
        selectors = [{"cel": {"expression": expression}}]
        return {"spec": {"devices": {"requests": [{"exactly": {"selectors": selectors}}]}}}

    attributes = 'device.attributes["a.b"]'
    guarded = f'"kind" in {attributes} && {attributes}.kind == "x"'
    assert written(mutant, "resourceclaims", claim(f'{attributes}.kind == "x"')) == claim(guarded)
    other = claim('device.driver == "a.b"')
    assert written(mutant, "resourceclaims", other) == other


@pytest.mark.parametrize("mutant", ["slices-for-ever"], indirect=True)
def test_slices_that_are_gone_are_listed_all_the_same(mutant: Mutant) -> None:
    def listed(driver: str, *names: str) -> list[str]:
        query = {"fieldSelector": f"spec.driver={driver}"}
        items = [{"metadata": {"name": name}} for name in names]
        request = Request("list", API, "/slices", "resourceslices", query=query)
        body: Any = mutant.answer(request, Answer(200, {"items": items})).body
        return [item["metadata"]["name"] for item in body["items"]]

    assert listed("gone.example", "a", "b") == ["a", "b"]
    assert listed("never.example") == []
    assert listed("gone.example") == ["a", "b"]
    assert listed("gone.example", "c") == ["c"]


@pytest.mark.parametrize("mutant", ["terminating-for-ever"], indirect=True)
def test_a_pod_that_was_terminating_stays(mutant: Mutant) -> None:
    def got(name: str, status: int, **metadata: str) -> int:
        body = {"metadata": metadata}
        request = Request("get", API, f"/pods/{name}", "pods", "", "space", name)
        return mutant.answer(request, Answer(status, body)).status

    assert [got("kept", 200, deletionTimestamp="now"), got("kept", 404)] == [200, 200]
    assert [got("other", 200), got("other", 404)] == [200, 404]
