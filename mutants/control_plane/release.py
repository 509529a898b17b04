"""The release itself: its known deviations are promises that are truly broken."""

from __future__ import annotations

from mutants.changes import Mutant

MUTANTS = (
    Mutant(
        "as-released",
        "nothing is changed: known deviations of the release fail on it",
        kills=(),
        neighbours=(
            "APF-03",
            "ER-10",
            "extended_resource/test_classes.py::test_a_class_that_gives_way_keeps_its_implicit_name",
            "list_attributes/test_gates.py::test_without_the_gate_nothing_overlaps_unseen",
            "taints/test_eviction.py::test_no_new_pod_reserves_a_tainted_claim",
            "taints/test_eviction.py::test_a_wide_toleration_keeps_the_pod",
            "taints/test_limits.py::test_tolerations_of_a_request",
        ),
    ),
)
