from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterable

import pytest

from clusters.interface import Profile
from harness.errors import UsageError
from suites.catalogue import AREAS, Catalogue, Form, Level, Owner, Requirement, Source, load

# Counted by hand, area by area, in section 5 of the requirements reference.
COUNTS = {
    "ER": 21,
    "APF": 7,
    "QTA": 10,
    "TNT": 19,
    "MD": 16,
    "LST": 9,
    "NUM": 10,
    "PRT": 9,
    "PRI": 6,
    "CAP": 11,
    "ADM": 6,
    "CST": 5,
    "BND": 9,
    "HLT": 8,
    "PRS": 5,
    "RBC": 8,
    "LIF": 18,
    "UPG": 9,
    "CHK": 12,
    "COR": 4,
    "OPT": 6,
}
SHOULD = """
    ER-07 ER-13 APF-04 APF-05 APF-07 QTA-09 TNT-16 TNT-17 MD-14 MD-15 MD-16 LST-09 NUM-07 NUM-08 NUM-09 NUM-10
    PRT-08 PRT-09 PRI-04 CAP-11 ADM-06 CST-04 BND-06 BND-07 BND-09 HLT-06 HLT-07 HLT-08 PRS-05 RBC-07 RBC-08
    LIF-17 UPG-07 UPG-08 COR-04 CHK-01 CHK-02 CHK-03 CHK-04 CHK-05 CHK-06 CHK-07 CHK-08 CHK-09 CHK-10 CHK-11
    CHK-12
"""
LOAD = """
    APF-01 APF-02 APF-03 APF-04 APF-05 APF-06 APF-07 TNT-16 MD-10 MD-14 PRT-09 BND-09 PRS-05 LIF-17 COR-03
"""
DRIVER_ALONE = """
    ER-20 TNT-17 TNT-18 TNT-19 MD-01 MD-02 MD-04 MD-05 MD-06 MD-07 MD-08 MD-10 MD-11 MD-12 MD-13 MD-14 MD-15
    LST-08 NUM-01 NUM-02 NUM-03 NUM-04 NUM-08 NUM-09 PRT-04 PRT-07 PRT-08 PRI-05 CAP-10 CAP-11 ADM-05 CST-04
    BND-08 HLT-05 HLT-06 HLT-07 RBC-06 LIF-02 LIF-07 LIF-08 LIF-09 LIF-10 LIF-11 LIF-15 LIF-16 UPG-05 UPG-09
"""
ALPHA = """
    LST-01 LST-02 LST-03 LST-04 LST-05 LST-07 NUM-04 NUM-05 UPG-06 OPT-01 OPT-02 OPT-03 OPT-04 OPT-05 OPT-06
"""
BOTH_FORMS = [f"ER-{n:02}" for n in (3, 4, 5, 6, 7, 8, 11, 15, 16, 17, 18, 19, 20, 21)] + ["UPG-01", "UPG-02"]


RELEASES = ("v1.34.0", "v1.35.0", "v1.35.1", "v1.36.0", "v1.36.3", "v1.37.0", "v1.37.1", "v1.37.2", "v1.38.0")

STILL_WRITTEN = ("APF", "QTA", "TNT", "MD", "LST", "NUM")
"""Areas whose checks are being written: these find known deviations, and rows that can only be recorded."""


def settled(names: Iterable[str]) -> list[str]:
    """Those whose area is not among `STILL_WRITTEN`."""
    return [name for name in names if name.split("-")[0] not in STILL_WRITTEN]


def ids(matching: list[Requirement]) -> list[str]:
    return [requirement.id for requirement in matching]


def every() -> list[Requirement]:
    return list(load().requirements.values())


def test_it_has_the_208_ids_once_each_and_in_order() -> None:
    expected = [f"{prefix}-{number:02}" for prefix, count in COUNTS.items() for number in range(1, count + 1)]

    assert len(expected) == 208
    assert ids(every()) == expected
    assert list(load().requirements) == expected


def test_areas_are_in_order_and_hold_their_prefixes() -> None:
    catalogue = load()

    assert list(catalogue.areas) == list(AREAS)
    assert len(catalogue.areas) == 20
    for name, area in catalogue.areas.items():
        prefixes = Counter(each.id.split("-")[0] for each in area.requirements)
        assert prefixes == {prefix: COUNTS[prefix] for prefix in AREAS[name]}
        assert {each.area for each in area.requirements} == {name}


