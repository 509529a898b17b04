"""The release itself: its known deviations are promises that are truly broken."""

from __future__ import annotations

from mutants.changes import Mutant

MUTANTS = (
    Mutant(
        "as-released",
        "nothing is changed: known deviations of the release fail on it",
        kills=(),
        neighbours=("APF-03", "ER-10", "LST-07", "TNT-04", "TNT-08", "TNT-12", "HLT-08"),
    ),
)
