"""The rights of a run: as a manifest, and asked of an API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusters.existing import rights
from clusters.existing.rights import Right
from harness.kube import KubeClient
from tests.harness.api_server import write_config
from tests.support.api_server import serve

REVIEWS = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def test_the_manifest_is_a_user_with_the_rules() -> None:
    account, role, binding = rights.manifest("tester", "ci")
    assert (account["kind"], account["metadata"]) == ("ServiceAccount", {"name": "tester", "namespace": "ci"})
    assert (role["kind"], role["metadata"]) == ("ClusterRole", {"name": "tester"})
    assert [rule for rule in role["rules"] if "resources" in rule] == list(rights.RULES)
    assert role["rules"][-1] == {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    assert binding["roleRef"]["name"] == "tester"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "tester", "namespace": "ci"}]


def test_no_right_is_for_everything_or_over_what_is_somebody_elses() -> None:
    needed = rights.needed()
    assert len(needed) == len(set(needed))
    assert not [each for each in needed if "*" in str(each)]
    assert {each.verb for each in needed if each.resource == "nodes"} == {"list"}
    assert not [
        each for each in needed if each.resource in ("secrets", "configmaps", "roles", "clusterroles")
    ]
    assert Right("patch", "devicetaintrules/status", "resource.k8s.io") in needed
    assert str(Right("patch", "resourcequotas/status")) == "patch resourcequotas/status"
    assert str(Right("list", "leases", "coordination.k8s.io")) == "list leases.coordination.k8s.io"


@pytest.mark.parametrize("allowed", [True, False])
def test_what_a_user_lacks_is_the_api_servers_word(tmp_path: Path, allowed: bool) -> None:
    asked: list[str] = []
    answers: dict[str, Any] = {REVIEWS: {"status": {"allowed": allowed}}}
    with serve(answers, log=asked) as url:
        kube = KubeClient.from_kubeconfig(write_config(tmp_path / "config", url, {"token": "t"}))
        assert rights.missing(kube) == ([] if allowed else rights.needed())
    assert asked == [REVIEWS] * len(rights.needed())
