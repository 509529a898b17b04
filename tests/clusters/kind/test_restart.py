"""What a restart changes in a component's settings."""

from __future__ import annotations

import pytest
import yaml

from clusters.kind import nodes, restart
from clusters.kind.nodes import Process
from clusters.kind.restart import command, kubelet_config, manifest
from tests.clusters.kind.conftest import MakeState

_MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: kube-scheduler}
spec:
  containers:
  - name: kube-scheduler
    command: [kube-scheduler, --leader-elect=false, "--feature-gates=A=true,B=false", --kubeconfig=/etc/x=y]
"""


def test_gates_come_on_top_of_its_own() -> None:
    changed = command(manifest(_MANIFEST, {"B": True, "C": False}, {}, "1"))

    assert changed == (
        "kube-scheduler",
        "--leader-elect=false",
        "--feature-gates=A=true,B=true,C=false",
        "--kubeconfig=/etc/x=y",
    )


def test_flags_replace_its_own_and_are_added() -> None:
    changed = command(manifest(_MANIFEST, {}, {"leader-elect": "true", "kube-api-qps": "1000"}, "1"))

    assert "--leader-elect=true" in changed
    assert "--leader-elect=false" not in changed
    assert changed[-1] == "--kube-api-qps=1000"


def test_without_gates_of_its_own() -> None:
    plain = _MANIFEST.replace(', "--feature-gates=A=true,B=false"', "")

    assert command(manifest(plain, {"C": True}, {}, "1"))[-1] == "--feature-gates=C=true"
    assert not any("feature-gates" in word for word in command(manifest(plain, {}, {}, "1")))


def test_every_restart_makes_the_kubelet_see_another_pod() -> None:
    first, second = (manifest(_MANIFEST, {}, {}, mark) for mark in ("1", "2"))

    assert first != second
    assert command(first) == command(second) == command(_MANIFEST)


def test_a_kubelets_gates_come_on_top_of_its_own() -> None:
    changed = yaml.safe_load(
        kubelet_config("featureGates: {A: true, B: true}\nsyncFrequency: 5s", {"B": False})
    )

    assert changed == {"featureGates": {"A": True, "B": False}, "syncFrequency": "5s"}
    assert yaml.safe_load(kubelet_config("{}", {"C": True})) == {"featureGates": {"C": True}}


def test_the_old_one_that_comes_back_first_is_not_the_new_one(
    make_state: MakeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is killed is started again by the kubelet, perhaps before that has read the manifest."""
    state = make_state()
    folder = state.directory / "manifests"
    folder.mkdir(parents=True)
    (folder / "kube-scheduler.yaml").write_text(_MANIFEST)
    old, new = command(_MANIFEST), command(manifest(_MANIFEST, {}, {"v": "4"}, ""))
    seen = [
        [Process(1, old)],
        [],
        [],
        [Process(2, old)],
        [Process(2, old), Process(3, new)],
        [Process(3, new)],
    ]
    left = iter(seen)
    monkeypatch.setattr(nodes, "write", lambda *_: None)
    monkeypatch.setattr(nodes, "running", lambda *_: next(left))
    monkeypatch.setattr(restart, "_healthy", lambda *_: True)

    restart.restart(state, "kube-scheduler", {}, {"v": "4"})

    assert next(left, None) is None, "it went on before the new one was alone"
