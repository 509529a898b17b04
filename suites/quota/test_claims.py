"""What a user's claims are charged: QTA-01, QTA-07, QTA-08, QTA-09 and QTA-10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest

from harness.kube import NAMESPACES, PODS, RESOURCE_QUOTAS, ApiError, KubeClient, Object
from harness.waiting import NotYet, wait_until
from suites.catalogue import Form
from suites.claims import first_available, request
from suites.drivers import DeviceClass, Drivers
from suites.evidence import Observations
from suites.expect import expect, expect_equal
from suites.marks import requirement, without_driver
from suites.naming import Names
from suites.quotas import (
    CLAIM_COUNT,
    Quotas,
    by_class,
    by_explicit_name,
    by_implicit_name,
    class_without_devices,
    refusal,
    wait_refused,
)
from suites.workload import Container, Workloads, pod_manifest

_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
_ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
_MOST_PER_CLAIM = 32

_Alternatives = Sequence[tuple[str, int | Literal["All"]]]


@requirement("QTA-01")
@without_driver
@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        pytest.param([[("a", 3)]], {"a": 3, "b": 0}, id="count"),
        pytest.param([[("a", "All")]], {"a": _MOST_PER_CLAIM, "b": 0}, id="all"),
        pytest.param([[("a", 2)], [("a", 3)], [("b", 1)]], {"a": 5, "b": 1}, id="several-requests"),
        pytest.param([[("a", 1), ("b", 4), ("a", 3)]], {"a": 3, "b": 4}, id="alternatives"),
        pytest.param(
            [[("a", 2), ("a", "All")], [("a", 1), ("b", 1)]],
            {"a": _MOST_PER_CLAIM + 1, "b": 1},
            id="alternatives-of-all",
        ),
    ],
)
def test_a_claim_is_charged_the_most_it_may_take(
    requests: Sequence[_Alternatives],
    expected: Mapping[str, int],
    drivers: Drivers,
    names: Names,
    namespace: str,
    kube: KubeClient,
    evidence: Observations,
) -> None:
    """Each class is charged for its devices, and the quota that has room for exactly that has no more."""
    classes = {key: class_without_devices(drivers, names, key, named=False) for key in ("a", "b")}
    made = [_request(f"r{i}", alternatives, classes) for i, alternatives in enumerate(requests)]
    limits = {by_class(classes[key]): amount for key, amount in expected.items()} | {CLAIM_COUNT: 5}
    quotas = Quotas(kube, namespace)
    quotas.create(limits)
    quotas.wait_enforced(classes["a"], by_class(classes["a"]))

    quotas.claim("claim", *made)

    charged = quotas.used()
    evidence("requests", made)
    evidence("charged", charged)
    expect_equal("charged", charged, limits | {CLAIM_COUNT: 1})
    expect_equal("the quota controller counts the same", quotas.recount(), charged)
    entry = by_class(classes["a"])
    words = refusal(
        lambda: quotas.claim("beyond", request("one", classes["a"])),
        f"requested: {entry}=1, used: {entry}={expected['a']}, limited: {entry}={expected['a']}",
    )
    evidence("one device more", words)
    expect_equal("what is refused is not charged", quotas.used(), charged)


def _request(name: str, alternatives: _Alternatives, classes: Mapping[str, DeviceClass]) -> Object:
    made = [
        request(f"{i}", classes[key], count=amount)
        if isinstance(amount, int)
        else request(f"{i}", classes[key], everything=True)
        for i, (key, amount) in enumerate(alternatives)
    ]
    return first_available(name, made) if len(made) > 1 else made[0] | {"name": name}


@requirement("QTA-08")
@without_driver
def test_admin_access_is_charged(
    drivers: Drivers, names: Names, namespace: str, kube: KubeClient, evidence: Observations
) -> None:
    """Claims for admin access use up the class's quota, and are refused when it has no room."""
    device_class = class_without_devices(drivers, names, named=False)
    kube.patch(NAMESPACES, namespace, {"metadata": {"labels": {_ADMIN_ACCESS: "true"}}})
    quotas = Quotas(kube, namespace)
    quotas.create({by_class(device_class): 3})
    quotas.wait_enforced(device_class, by_class(device_class))

    made = quotas.claim("first", request("device", device_class, count=2, adminAccess=True))

    evidence("request", made["spec"]["devices"]["requests"])
    evidence("charged", quotas.used())
    (stored,) = made["spec"]["devices"]["requests"]
    expect("the request is for admin access", stored["exactly"].get("adminAccess"), stored)
    expect_equal("charged", quotas.used(), {by_class(device_class): 2})
    expect_equal("the quota controller counts the same", quotas.recount(), {by_class(device_class): 2})
    words = refusal(
        lambda: quotas.claim("second", request("device", device_class, count=2, adminAccess=True)),
        f"{by_class(device_class)}=2",
    )
    evidence("beyond the quota", words)


