"""Control planes that break a promise about claims while API priority and fairness rejects requests."""

from __future__ import annotations

import itertools

from clusters.metrics import APISERVER, CONTROLLER_MANAGER, SCHEDULER
from mutants.changes import Mutant, Read, Request, drop, edit, freeze, invent, metric, put
from mutants.control_plane.extended_resource import LEFTOVER, unschedulable

_SPECIAL = "apf/test_special_claims.py::"
_REJECTED = "apiserver_flowcontrol_rejected_requests_total"


def _rises(name: str, labels: str) -> Read:
    """Each reading of the API server's metrics has counted one more."""
    count = itertools.count(1)

    def read(request: Request, text: str) -> str:
        if request.component != APISERVER or request.path != "/metrics":
            return text
        return f"{text}{name}{{{labels}}} {next(count)}\n"

    return read


MUTANTS = (
    Mutant(
        "bound-without-its-claim",
        "a pod is bound although its claim was rejected",
        kills=("APF-01",),
        sees=(edit("pods", "spec.nodeName", lambda node: node or "somewhere"),),
    ),
    Mutant(
        "lost-after-a-rejection",
        "a pod whose claim was rejected is never tried again",
        kills=("APF-01",),
        sees=(freeze("pods", unschedulable),),
    ),
    Mutant(
        "claim-failures-not-counted",
        "the scheduler does not count the creations that fail",
        kills=("APF-02",),
        reads=(
            metric("dynamic_resource_allocation_resourceclaim_creates_total", 0, SCHEDULER),
            metric("scheduler_resourceclaim_creates_total", 0, SCHEDULER),
        ),
    ),
    Mutant(
        "rejections-not-counted",
        "the API server does not count the requests that it rejects",
        kills=("APF-04",),
        reads=(metric(_REJECTED, 0),),
    ),
    Mutant(
        "claims-without-reservation",
        "a pod's claim is not reserved for it",
        kills=(f"{_SPECIAL}test_the_books_balance_after_a_storm",),
        sees=(drop("resourceclaims", "status.reservedFor"),),
    ),
    Mutant(
        "claims-without-pods-after-a-storm",
        "a claim without a pod stays",
        kills=(f"{_SPECIAL}test_the_books_balance_after_a_storm[creation]",),
        judges=(invent("resourceclaims", LEFTOVER),),
    ),
    Mutant(
        "claim-failure-without-its-reason",
        "the event on a pod whose claim can't be made has another reason",
        kills=("APF-05",),
        sees=(put("events", "reason", "Failed"),),
    ),
    Mutant(
        "controller-does-not-retry",
        "the claim controller counts no retries",
        kills=("APF-05",),
        reads=(metric("workqueue_retries_total", 0, CONTROLLER_MANAGER),),
    ),
    Mutant(
        "throttled-pods-fail",
        "a pod whose claim can't be read fails at once",
        kills=("APF-06",),
        sees=(edit("pods", "status.phase", lambda phase: "Failed" if phase == "Pending" else phase),),
    ),
    Mutant(
        "rejects-by-default",
        "the API server's default limits reject requests",
        kills=("APF-07",),
        reads=(_rises(_REJECTED, 'flow_schema="service-accounts",reason="queue-full"'),),
    ),
)
