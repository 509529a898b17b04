"""Somebody who lists pods in a victim's level: only what came into that level counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.kube import KubeClient
from harness.waiting import wait_until
from load.books import ApfFlow
from load.scenarios.aggressor import Aggressor
from load.scenarios.squeeze import Place
from tests.support.api_server import serve

_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns"
_FLOWCONTROL = "/apis/flowcontrol.apiserver.k8s.io/v1"
_MADE = {"metadata": {"uid": "u"}}


@contextmanager
def aggression(folder: Path, status: int, level: str) -> Iterator[Aggressor]:
    """One on whose level `uid-of-level` the server answers with a status, as from some level."""
    answers: dict[str, Any] = {
        f"POST {_RBAC}/roles": _MADE,
        f"POST {_RBAC}/rolebindings": _MADE,
        f"POST {_FLOWCONTROL}/flowschemas": {"metadata": {"uid": "uid-of-schema"}},
        f"GET {_FLOWCONTROL}/prioritylevelconfigurations/squeezed": {"metadata": {"uid": "uid-of-level"}},
        "GET /api/v1/namespaces/ns/pods": (status, {"items": []}),
    }
    headers = {
        "X-Kubernetes-PF-FlowSchema-UID": "uid-of-schema",
        "X-Kubernetes-PF-PriorityLevel-UID": level,
    }
    log: list[str] = []
    with serve(answers, otherwise=(200, {}), log=log, headers=headers) as address:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(_KUBECONFIG.format(address=address))
        client = KubeClient.from_kubeconfig(kubeconfig)
        aggressor = Aggressor(Place(client, "squeezed", {}, ["ns"], "sender"), 1)
        aggressor.start()
        wait_until(lambda: log.count("GET /api/v1/namespaces/ns/pods") > 2, 10, "three lists", interval=0.01)
        aggressor.stop()
        assert f"DELETE {_FLOWCONTROL}/flowschemas/squeezed-aggressor" in log
        yield aggressor


_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: c
clusters: [{{name: c, cluster: {{server: "{address}"}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
users: [{{name: u, user: {{token: t}}}}]
"""


def flow(*, dispatched: int = 0, level: str = "squeezed", **rejected: int) -> ApfFlow:
    return ApfFlow(
        flow_schema="squeezed-aggressor", priority_level=level, dispatched=dispatched, rejected=rejected
    )


@pytest.mark.parametrize("status", [200, 403])
def test_what_came_into_the_level_has_to_be_dispatched_there(tmp_path: Path, status: int) -> None:
    with aggression(tmp_path, status, "uid-of-level") as aggressor:
        sent = aggressor.answered

    assert sent > 2
    assert (aggressor.listed, aggressor.rejected) == (sent if status == 200 else 0, 0)
    assert aggressor.doubts([flow(dispatched=sent)]) == []
    (elsewhere,) = aggressor.doubts([flow(dispatched=sent, level="global-default")])
    assert f"the aggressor's other answers: {sent}, but 0 by the API server" in elsewhere


def test_its_429s_are_those_that_the_server_counts_for_it_alone(tmp_path: Path) -> None:
    with aggression(tmp_path, 429, "uid-of-level") as aggressor:
        refused = aggressor.rejected

    assert refused > 2
    assert aggressor.doubts([flow(full=refused, cancelled=3)]) == []
    (more,) = aggressor.doubts([flow(full=refused + 1)])
    assert f"the aggressor's answers 429: {refused}, but {refused + 1} by the API server" in more


def test_an_aggressor_in_another_level_is_a_reason_for_doubt(tmp_path: Path) -> None:
    with aggression(tmp_path, 200, "uid-of-another") as aggressor:
        assert aggressor.listed == 0

    assert aggressor.doubts([]) == ["no request of the aggressor came into the victim's priority level"]