def _imitation(owner: Object, **differently: Any) -> Object:
    """The metadata of a claim that passes for the special claim of a pod."""
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner["metadata"]["name"], "controller": True}
    reference |= {"uid": owner["metadata"]["uid"]} | differently
    return {"annotations": {_ANNOTATION: "true"}, "ownerReferences": [reference]}


def _held_pod(workloads: Workloads, name: str, device_class: DeviceClass) -> Object:
    """A pod for one device that is never scheduled, so that it has no special claim of its own."""
    resource = device_class.resource(Form.EXPLICIT)
    gates = [{"name": "dra-harness.dev/held"}]
    return workloads.create(pod_manifest(name, [Container(resources={resource: 1})], schedulingGates=gates))


@requirement("QTA-07")
@without_driver
def test_imitations_are_charged_while_the_pod_waits(
    drivers: Drivers, names: Names, workloads: Workloads, kube: KubeClient, evidence: Observations
) -> None:
    """Beside a pod without a special claim, imitations get no more devices than the quota has."""
    device_class = class_without_devices(drivers, names)
    entry = by_explicit_name(device_class)
    quotas = Quotas(kube, workloads.namespace)
    quotas.create({entry: 3})
    quotas.wait_enforced(device_class, entry)
    metadata = _imitation(_held_pod(workloads, "pod", device_class))
    expect_equal("charged for the pod itself", quotas.used(), {entry: 1})

    quotas.claim("first", request("device", device_class), metadata=metadata)
    # Three devices of two that are left: only refused if the pod's own device isn't deducted once more.
    three = request("device", device_class, count=3)
    wait_refused(lambda: quotas.claim("probe", three, dry_run=True, metadata=metadata))
    charged = [quotas.used()[entry]]
    for name in ("second", "third"):
        quotas.claim(name, request("device", device_class), metadata=metadata)
        charged.append(quotas.used()[entry])
    words = refusal(
        lambda: quotas.claim("fourth", request("device", device_class), metadata=metadata),
        f"requested: {entry}=1, used: {entry}=3",
    )

    evidence("charged after each imitation", charged)
    evidence("the fourth imitation", words)
    expect_equal("one device is the pod's own, each further one is charged", charged, [1, 2, 3])
    expect_equal("the quota controller counts the same", quotas.recount(), {entry: 3})


@requirement("QTA-07")
def test_imitations_are_charged_beside_a_special_claim(
    drivers: Drivers, workloads: Workloads, kube: KubeClient, evidence: Observations
) -> None:
    """Once the pod has its special claim, every imitation of it is charged in full."""
    device_class = drivers.device_class(drivers.start())
    entries = (by_explicit_name(device_class), by_implicit_name(device_class))
    quotas = Quotas(kube, workloads.namespace)
    quotas.create(dict.fromkeys(entries, 2))
    quotas.wait_enforced(device_class, *entries)
    resource = device_class.resource(Form.EXPLICIT)
    pod = workloads.run(pod_manifest("pod", [Container(resources={resource: 1})]))
    before = quotas.used()

    quotas.claim("imitation", request("device", device_class), metadata=_imitation(pod))
    after = quotas.used()
    words = refusal(
        lambda: quotas.claim("more", request("device", device_class), metadata=_imitation(pod)),
        *(f"{entry}=1" for entry in entries),
    )

    evidence("charged for the pod and its claim", before)
    evidence("charged with an imitation", after)
    evidence("a further imitation", words)
    expect_equal("charged for the pod and its claim", before, dict.fromkeys(entries, 1))
    expect_equal("charged with an imitation", after, dict.fromkeys(entries, 2))
    expect_equal("the quota controller counts the same", quotas.recount(), after)


