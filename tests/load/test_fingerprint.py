"""Which runs may be compared."""

from __future__ import annotations

import pytest

from load.fingerprint import Difference, Fingerprint, describe_level, is_place, machine

OURS = Fingerprint(
    facts={"kubernetes.kube-apiserver": "v1.36.3", "kubernetes.kube-scheduler": "v1.36.3", "machine.cpus": 2},
    notes={"seed": "1"},
)
THEIRS = Fingerprint(
    facts={
        "kubernetes.kube-apiserver": "v1.37.2",
        "kubernetes.kube-scheduler": "v1.36.3",
        "machine.cpus": 2,
        "gates.DRANew": True,
    },
    notes={"seed": "2"},
)


def test_differences_are_named_from_both_sides() -> None:
    assert OURS.differences(THEIRS) == [
        Difference("gates.DRANew", None, True),
        Difference("kubernetes.kube-apiserver", "v1.36.3", "v1.37.2"),
    ]
    assert THEIRS.differences(OURS)[0] == Difference("gates.DRANew", True, None)


def test_notes_do_not_count() -> None:
    assert OURS.differences(OURS.model_copy(update={"notes": {}})) == []


@pytest.mark.parametrize(
    ("allowed", "left"),
    [
        (["kubernetes"], ["gates.DRANew"]),
        (["kubernetes.kube-apiserver", "gates"], []),
        (["kube"], ["gates.DRANew", "kubernetes.kube-apiserver"]),
    ],
)
def test_what_is_meant_to_differ_is_allowed_by_key_or_by_its_beginning(
    allowed: list[str], left: list[str]
) -> None:
    assert [each.key for each in OURS.differences(THEIRS, allowed=allowed)] == left


def test_a_fingerprint_survives_its_file() -> None:
    assert Fingerprint.model_validate_json(THEIRS.model_dump_json()) == THEIRS


@pytest.mark.parametrize(
    ("flag", "value", "place"),
    [
        ("secure-port", "6443", True),
        ("kubeconfig", "c", True),
        ("tls-cert-file", "c", True),
        ("etcd-servers", "c", True),
        ("etcd-cafile", "c", True),
        ("client-ca-file", "c", True),
        ("kubelet-client-certificate", "/c/x.crt", True),
        ("service-account-jwks-uri", "https://c", True),
        ("kube-api-qps", "20", False),
        ("max-mutating-requests-inflight", "200", False),
        ("concurrent-resourceclaim-syncs", "50", False),
        ("leader-elect", "false", False),
        ("authorization-mode", "Node,RBAC", False),
    ],
)
def test_flags_that_say_where_something_is_are_left_out(flag: str, value: str, place: bool) -> None:
    assert is_place(flag, value) is place


def test_a_level_in_one_line() -> None:
    assert describe_level({"type": "Exempt", "exempt": {}}) == "Exempt"
    limited = {"nominalConcurrencyShares": 100, "lendablePercent": 90}
    queue = {"type": "Queue", "queuing": {"queues": 128, "handSize": 6, "queueLengthLimit": 50}}
    assert (
        describe_level({"type": "Limited", "limited": {**limited, "limitResponse": queue}})
        == "shares 100, lends 90 %, borrows any, Queue 128x50 hand 6"
    )
    reject = {"nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    assert describe_level({"type": "Limited", "limited": reject}) == "shares 1, lends 0 %, borrows 0, Reject"


def test_the_machine_is_known() -> None:
    facts = machine()
    assert facts["machine.cpus"] >= 1  # type: ignore[operator]
    assert facts["machine.memory-gib"] >= 1  # type: ignore[operator]
    assert facts["machine.cpu"]
