"""What a restart changes in a component's settings."""

from __future__ import annotations

import yaml

from clusters.kind.restart import kubelet_config, manifest

_MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: kube-scheduler}
spec:
  containers:
  - name: kube-scheduler
    command: [kube-scheduler, --leader-elect=false, "--feature-gates=A=true,B=false", --kubeconfig=/etc/x=y]
"""


def command(text: str) -> list[str]:
    """The command of a manifest's one container."""
    (container,) = yaml.safe_load(text)["spec"]["containers"]
    return list(container["command"])


def test_gates_come_on_top_of_its_own() -> None:
    changed = command(manifest(_MANIFEST, {"B": True, "C": False}, {}, "1"))

    assert changed == [
        "kube-scheduler",
        "--leader-elect=false",
        "--feature-gates=A=true,B=true,C=false",
        "--kubeconfig=/etc/x=y",
    ]


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