@requirement("QTA-07")
@without_driver
@pytest.mark.parametrize(
    "flaw", ["another uid", "not the controller", "no pod", "another annotation", "no owner"]
)
def test_a_poor_imitation_is_charged_in_full(
    flaw: str, drivers: Drivers, names: Names, workloads: Workloads, kube: KubeClient, evidence: Observations
) -> None:
    """A claim that isn't quite like a pod's special claim doesn't have the pod's devices deducted."""
    device_class = class_without_devices(drivers, names)
    entry = by_explicit_name(device_class)
    quotas = Quotas(kube, workloads.namespace)
    quotas.create({entry: 3})
    quotas.wait_enforced(device_class, entry)
    pod = _held_pod(workloads, "pod", device_class)
    metadata = {
        "another uid": _imitation(pod, uid="11111111-2222-3333-4444-555555555555"),
        "not the controller": _imitation(pod, controller=False),
        "no pod": _imitation(pod, kind="Secret"),
        "another annotation": _imitation(pod) | {"annotations": {_ANNOTATION: "pod"}},
        "no owner": _imitation(pod) | {"ownerReferences": []},
    }[flaw]

    words = refusal(
        lambda: quotas.claim("claim", request("device", device_class, count=3), metadata=metadata),
        f"requested: {entry}=3, used: {entry}=1, limited: {entry}=3",
    )

    evidence("metadata of the claim", metadata)
    evidence("three devices, of which one would be the pod's", words)


@requirement("QTA-09")
@without_driver
def test_plain_claims_and_the_implicit_name(
    drivers: Drivers, names: Names, namespace: str, kube: KubeClient, evidence: Observations
) -> None:
    """Records whether a claim of a class without an explicit name is charged to the implicit name's quota.

    Once with a quota of nothing else, and once with a quota that also limits the class.
    """
    device_class = class_without_devices(drivers, names, "plain", named=False)
    marker = class_without_devices(drivers, names, "marker")
    quotas = Quotas(kube, namespace)
    implicit = by_implicit_name(device_class)
    quotas.create({by_explicit_name(marker): 9}, "marker")
    quotas.wait_enforced(marker, by_explicit_name(marker))
    quotas.create({implicit: 9}, "alone")
    quotas.create({implicit: 9, by_class(device_class): 9}, "with-the-class")
    quotas.wait_enforced(device_class, by_class(device_class))

    quotas.claim("claim", request("device", device_class, count=2))

    for name in ("alone", "with-the-class"):
        evidence(f"charged at once: quota {name}", quotas.used(name))
        evidence(f"counted by the quota controller: quota {name}", quotas.recount(name))
    expect_equal("charged to the class", quotas.used("with-the-class")[by_class(device_class)], 2)


@requirement("QTA-10")
@without_driver
def test_a_quota_is_counted_before_it_is_relied_on(
    drivers: Drivers, names: Names, workloads: Workloads, kube: KubeClient, evidence: Observations
) -> None:
    """A limit without a computed use refuses pods for that reason; once it is computed they are charged."""
    device_class = class_without_devices(drivers, names)
    entry = by_explicit_name(device_class)
    resource = device_class.resource(Form.EXPLICIT)
    pod = pod_manifest(
        "pod", [Container(resources={resource: 1})], schedulingGates=[{"name": "dra-harness.dev/held"}]
    )
    quotas = Quotas(kube, workloads.namespace)
    quotas.create({entry: 1})
    kube.patch(
        RESOURCE_QUOTAS, "quota", {"status": {"used": None}}, workloads.namespace, subresource="status"
    )

    words = _status_unknown(kube, workloads.namespace, pod)
    quotas.change({entry: 2})
    _wait_accepted(kube, workloads.namespace, pod)
    workloads.create(pod)

    evidence("before the use is computed", words)
    evidence("afterwards", quotas.used())
    expect(f"the refusal names {entry}", entry in words, words)
    expect_equal("charged once the use is computed", quotas.used(), {entry: 1})


def _status_unknown(kube: KubeClient, namespace: str, pod: Object) -> str:
    """The refusal of a pod, once the API server has seen that the use is gone."""

    def refused() -> str:
        try:
            kube.create(PODS, pod, namespace, dry_run=True)
        except ApiError as error:
            if error.status == 403 and "status unknown for quota" in error.message:
                return error.message
            raise NotYet(error.message) from error
        raise NotYet("accepted")

    return wait_until(refused, 10, "a pod to be refused with 'status unknown for quota'")


def _wait_accepted(kube: KubeClient, namespace: str, pod: Object) -> None:
    """Wait until the API server has seen the computed use as well."""

    def accepted() -> Object:
        try:
            return kube.create(PODS, pod, namespace, dry_run=True)
        except ApiError as error:
            raise NotYet(error.message) from error

    wait_until(accepted, 10, "a pod to be accepted once the use is computed")
