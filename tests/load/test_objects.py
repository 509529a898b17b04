"""Manifests of what a run makes."""

from __future__ import annotations

from typing import Any

import pytest

from load import objects
from load.naming import Names
from load.profiles.schema import Place, PodShape, Tolerance, Via

NAMES = Names("20261130T010203-abcd")
DRIVER = "gpu.dra-harness.dev"


def shape(**fields: Any) -> PodShape:
    return PodShape.model_validate({"name": "pod", "via": Via.TEMPLATE, **fields})


def test_names_are_the_runs_own_and_always_the_same() -> None:
    again, other = Names(NAMES.run_id), Names("20261130T010203-abce")
    assert again == NAMES
    assert NAMES.device_class == f"load-{NAMES.token}-gpu"
    assert {NAMES.name("a"), NAMES.extended_resource}.isdisjoint({other.name("a"), other.extended_resource})
    assert NAMES.labels == {"dra-harness.dev/run": "20261130T010203-abcd"}
    assert NAMES.implicit_resource == f"deviceclass.resource.kubernetes.io/load-{NAMES.token}-implicit"


def test_a_run_id_that_is_no_dns_label_makes_names_that_are() -> None:
    assert Names("My_Run.1").name("x").removeprefix("load-").removesuffix("-x").isalnum()


def test_a_plain_template_asks_for_one_device_of_the_runs_class() -> None:
    template = objects.claim_template(NAMES, shape(name="plain"), DRIVER)
    assert template["metadata"]["name"] == "plain"
    assert template["spec"]["metadata"]["labels"] == NAMES.labels
    exactly = {"deviceClassName": NAMES.device_class, "count": 1}
    assert template["spec"]["spec"] == {"devices": {"requests": [{"name": "device-0", "exactly": exactly}]}}


def test_five_requests_share_an_attribute_of_the_drivers_domain_unless_told() -> None:
    spec = objects.claim_spec(NAMES, shape(requests=5, match="productName"), DRIVER)["devices"]
    assert [request["name"] for request in spec["requests"]] == [f"device-{n}" for n in range(5)]
    assert spec["constraints"] == [{"matchAttribute": f"{DRIVER}/productName"}]
    standard = shape(requests=2, match="resource.kubernetes.io/numaNode")
    assert objects.claim_spec(NAMES, standard, DRIVER)["devices"]["constraints"] == [
        {"matchAttribute": "resource.kubernetes.io/numaNode"}
    ]


def test_a_selector_names_the_driver() -> None:
    spec = objects.claim_spec(NAMES, shape(cel='device.attributes["{driver}"].type == "gpu"'), DRIVER)
    (request,) = spec["devices"]["requests"]
    assert request["exactly"]["selectors"] == [
        {"cel": {"expression": f'device.attributes["{DRIVER}"].type == "gpu"'}}
    ]


def test_tolerations_name_their_effects() -> None:
    assert objects.claim_tolerations(Tolerance.NONE) == []
    assert objects.claim_tolerations(Tolerance.ALWAYS) == [
        {"operator": "Exists", "effect": "NoSchedule"},
        {"operator": "Exists", "effect": "NoExecute"},
    ]
    _, execute = objects.claim_tolerations(Tolerance.SECONDS)
    assert execute == {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}
    spec = objects.claim_spec(NAMES, shape(tolerance=Tolerance.ALWAYS), DRIVER)
    assert len(spec["devices"]["requests"][0]["exactly"]["tolerations"]) == 2


def test_a_pod_with_two_claims_of_a_template() -> None:
    kind = objects.pod_kind(NAMES, shape(name="pair", claims=2, namespaces=["churn", "quiet"], weight=3.0))
    assert (kind.name, kind.weight, kind.claims, kind.claims_by_scheduler) == ("pair", 3.0, 2, False)
    assert kind.namespaces == [NAMES.name("churn"), NAMES.name("quiet")]
    spec = kind.manifest["spec"]
    assert spec["resourceClaims"] == [
        {"name": "claim-0", "resourceClaimTemplateName": "pair"},
        {"name": "claim-1", "resourceClaimTemplateName": "pair"},
    ]
    assert spec["containers"][0]["resources"] == {"claims": [{"name": "claim-0"}, {"name": "claim-1"}]}
    assert spec["nodeSelector"] == {"dra-harness.dev/simulated": "true"}
    assert spec["tolerations"] == [{"key": "dra-harness.dev/simulated", "operator": "Exists"}]
    assert "name" not in kind.manifest["metadata"]


@pytest.mark.parametrize(
    ("via", "resource"), [(Via.EXPLICIT, NAMES.extended_resource), (Via.IMPLICIT, NAMES.implicit_resource)]
)
def test_an_extended_resource_is_asked_for_under_its_name(via: Via, resource: str) -> None:
    kind = objects.pod_kind(NAMES, shape(via=via, devices=3))
    container = kind.manifest["spec"]["containers"][0]
    assert container["resources"] == {"requests": {resource: "3"}, "limits": {resource: "3"}}
    assert (kind.claims, kind.claims_by_scheduler) == (1, True)
    assert "resourceClaims" not in kind.manifest["spec"]


def test_a_plain_pod_asks_for_nothing() -> None:
    kind = objects.pod_kind(NAMES, shape(via=Via.PLAIN))
    assert kind.claims == 0
    assert "resources" not in kind.manifest["spec"]["containers"][0]


def test_a_pod_for_real_nodes_has_an_image_and_no_business_on_simulated_ones() -> None:
    spec = objects.pod_manifest(NAMES, shape(place=Place.REAL))["spec"]
    assert {"nodeSelector", "tolerations"}.isdisjoint(spec)
    assert ".invalid" not in spec["containers"][0]["image"]


def test_a_filler_is_for_one_node() -> None:
    pod = objects.filler(NAMES, "sim-3", "sim-3", ["a", "b"])
    assert pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == "sim-3"
    assert [each["resourceClaimName"] for each in pod["spec"]["resourceClaims"]] == ["a", "b"]


def test_classes_and_quotas() -> None:
    explicit = objects.device_class(NAMES, "c", DRIVER, "x.io/gpu")
    assert explicit["spec"] == {
        "selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}],
        "extendedResourceName": "x.io/gpu",
    }
    assert "extendedResourceName" not in objects.device_class(NAMES, "c", DRIVER)["spec"]
    hard = objects.device_quota("c", 4) | objects.extended_quota("x.io/gpu", 5)
    assert objects.quota(NAMES, hard)["spec"]["hard"] == {
        "c.deviceclass.resource.k8s.io/devices": "4",
        "requests.x.io/gpu": "5",
    }


def test_pods_on_real_nodes_have_the_image_that_these_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_HARNESS_POD_IMAGE", "registry.example.com/pod:v1")
    manifests = [objects.pod_manifest(NAMES, shape(via=Via.PLAIN, place=place)) for place in Place]
    images = [manifest["spec"]["containers"][0]["image"] for manifest in manifests]
    assert images == ["none.invalid/none", "registry.example.com/pod:v1"]
