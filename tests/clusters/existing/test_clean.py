"""Who is dead: told by Leases and the API server's own clock, without waiting."""

from __future__ import annotations

import datetime
import email.utils
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters import driver_pods
from clusters.existing import clean, presence
from clusters.existing.presence import LEASE_SECONDS, Presence, ServerClock, is_alive, namespace_of
from harness.errors import EnvironmentBlocked, HarnessError
from harness.kube import KubeClient
from harness.labels import DRIVERS
from harness.waiting import wait_until
from tests.harness.api_server import status, write_config
from tests.support.api_server import serve

LABEL = "dra-harness.dev/run"
NOW = datetime.datetime.now(datetime.UTC)


def ago(seconds: float) -> str:
    return (NOW - datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def own(
    run: str, *, label: str | None = None, created: float = 1000, deleted: bool = False
) -> dict[str, Any]:
    metadata = {"name": namespace_of(run), "uid": f"ns-{run}", "creationTimestamp": ago(created)}
    metadata |= {"deletionTimestamp": ago(1)} if deleted else {}
    return {"metadata": {**metadata, "labels": {LABEL: label or run}}}


def run_of(run: str, renewed: float | None, **namespace: Any) -> dict[str, Any]:
    """What the API server says of a run whose Lease was renewed so many seconds ago; None: it has none."""
    path = f"/api/v1/namespaces/{namespace_of(run)}"
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace_of(run)}/leases/run"
    answers: dict[str, Any] = {f"GET {path}": own(run, **namespace)}
    if renewed is not None:
        answers[f"GET {lease}"] = {"spec": {"renewTime": ago(renewed)}}
    return answers


@pytest.fixture
def answers() -> dict[str, Any]:
    return {}


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def kube(tmp_path: Path, answers: dict[str, Any], asked: list[str]) -> Iterator[KubeClient]:
    with serve(answers, log=asked) as url:
        yield KubeClient.from_kubeconfig(write_config(tmp_path / "config", url, {"token": "t"}))


@pytest.mark.parametrize(
    ("renewed", "namespace", "alive"),
    [
        (0, {}, True),
        (LEASE_SECONDS - 1, {}, True),
        (LEASE_SECONDS + 1, {}, False),
        (LEASE_SECONDS + 1, {"created": 1}, False),
        (None, {}, False),
        (None, {"created": LEASE_SECONDS - 1}, True),  # about to create its Lease
        (0, {"label": "another"}, False),
        (0, {"deleted": True}, False),
    ],
)
def test_a_run_lives_as_long_as_it_says_so(
    kube: KubeClient,
    answers: dict[str, Any],
    renewed: float | None,
    namespace: dict[str, Any],
    alive: bool,
) -> None:
    answers |= run_of("r", renewed, **namespace)
    assert is_alive(kube, "r", NOW) is alive
    assert not is_alive(kube, "unheard-of", NOW)


def test_the_time_is_the_api_servers(kube: KubeClient) -> None:
    assert abs((ServerClock(kube).now() - datetime.datetime.now(datetime.UTC)).total_seconds()) < 3
    assert email.utils.parsedate_to_datetime("Mon, 30 Nov 2026 08:00:00 GMT").tzinfo is not None


def found(resource: str, *objects: tuple[str, str]) -> dict[str, Any]:
    items = [{"metadata": {"name": n, "uid": f"uid-{n}", "labels": {LABEL: run}}} for n, run in objects]
    return {f"GET {resource}": {"items": items}}


def test_only_what_dead_runs_left_is_looked_for(kube: KubeClient, answers: dict[str, Any]) -> None:
    answers |= found("/apis/resource.k8s.io/v1/deviceclasses", ("a", "dead"), ("b", "alive"), ("c", "known"))
    answers |= found("/api/v1/namespaces", ("n", "dead"), (namespace_of("alive"), "alive"))
    answers["GET /apis/rbac.authorization.k8s.io/v1/clusterroles"] = 403
    renewed = -3600.0  # this takes no account of how long the tests before it took
    answers |= run_of("alive", renewed) | run_of("dead", 1000) | run_of("known", renewed)

    litter = clean.look(kube, known_dead=["known"])

    assert list(map(str, litter.dead)) == ["deviceclasses/a", "deviceclasses/c", "namespaces/n"]
    assert (litter.alive, litter.unseen) == (("alive",), ("clusterroles",))


