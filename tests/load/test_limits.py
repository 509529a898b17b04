"""Limit sets: who is restarted with what, and what is said where nobody can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest

from clusters.interface import Cluster, ClusterProvider
from harness.errors import EnvironmentBlocked
from harness.kube import KubeClient
from load import commandline, limits
from load.limits import Limits
from load.request import LimitSet
from tests.load.test_commandline import CLUSTER

MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
LOCAL = replace(CLUSTER, provider="local")
KUBE = cast("KubeClient", None)


class Provider:
    """Restarts by noting it, and changes what the component's command line says."""

    def __init__(self, lines: dict[str, dict[str, str] | None], *, able: bool = True) -> None:
        self.lines = lines
        self.restarted: list[tuple[str, Mapping[str, str] | None]] = []
        self._able = able

    def restart(
        self,
        name: str,
        component: str,
        gates: Mapping[str, bool] | None = None,
        flags: Mapping[str, str] | None = None,
    ) -> None:
        if not self._able:
            raise EnvironmentBlocked("not ours to restart")
        assert name == "c"
        self.restarted.append((component, flags))
        self.lines[component] = dict(flags or {})


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    made = Provider({MANAGER: {}, SCHEDULER: {}})
    monkeypatch.setattr(commandline, "flags", lambda cluster, kube, component: made.lines[component])
    return made


def apply(provider: Provider, wanted: LimitSet, cluster: Cluster = LOCAL) -> dict[str, Limits | None]:
    return limits.apply(cast("ClusterProvider", provider), cluster, KUBE, wanted)


def test_a_claim_takes_the_longer_the_fewer_requests_there_are() -> None:
    """Some seven a second were seen under the release's own limits."""
    assert limits.seconds_per_claim(LimitSet.DEFAULT) == pytest.approx(0.3)
    assert limits.seconds_per_claim(LimitSet.OPEN) < 0.01


def test_components_without_flags_have_the_releases_limits(provider: Provider) -> None:
    assert apply(provider, LimitSet.DEFAULT) == {MANAGER: Limits(20, 30), SCHEDULER: Limits(50, 100)}
    assert provider.restarted == []


def test_other_limits_need_a_restart_once(provider: Provider) -> None:
    tuned = {MANAGER: Limits(100, 200), SCHEDULER: Limits(200, 400)}
    assert apply(provider, LimitSet.TUNED) == tuned
    assert provider.restarted == [
        (MANAGER, {"kube-api-qps": "100", "kube-api-burst": "200"}),
        (SCHEDULER, {"kube-api-qps": "200", "kube-api-burst": "400"}),
    ]
    assert apply(provider, LimitSet.TUNED) == tuned
    assert len(provider.restarted) == 2


def test_the_releases_limits_come_back_without_flags(provider: Provider) -> None:
    apply(provider, LimitSet.OPEN)
    provider.restarted.clear()
    apply(provider, LimitSet.DEFAULT)
    assert provider.restarted == [(MANAGER, {}), (SCHEDULER, {})]


def test_one_component_that_is_right_is_left_alone(provider: Provider) -> None:
    provider.lines[MANAGER] = {"kube-api-qps": "1000", "kube-api-burst": "2000"}
    apply(provider, LimitSet.OPEN)
    assert [component for component, _ in provider.restarted] == [SCHEDULER]


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Provider:
    made = Provider({MANAGER: {}, SCHEDULER: {}}, able=False)
    monkeypatch.setattr(commandline, "flags", lambda cluster, kube, component: made.lines[component])
    return made


def test_elsewhere_components_must_have_the_limits(elsewhere: Provider) -> None:
    with pytest.raises(EnvironmentBlocked) as raised:
        apply(elsewhere, LimitSet.OPEN, CLUSTER)
    assert str(raised.value) == (
        "kube-controller-manager has 20/30, the limit set open needs"
        " --kube-api-qps=1000 --kube-api-burst=2000, and not ours to restart"
    )
    elsewhere.lines |= {
        name: {"kube-api-qps": "1e3", "kube-api-burst": "2000"} for name in (MANAGER, SCHEDULER)
    }
    assert apply(elsewhere, LimitSet.OPEN, CLUSTER)[SCHEDULER] == Limits(1000, 2000)


def test_elsewhere_unknown_limits_pass_as_default_only(elsewhere: Provider) -> None:
    elsewhere.lines |= {MANAGER: None, SCHEDULER: {"config": "/etc/s.yaml", "kube-api-qps": "50"}}
    assert apply(elsewhere, LimitSet.DEFAULT, CLUSTER) == {MANAGER: None, SCHEDULER: None}
    with pytest.raises(EnvironmentBlocked, match="has unknown limits, the limit set tuned needs"):
        apply(elsewhere, LimitSet.TUNED, CLUSTER)


def test_elsewhere_other_limits_are_not_the_default(elsewhere: Provider) -> None:
    elsewhere.lines[SCHEDULER] = {"kube-api-qps": "200"}
    with pytest.raises(EnvironmentBlocked, match="kube-scheduler has 200/100, the limit set default needs"):
        apply(elsewhere, LimitSet.DEFAULT, CLUSTER)


def test_a_restart_that_fails_is_not_hidden(provider: Provider) -> None:
    provider._able = False
    with pytest.raises(EnvironmentBlocked, match=r"^not ours to restart$"):
        apply(provider, LimitSet.OPEN)


@pytest.mark.parametrize(
    ("wanted", "component", "expected"),
    [
        (LimitSet.DEFAULT, MANAGER, {}),
        (LimitSet.OPEN, "kube-apiserver", {}),
        (LimitSet.TUNED, SCHEDULER, {"kube-api-qps": "200", "kube-api-burst": "400"}),
    ],
)
def test_flags_for_restarts_in_mid_run(wanted: LimitSet, component: str, expected: dict[str, str]) -> None:
    assert limits.flags(wanted, component) == expected
