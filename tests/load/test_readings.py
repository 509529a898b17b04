from __future__ import annotations

from load.model import Cause
from load.scenarios import readings
from tests.support.load_results import worker_report


def test_accepted_are_all_but_those_that_were_never_sent_or_were_refused() -> None:
    """Of 36 pods 3 + 5 + 1 were accepted, whatever became of them."""
    causes = {
        **dict.fromkeys(Cause, 0),
        Cause.COMPLETED: 3,
        Cause.NOT_BOUND: 5,
        Cause.EVICTED: 1,
        Cause.DROPPED_BY_GENERATOR: 2,
        Cause.APF_REJECTED: 4,
        Cause.QUOTA_DENIED: 6,
        Cause.QUOTA_CONFLICT: 1,
        Cause.REFUSED: 3,
        Cause.SERVER_ERROR: 4,
        Cause.UNREACHABLE: 7,
    }
    report = worker_report(intended=36, causes=causes)

    assert readings.accepted(report) == 9
    assert readings.unfinished(report) == 5
