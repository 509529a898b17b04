"""Which requirements are run. A catalogue of four and five checks; the decisions are written out by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from clusters.driver_host import why_no_driver
from clusters.interface import Cluster, Node, Profile
from harness.errors import UsageError
from harness.results import Result
from suites import plan
from suites.catalogue import Area, Bound, Catalogue, Level, Owner, Requirement, Source
from suites.checks import Check
from suites.plan import Target

NODES_2 = Target("v1.37.2", Profile.GA, 2)


def needed(name: str, **more: object) -> Requirement:
    values: dict[str, object] = {
        "id": name,
        "level": Level.MUST,
        "text": "It is as it was promised.",
        "source": (Source(kep=4381, section="API"),),
        "owners": (Owner.SCHEDULER, Owner.KUBELET),
        "since": "v1.36",
    }
    return Requirement.model_validate({**values, **more})


CATALOGUE = Catalogue(
    {
        "core": Area(
            title="The core",
            requirements=(
                needed("COR-01"),
                needed("COR-02", since="v1.38", level=Level.SHOULD),
                needed("COR-03", gates=("DRAFoo", "DRABar"), profile=Profile.ALPHA),
                needed("COR-04"),
            ),
        ),
        "quota": Area(title="Quota", requirements=(needed("QTA-01"),)),
    }
)
CHECKS = [
    Check("core/test_a.py::test_a", ("COR-01",)),
    Check("core/test_a.py::test_b", ("COR-01", "QTA-01"), nodes=3),
    Check("core/test_b.py::test_c", ("COR-02",)),
    Check("core/test_b.py::test_d", ("COR-03",)),
    Check("quota/test_q.py::test_e", ("QTA-01",), nodes=2),
]
BIG = Target("v1.38.0", Profile.ALPHA, 3)


def decisions(target: Target, *terms: str, skip: tuple[str, ...] = ()) -> Mapping[str, str | None]:
    made = plan.make(CATALOGUE, CHECKS, terms, target, skip=skip)
    return {each.requirement: each.decision for each in made}


RUN = None


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (BIG, [RUN, RUN, RUN, "not-covered", RUN]),
        (Target("v1.38.0", Profile.ALPHA, 4), [RUN, RUN, RUN, "not-covered", RUN]),
        (Target("v1.38.0", Profile.ALPHA, 2), ["blocked", RUN, RUN, "not-covered", "blocked"]),
        (Target("v1.38.0", Profile.GA, 3), [RUN, RUN, "blocked", "not-covered", RUN]),
        (Target("v1.37.2", Profile.ALPHA, 3), [RUN, "unsupported", RUN, "not-covered", RUN]),
        (Target("v1.38.0-rc.1", Profile.ALPHA, 3), [RUN, RUN, RUN, "not-covered", RUN]),
        (Target("v1.35.9", Profile.GA, 1), ["unsupported"] * 5),
    ],
)
def test_decisions_follow_version_profile_and_nodes(target: Target, expected: list[str | None]) -> None:
    assert list(decisions(target).values()) == expected


def test_each_decision_has_its_reason() -> None:
    made = {each.requirement: each for each in plan.make(CATALOGUE, CHECKS, (), NODES_2, skip=["COR-04"])}
    assert {name: (each.decision, each.reason) for name, each in made.items()} == {
        "COR-01": (Result.BLOCKED, "needs 3 real nodes; the cluster has 2"),
        "COR-02": (Result.UNSUPPORTED, "promised since v1.38; the cluster is v1.37.2"),
        "COR-03": (Result.BLOCKED, "needs the gates DRAFoo, DRABar: profile alpha"),
        "COR-04": (Result.SKIPPED, "left out by --skip"),
        "QTA-01": (Result.BLOCKED, "needs 3 real nodes; the cluster has 2"),
    }
    (planned,) = plan.make(CATALOGUE, CHECKS, ["COR-04"], NODES_2)
    assert (planned.decision, planned.reason) == (Result.NOT_COVERED, "no check exists yet")
    assert plan.make(CATALOGUE, CHECKS, ["COR-01"], BIG)[0].reason == ""


@pytest.mark.parametrize(
    ("skip", "skipped"),
    [
        (("QTA-01",), {"QTA-01"}),
        (("core",), {"COR-01", "COR-02", "COR-03", "COR-04"}),
        (("quota", "COR-04"), {"QTA-01", "COR-04"}),
        ((), set()),
    ],
)
def test_skip_takes_areas_and_ids(skip: tuple[str, ...], skipped: set[str]) -> None:
    found = decisions(BIG, skip=skip)
    assert {name for name, decision in found.items() if decision == "skipped"} == skipped


def test_terms_select_in_the_order_of_the_catalogue() -> None:
    assert list(decisions(BIG, "quota", "COR-02")) == ["COR-02", "QTA-01"]


@pytest.mark.parametrize("where", ["terms", "skip"])
def test_an_unknown_term_is_refused_with_a_hint(where: str) -> None:
    terms, skip = (["quotas"], []) if where == "terms" else ([], ["quotas"])
    with pytest.raises(UsageError, match=r"no area or requirement 'quotas'; did you mean quota"):
        plan.make(CATALOGUE, CHECKS, terms, BIG, skip=skip)


def test_a_planned_requirement_has_what_reports_show() -> None:
    (planned,) = plan.make(CATALOGUE, CHECKS, ["QTA-01"], BIG)
    assert planned.model_dump() == {
        "requirement": "QTA-01",
        "level": "MUST",
        "owner": "S,L",
        "text": "It is as it was promised.",
        "source": str(Source(kep=4381, section="API")),
        "area": "quota",
        "checks": ["core/test_a.py::test_b", "quota/test_q.py::test_e"],
        "decision": None,
        "reason": "",
    }


def test_a_check_of_two_requirements_runs_once() -> None:
    both = plan.make(CATALOGUE, CHECKS, ["COR-01", "QTA-01"], BIG)
    assert plan.to_run(both) == [
        "core/test_a.py::test_a",
        "core/test_a.py::test_b",
        "quota/test_q.py::test_e",
    ]
    assert plan.to_run(plan.make(CATALOGUE, CHECKS, ["COR-04"], BIG)) == []


def test_a_check_runs_also_if_only_one_of_its_requirements_is_selected() -> None:
    one = plan.make(CATALOGUE, CHECKS, ["COR-01"], BIG)
    assert plan.to_run(one) == ["core/test_a.py::test_a", "core/test_a.py::test_b"]


def test_a_check_whose_other_requirement_is_skipped_does_not_run() -> None:
    made = plan.make(CATALOGUE, CHECKS, ["COR-01", "QTA-01"], NODES_2, skip=["QTA-01"])
    assert [(each.requirement, each.decision, each.checks) for each in made] == [
        ("COR-01", None, ["core/test_a.py::test_a"]),  # test_b would have needed 3 nodes
        ("QTA-01", Result.SKIPPED, []),
    ]
    assert plan.to_run(made) == ["core/test_a.py::test_a"]


def test_a_check_whose_other_requirement_is_not_promised_does_not_run() -> None:
    later = Check("core/test_c.py::test_i", ("COR-01", "COR-02"))
    (old,) = plan.make(CATALOGUE, [CHECKS[0], later], ["COR-01"], Target("v1.37.2", Profile.GA, 1))
    assert (old.decision, old.checks) == (None, [CHECKS[0].id])
    (new,) = plan.make(CATALOGUE, [CHECKS[0], later], ["COR-01"], Target("v1.38.0", Profile.GA, 1))
    assert (new.decision, new.checks) == (None, [CHECKS[0].id, later.id])


@pytest.mark.parametrize("skip", [(), ("COR-02",)])
def test_a_requirement_whose_checks_are_all_left_out_says_so(skip: tuple[str, ...]) -> None:
    later = Check("core/test_c.py::test_i", ("COR-01", "COR-02"))
    target = Target("v1.38.0" if skip else "v1.37.2", Profile.GA, 1)
    (planned,) = plan.make(CATALOGUE, [later], ["COR-01"], target, skip=skip)
    assert (planned.decision, planned.reason, planned.checks) == (
        Result.SKIPPED,
        "its checks are for requirements too that are left out here",
        [],
    )


@pytest.mark.parametrize(
    ("profile", "decision"), [(Profile.GA, "blocked"), (Profile.ALPHA, None), (None, None)]
)
def test_a_check_may_need_alpha_where_its_requirement_does_not(
    profile: Profile | None, decision: str | None
) -> None:
    mixed = Check("core/test_c.py::test_j", ("COR-01", "COR-03"), profile=Profile.ALPHA)
    (planned,) = plan.make(CATALOGUE, [mixed], ["COR-01"], Target("v1.37.2", profile, 1))
    assert planned.decision == decision
    assert planned.reason == ("needs the gates of its checks: profile alpha" if decision else "")


WITHOUT = Check("core/test_d.py::test_k", ("COR-01",), driver=False)
STRANGER = Target(
    "v1.37.2", Profile.GA, 9, {"DRAFoo": True, "DRABar": True}, no_driver="no place for a driver"
)


def test_where_no_driver_can_run_only_checks_without_one_do() -> None:
    (alone,) = plan.make(CATALOGUE, CHECKS, ["COR-01"], STRANGER)
    assert (alone.decision, alone.reason) == (Result.BLOCKED, "no place for a driver")
    (mixed,) = plan.make(CATALOGUE, [*CHECKS, WITHOUT], ["COR-01"], STRANGER)
    assert (mixed.decision, len(mixed.checks)) == (
        None,
        3,
    )  # those with a driver say themselves that they can't


@pytest.mark.parametrize(
    ("gates", "decision"),
    [
        ({"DRAFoo": True, "DRABar": True}, None),
        ({"DRAFoo": True, "DRABar": False}, "blocked"),
        ({"DRAFoo": True}, "blocked"),
        ({}, "blocked"),
    ],
)
def test_gates_that_a_cluster_is_known_to_have_count(gates: dict[str, bool], decision: str | None) -> None:
    target = Target("v1.37.2", Profile.GA, 9, gates)
    assert decisions(target, "COR-03") == {"COR-03": decision}


def test_a_target_is_all_that_is_known_of_a_cluster(tmp_path: Path) -> None:
    node = Node("node-1", tmp_path, "/var/lib/kubelet", tmp_path)
    cluster = Cluster(
        name="c",
        provider="existing",
        kubernetes="v1.37.2",
        profile=Profile.GA,
        kubeconfig=tmp_path,
        nodes=(),
        nodes_elsewhere=("a", "b", "c"),
        directory=tmp_path,
        gates={"DRAFoo": False},
        id="c",
        driver_kubeconfig=tmp_path,
    )
    target = Target.of(cluster)
    assert (target.nodes, target.gates, target.profile) == (3, {"DRAFoo": False}, Profile.GA)
    assert target.no_driver == why_no_driver(cluster)
    assert "in pods, with --driver-image" in target.no_driver
    own = dataclasses.replace(cluster, nodes=(node,), nodes_elsewhere=())
    assert (Target.of(own).nodes, Target.of(own).no_driver) == (1, "")


def test_the_bound_of_a_release_is_the_catalogues_own() -> None:
    assert CATALOGUE.requirements["COR-02"].since == Bound("v1.38")


ALPHA_CHECK = Check("core/test_x.py::test_f", ("COR-03",), profile=Profile.ALPHA)
GATE_CHECK = Check("core/test_x.py::test_g", ("COR-01",), gates=(("DRAFoo", False),))
ALONE_CHECK = Check("core/test_x.py::test_h", ("COR-01",), exclusive=True)
FREE = Target("v1.37.2", None, 2)


def test_each_profile_and_set_of_gates_has_a_cluster_of_its_own() -> None:
    checks = [CHECKS[0], ALPHA_CHECK, GATE_CHECK, ALONE_CHECK]

    made = plan.groups([check.id for check in checks], checks, FREE)

    assert made == [
        plan.Group(Profile.ALPHA, (), together=(ALPHA_CHECK.id,), alone=()),
        plan.Group(Profile.GA, (), together=(CHECKS[0].id,), alone=(ALONE_CHECK.id,)),
        plan.Group(Profile.GA, (("DRAFoo", False),), together=(GATE_CHECK.id,), alone=()),
    ]


def test_a_chosen_profile_is_for_every_check_and_only_what_is_to_run_is_grouped() -> None:
    checks = [CHECKS[0], ALPHA_CHECK, GATE_CHECK]

    made = plan.groups([CHECKS[0].id, ALPHA_CHECK.id], checks, Target("v1.37.2", Profile.ALPHA, 2))

    assert made == [plan.Group(Profile.ALPHA, (), together=(CHECKS[0].id, ALPHA_CHECK.id), alone=())]


def test_a_cluster_that_is_up_takes_what_it_can() -> None:
    up = Target("v1.37.2", Profile.GA, 2, gates={"DRAFoo": False})
    without = Target("v1.37.2", Profile.GA, 2, gates={})

    blocked = plan.make(CATALOGUE, [GATE_CHECK], ["COR-01"], without)
    runs = plan.make(CATALOGUE, [GATE_CHECK], ["COR-01"], up)

    assert (blocked[0].decision, blocked[0].reason) == (
        Result.BLOCKED,
        "needs a cluster made with DRAFoo=false",
    )
    assert runs[0].decision is None
    assert plan.groups([GATE_CHECK.id], [GATE_CHECK], up) == [
        plan.Group(Profile.GA, (), together=(GATE_CHECK.id,), alone=())
    ]


def test_alpha_is_no_obstacle_where_the_run_makes_its_clusters() -> None:
    made = plan.make(CATALOGUE, [ALPHA_CHECK], ["COR-03"], FREE)

    assert made[0].decision is None


@pytest.mark.parametrize(
    ("check_gates", "gates", "reason"),
    [
        ((), {"DRAFoo": True}, ""),
        ((), {}, ""),
        ((), {"DRAFoo": False}, "needs the gates DRAFoo, which the cluster has off"),
        ((("DRAFoo", False),), {"DRAFoo": False}, ""),
        ((("DRAFoo", False),), {"DRAFoo": True}, "needs a cluster made with DRAFoo=false"),
    ],
)
def test_a_gate_that_is_on_by_default_and_off_here_blocks(
    check_gates: tuple[tuple[str, bool], ...], gates: dict[str, bool], reason: str
) -> None:
    """Somebody turned it off: the cluster does not break what it does not promise."""
    requirement = needed("COR-01", gates=("DRAFoo",))
    catalogue = Catalogue({"core": Area(title="The core", requirements=(requirement,))})
    check = Check("core/test_x.py::test_g", ("COR-01",), gates=check_gates)

    (planned,) = plan.make(catalogue, [check], (), Target("v1.37.2", Profile.GA, 2, gates))

    assert planned.reason == reason
    assert planned.decision == (Result.BLOCKED if reason else None)