def test_levels_are_those_of_the_reference() -> None:
    by_level = {level: ids([each for each in every() if each.level is level]) for level in Level}

    assert sorted(by_level[Level.SHOULD]) == sorted(SHOULD.split())
    assert by_level[Level.MAY] == ["NUM-01"]
    assert by_level[Level.MUST_NOT] == ["ER-19"]
    assert len(by_level[Level.MUST]) == 208 - len(SHOULD.split()) - 2


def test_load_rows_forms_and_profiles_are_those_of_the_reference() -> None:
    assert ids([each for each in every() if each.load]) == LOAD.split()
    assert ids([each for each in every() if each.forms == (Form.EXPLICIT, Form.IMPLICIT)]) == BOTH_FORMS
    assert ids([each for each in every() if each.forms]) == BOTH_FORMS
    alpha = ids([each for each in every() if each.profile is Profile.ALPHA])
    assert settled(alpha) == settled(ALPHA.split())
    assert set(alpha) >= set(ALPHA.split())


def test_a_certificate_rests_on_the_drivers_own_rows() -> None:
    assert ids([each for each in every() if each.owners == (Owner.DRIVER,)]) == DRIVER_ALONE.split()


@pytest.mark.parametrize(
    ("requirement", "letters"),
    [
        ("ER-01", "S,L"),
        ("ER-06", "S,L,D"),
        ("ER-10", "S,C,A"),
        ("ER-13", "S,O"),
        ("MD-03", "D,L,R"),
        ("QTA-10", "O"),
        ("UPG-02", "S,L,A"),
        ("OPT-05", "S,C,L"),
    ],
)
def test_owner_letters_are_those_of_run_events(requirement: str, letters: str) -> None:
    assert load().get(requirement).owner_letters == letters


def test_texts_are_sentences_of_their_own() -> None:
    texts = [each.text for each in every()]

    assert len(set(texts)) == 208
    assert [text for text in texts if not re.match(r"[A-Z`]", text) or "  " in text] == []
    assert max(map(len, texts)) < 420


def test_sources_have_public_addresses_except_for_the_posts() -> None:
    places = [place for each in every() for place in each.source]

    assert {str(place) for place in places if place.url is None} >= {
        "post S1 (DRA in Kubernetes 1.37 for GPU operators)"
    }
    assert all((place.url is None) == (place.post is not None) for place in places)
    hosts = ("https://github.com/kubernetes/", "https://kubernetes.io/docs/")
    assert [place.url for place in places if place.url and not place.url.startswith(hosts)] == []


@pytest.mark.parametrize(
    ("source", "line", "url"),
    [
        (
            Source(kep=5004, section="Design"),
            "KEP-5004, Design",
            "https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/5004-dra-extended-resource",
        ),
        (Source(kep=5945), "KEP-5945", "https://github.com/kubernetes/enhancements/issues/5945"),
        (Source(pull=140325), "k/k#140325", "https://github.com/kubernetes/kubernetes/pull/140325"),
        (Source(issue=141103), "k/k#141103", "https://github.com/kubernetes/kubernetes/issues/141103"),
        (
            Source(source="pkg/kubelet/cm/dra/manager.go"),
            "v1.37.2 source pkg/kubelet/cm/dra/manager.go",
            "https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/kubelet/cm/dra/manager.go",
        ),
        (
            Source(docs="concepts/security/rbac-good-practices"),
            "docs concepts/security/rbac-good-practices",
            "https://kubernetes.io/docs/concepts/security/rbac-good-practices/",
        ),
        (Source(post="S3"), "post S3 (a preview of DRA in Kubernetes 1.36)", None),
    ],
)
def test_a_source_reads_well_and_links(source: Source, line: str, url: str | None) -> None:
    assert str(source) == line
    assert source.url == url


def test_all_sources_in_one_line() -> None:
    assert load().get("QTA-01").source_line == "KEP-4381, Quota; KEP-4816, Quota"


