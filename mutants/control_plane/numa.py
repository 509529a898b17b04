"""What programs get to read about NUMA nodes, broken on the way to them.

That devices are placed by their NUMA nodes rests on constraints, whose mutants are in `list_attributes`.
"""

from __future__ import annotations

from harness.kube import Object
from mutants.changes import Mutant, drop, edit
from suites.topology import NUMA_NODE

_ATTRIBUTES = "spec.devices.*.attributes"


def _zero_for_none(attributes: Object | None) -> Object:
    return {NUMA_NODE: {"int": 0}, **(attributes or {})}


MUTANTS = (
    Mutant(
        "client-without-lists",
        "programs read through a client that is older than lists, and drops them",
        kills=("LST-09",),
        sees=tuple(
            drop("resourceslices", f"{_ATTRIBUTES}.*.{form}")
            for form in ("bools", "ints", "strings", "versions")
        ),
    ),
    Mutant(
        "zero-for-unknown",
        "programs read NUMA node 0 where a device says nothing",
        kills=("NUM-07", "NUM-10"),
        sees=(edit("resourceslices", _ATTRIBUTES, _zero_for_none),),
    ),
)