def test_what_does_not_go_is_said(
    kube: KubeClient, answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clean, "_GONE_SECONDS", 0)
    answers |= found("/apis/resource.k8s.io/v1/deviceclasses", ("stuck", "dead"))
    answers["DELETE /apis/resource.k8s.io/v1/deviceclasses/stuck"] = {}
    with pytest.raises(HarnessError, match="what dead runs left to be gone; last seen: deviceclasses/stuck"):
        clean.remove(kube, clean.look(kube))


def test_a_namespace_in_the_way_is_left_alone(
    kube: KubeClient, answers: dict[str, Any], asked: list[str]
) -> None:
    answers["POST /api/v1/namespaces"] = (409, status(409, "AlreadyExists", "there is one"))
    stranger = own("r")
    stranger["metadata"]["labels"] = {"team": "theirs"}
    answers[f"GET /api/v1/namespaces/{namespace_of('r')}"] = stranger
    with pytest.raises(EnvironmentBlocked, match="is in the way: there is one without the label"):
        Presence(kube, "r").__enter__()
    answers |= run_of("r", 1)
    with pytest.raises(EnvironmentBlocked, match="of run r; choose another --run-id"):
        Presence(kube, "r").__enter__()
    assert not [each for each in asked if each.startswith(("DELETE", "PATCH"))]


def test_a_lease_that_is_refused_leaves_no_namespace(
    kube: KubeClient, answers: dict[str, Any], asked: list[str]
) -> None:
    path = f"/api/v1/namespaces/{namespace_of('r')}"
    answers["POST /api/v1/namespaces"] = own("r")
    answers[f"DELETE {path}"] = {}
    answers[f"POST /apis/coordination.k8s.io/v1/namespaces/{namespace_of('r')}/leases"] = 403
    with pytest.raises(EnvironmentBlocked, match="the user lacks a right"):
        Presence(kube, "r").__enter__()
    assert asked[-1] == f"DELETE {path}"


def test_a_run_says_so_again_and_again_until_it_ends(
    kube: KubeClient, answers: dict[str, Any], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that somebody's `clean` would take the objects of a run longer than a Lease."""
    monkeypatch.setattr(presence, "_RENEW_SECONDS", 0.01)
    space = f"/api/v1/namespaces/{namespace_of('r')}"
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace_of('r')}/leases"
    answers |= {"POST /api/v1/namespaces": own("r"), f"POST {leases}": {"metadata": {}}}
    answers |= {f"PATCH {leases}/run": 503, f"DELETE {space}": {}}  # one that fails is not the last
    with Presence(kube, "r"):
        wait_until(lambda: asked.count(f"PATCH {leases}/run") > 2, 10, "it to be renewed", interval=0.01)
    said = len(asked)
    assert asked[-1] == f"DELETE {space}"
    time.sleep(0.05)
    assert len(asked) == said


def test_a_refused_namespace_says_why(kube: KubeClient, answers: dict[str, Any]) -> None:
    answers["POST /api/v1/namespaces"] = 403
    with pytest.raises(EnvironmentBlocked, match="the user lacks a right"):
        Presence(kube, "r").__enter__()


def test_drivers_in_pods_go_after_what_they_serve(
    kube: KubeClient, answers: dict[str, Any], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[tuple[str, int]] = []
    monkeypatch.setattr(driver_pods, "remove_all", lambda _, run: removed.append((run, len(asked))))
    monkeypatch.setattr(clean, "_wait_gone", lambda *_: None)
    items = [
        {"metadata": {"name": "t1", "uid": "u1", "labels": {LABEL: "dead"}}},
        {"metadata": {"name": "drivers", "uid": "u2", "labels": {DRIVERS: "with-drivers"}}},
    ]
    answers |= {"GET /api/v1/namespaces": {"items": items}, "DELETE /api/v1/namespaces/t1": {}}

    clean.remove(kube, clean.look(kube))

    deleted = asked.index("DELETE /api/v1/namespaces/t1")
    assert [run for run, _ in removed] == ["with-drivers"]
    assert removed[0][1] > deleted
    assert "DELETE /api/v1/namespaces/drivers" not in asked


@pytest.mark.parametrize("nobody", [KeyError("uid not found: 65532"), OSError("No username set")])
def test_a_run_whose_user_has_no_name_says_so_by_its_number(
    kube: KubeClient, answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch, nobody: Exception
) -> None:
    """As in the pods of the load's chart: their user is in no file of the image."""

    def unknown() -> str:
        raise nobody

    monkeypatch.setattr("getpass.getuser", unknown)
    holder = Presence(kube, "r")._lease(ServerClock(kube))["spec"]["holderIdentity"]
    assert holder.startswith(f"{os.getuid()}@")