@pytest.mark.parametrize(
    ("requirement", "version", "promised"),
    [
        ("ER-01", "v1.35.4", False),
        ("ER-01", "v1.36.0-rc.1", True),
        ("ER-01", "v1.36.3-gke.100", True),
        ("ER-21", "v1.36.3", False),
        ("ER-21", "v1.37.0", True),
        ("TNT-01", "v1.36.3", True),
        ("TNT-02", "v1.36.3", False),
        ("TNT-02", "v1.38.0-rc.1", True),
        ("PRI-01", "v1.34.4", True),
        ("PRI-06", "v1.37.0", False),
        ("PRI-06", "v1.37.1", True),
        ("LST-01", "v1.36.0", True),
        ("LST-05", "v1.36.3", False),
        ("COR-01", "v1.33.9", False),
        ("COR-01", "v1.34.0", True),
    ],
)
def test_since_when_a_promise_holds(requirement: str, version: str, promised: bool) -> None:
    assert load().get(requirement).holds_on(version) is promised


def test_nothing_is_asked_of_releases_before_the_stable_api() -> None:
    assert [each.id for each in every() if each.holds_on("v1.33.9")] == []


@pytest.mark.parametrize(
    ("requirement", "version", "issue"),
    [
        ("ER-10", "v1.37.2", "k/k#141103"),
        ("ER-10", "v1.36.3", "k/k#141103"),
        ("ER-10", "v1.38.0-rc.1", None),
        ("TNT-10", "v1.37.0", "k/k#141620"),
        ("TNT-10", "v1.37.0-rc.1", "k/k#141620"),
        ("TNT-10", "v1.37.1", None),
        ("TNT-10", "v1.37.2+k3s1", None),
        ("QTA-07", "v1.35.1", "k/k#135404"),
        ("QTA-07", "v1.37.2", None),
        ("HLT-08", "v1.37.2", "k/k#140060"),
        ("ER-01", "v1.37.2", None),
    ],
)
def test_known_deviations_by_version(requirement: str, version: str, issue: str | None) -> None:
    known = load().get(requirement).deviation_for(version)

    assert (known.issue if known else None) == issue


def test_the_known_rows_deviate() -> None:
    found = ids([each for each in every() if each.deviations])

    assert settled(found) == ["ER-02", "ER-10", "HLT-08"]
    assert set(found) >= {"QTA-07", "TNT-10", "MD-12"}


def test_the_deviation_of_extended_resources_is_known_by_its_issue() -> None:
    (known,) = load().get("ER-10").deviations

    assert (known.issue, known.url) == (
        "k/k#141103",
        "https://github.com/kubernetes/kubernetes/issues/141103",
    )


def test_every_deviation_can_be_looked_up_and_ends() -> None:
    for requirement in every():
        issues = [known.issue for known in requirement.deviations]
        assert len(set(issues)) == len(issues), requirement.id
        for known in requirement.deviations:
            assert known.url.startswith("https://github.com/kubernetes/"), requirement.id
            assert known.summary.endswith("."), requirement.id
            assert datetime.date(2026, 12, 31) < known.expires < datetime.date(2028, 1, 1), requirement.id
            if requirement.id != "QTA-07":  # the first release that promises it has the fix
                assert any(
                    requirement.holds_on(version)
                    and requirement.deviation_for(version, go_helper=True) == known
                    for version in RELEASES
                ), f"{requirement.id}: {known.issue} is on no release that promises it"


def test_a_deviation_of_the_go_helper_excuses_no_other_driver() -> None:
    requirement = load().get("MD-12")

    assert requirement.deviation_for("v1.37.2") is None
    known = requirement.deviation_for("v1.37.2", go_helper=True)
    assert known is not None
    assert known.url == "https://github.com/kubernetes/enhancements/issues/5304"


def test_a_deviation_expires_on_its_day() -> None:
    known = load().get("ER-10").deviation_for("v1.37.2")

    assert known is not None
    assert known.expires == datetime.date(2027, 4, 30)
    assert not known.expired(datetime.date(2027, 4, 29))
    assert known.expired(datetime.date(2027, 4, 30))


def test_record_only_rows_say_why() -> None:
    recorded = [each for each in every() if each.characterise]

    assert settled(ids(recorded)) == [
        *("ADM-06", "HLT-08", "RBC-08"),
        *(f"CHK-{number:02}" for number in range(1, 13)),
        "COR-04",
    ]
    assert set(ids(recorded)) >= {"QTA-09", "MD-15", "MD-16", "NUM-10"}
    assert all(each.level is Level.SHOULD and each.characterise_reason.endswith(".") for each in recorded)


def test_gates_have_the_names_of_the_reference() -> None:
    assert {gate for each in every() for gate in each.gates} == {
        "DRAAdminAccess",
        "DRAConsumableCapacity",
        "DRADerivedAttributes",
        "DRADeviceBindingConditions",
        "DRADeviceCompatibilityGroups",
        "DRADeviceTaintRules",
        "DRADeviceTaints",
        "DRAExtendedResource",
        "DRAListTypeAttributes",
        "DRANodeAllocatableResources",
        "DRAOptionalNodeOperations",
        "DRAPartitionableDevices",
        "DRAPartitionableDevicesType",
        "DRAPrioritizedList",
        "DRAResourceClaimDeviceStatus",
        "DRAResourceClaimGranularStatusAuthorization",
        "DRAResourcePoolStatus",
        "DRASchedulerFilterTimeout",
        "DRAWorkloadResourceClaims",
        "GenericWorkload",
        "KubeletPodResourcesDynamicResources",
        "KubeletPodResourcesGet",
        "ResourceHealthStatus",
    }


def test_alpha_gates_need_the_alpha_profile_and_no_others_do() -> None:
    off_by_default = {
        "DRADerivedAttributes",
        "DRADeviceCompatibilityGroups",
        "DRAListTypeAttributes",
        "DRANodeAllocatableResources",
        "DRAOptionalNodeOperations",
        "DRAPartitionableDevicesType",
        "DRAResourcePoolStatus",
        "DRAWorkloadResourceClaims",
        "GenericWorkload",
    }

    assert [each.id for each in every() if off_by_default & set(each.gates)] == [
        each.id for each in every() if each.profile is Profile.ALPHA
    ]


def test_it_is_read_once() -> None:
    assert load() is load()


def test_get_knows_what_was_meant() -> None:
    with pytest.raises(UsageError, match=r"no requirement 'ER-1'; did you mean .*ER-1\d"):
        load().get("ER-1")
    with pytest.raises(UsageError, match=r"no requirement 'tnt-10'; did you mean TNT-10"):
        load().get("tnt-10")
    with pytest.raises(UsageError, match=r"no requirement '%%%'$"):
        load().get("%%%")


def test_select_takes_areas_and_ids_in_catalogue_order() -> None:
    chosen = load().select(["OPT-02", "prioritized-list", "PRI-01", "ER-02"])

    assert ids(list(chosen)) == ["ER-02", *(f"PRI-{number:02}" for number in range(1, 7)), "OPT-02"]


def test_select_of_core_has_both_prefixes() -> None:
    assert [each.id[:3] for each in load().select(["core"])] == ["COR"] * 4 + ["OPT"] * 6


def test_select_of_nothing_is_everything() -> None:
    assert len(load().select([])) == 208


def test_select_takes_any_iterable_once() -> None:
    assert ids(list(load().select(term for term in ("ER-01", "ER-02")))) == ["ER-01", "ER-02"]


def test_select_names_every_unknown_term() -> None:
    with pytest.raises(UsageError) as caught:
        load().select(["taint", "ER-01", "extended_resource", "ER-99", "taint"])

    assert str(caught.value).startswith("no area or requirement 'taint'; did you mean taints")
    assert "'extended_resource'; did you mean extended-resource" in str(caught.value)
    assert "'ER-99'; did you mean ER-" in str(caught.value)
    assert "'ER-01'" not in str(caught.value)
    assert str(caught.value).count("'taint'") == 1


def test_requirements_survive_a_round_trip_through_json() -> None:
    for each in every():
        assert Requirement.model_validate_json(each.model_dump_json()) == each


def test_the_catalogue_cannot_be_changed() -> None:
    catalogue: Catalogue = load()

    with pytest.raises(TypeError):
        catalogue.requirements["ER-01"] = catalogue.get("ER-02")  # type: ignore[index]
    with pytest.raises(ValueError, match="frozen"):
        catalogue.get("ER-01").level = Level.MAY
