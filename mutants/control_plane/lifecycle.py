"""Control planes on which pods seem to start, or to go, before their claims are ready for that."""

from __future__ import annotations

import uuid

from harness.kube import Object
from mutants.changes import Answer, Mutant, Request, edit, hide, ignore, rewrite

_PREPARING = "lifecycle/test_preparing.py::"
_RESTARTS = "lifecycle/test_kubelet_restarts.py::"
_FAILED_STARTS = ("LIF-03", "LIF-12", "LIF-13")


def _states(pod: Object) -> list[Object]:
    status = pod.get("status", {})
    statuses = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return [state for each in statuses for state in each.get("state", {}).values()]


def _started_at_once(request: Request, obj: Object) -> Object:
    """Containers are seen as started when their pod was created."""
    if request.resource == "pods":
        for state in _states(obj):
            if "startedAt" in state:
                state["startedAt"] = obj["metadata"]["creationTimestamp"]
    return obj


def _restarted(request: Request, obj: Object) -> Object:
    """The containers of a pod are other ones each time that somebody looks."""
    if request.resource == "pods":
        for each in obj.get("status", {}).get("containerStatuses", ()):
            each["containerID"] = f"containerd://{uuid.uuid4()}"
    return obj


def _runs(request: Request, obj: Object) -> Object:
    """A pod runs as soon as it is on a node."""
    if request.resource == "pods" and obj.get("spec", {}).get("nodeName"):
        obj["status"]["phase"] = "Running"
    return obj


def _only_used_claims(pod: Object) -> None:
    """A pod's claims that no container uses are taken out."""
    containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    used = {claim["name"] for each in containers for claim in each["resources"].get("claims", ())}
    claims = [each for each in pod["spec"].get("resourceClaims", ()) if each["name"] in used]
    pod["spec"]["resourceClaims"] = claims


class _Remembered:
    """What was there once is seen for good: lists of slices that were not empty, and pods that are going."""

    def __init__(self) -> None:
        self._seen: dict[str, Answer] = {}

    def slices(self, request: Request, answer: Answer) -> Answer:
        """Lists of slices, by what they select."""
        if request.verb != "list" or request.target != "resourceslices":
            return answer
        return self._last(
            f"{request.path}?{sorted(request.query.items())}", answer, bool(answer.body["items"])
        )

    def pods(self, request: Request, answer: Answer) -> Answer:
        """A single pod, once it is Terminating."""
        if request.verb != "get" or request.target != "pods":
            return answer
        going = "deletionTimestamp" in answer.body.get("metadata", {})
        return self._last(request.path, answer, going) if going or answer.status == 404 else answer

    def _last(self, key: str, answer: Answer, is_there: bool) -> Answer:
        if is_there:
            self._seen[key] = answer
        return self._seen.get(key, answer)


def _by_force(request: Request) -> bool:
    return isinstance(request.body, dict) and request.body.get("gracePeriodSeconds") == 0


_remembered = _Remembered()

MUTANTS = (
    Mutant(
        "containers-start-at-once",
        "containers start before the claims of their pod are prepared",
        kills=(f"{_PREPARING}test_no_container_starts_before_the_end",),
        sees=(_started_at_once,),
    ),
    Mutant(
        "runs-unprepared",
        "a pod runs although its claims can't be prepared",
        kills=(*_FAILED_STARTS, f"{_RESTARTS}test_what_was_left_to_do_is_done[prepare]"),
        sees=(_runs,),
    ),
    Mutant(
        "silent-failures",
        "nobody is told that a claim can't be prepared",
        kills=_FAILED_STARTS,
        sees=(hide("events", lambda event: event.get("reason") == "FailedPrepareDynamicResources"),),
    ),
    Mutant(
        "gone-while-prepared",
        "a pod is gone before its claims are unprepared",
        kills=("LIF-04",),
        sees=(hide("pods", lambda pod: "deletionTimestamp" in pod["metadata"]),),
    ),
    Mutant(
        "unused-claims-ignored",
        "claims that no container uses are not prepared",
        kills=("lifecycle/test_containers.py::test_a_claim_that_no_container_uses",),
        asks=(rewrite("pods", _only_used_claims),),
    ),
    Mutant(
        "slices-made-anew",
        "slices go with their driver at once, and are other ones when it is back",
        kills=("lifecycle/test_slices.py::test_slices_of_a_driver_that_stays_away_go",),
        sees=(edit("resourceslices", "metadata.uid", lambda _: str(uuid.uuid4())),),
    ),
    Mutant(
        "restarts-with-the-kubelet",
        "a kubelet that restarts restarts the containers of its pods",
        kills=(f"{_RESTARTS}test_running_pods_are_left_alone",),
        sees=(_restarted,),
    ),
    Mutant(
        "slices-for-ever",
        "slices of a driver that is away are not deleted",
        kills=("LIF-06",),
        judges=(_remembered.slices,),
    ),
    Mutant(
        "terminating-for-ever",
        "a pod stays although its claims are unprepared",
        kills=("LIF-04", f"{_RESTARTS}test_what_was_left_to_do_is_done[unprepare]"),
        judges=(_remembered.pods,),
    ),
    Mutant(
        "pods-outlive-force",
        "kubelets go on with a pod that was deleted by force",
        kills=("LIF-13", f"{_RESTARTS}test_nothing_is_prepared_for_a_pod_that_is_gone"),
        asks=(ignore("delete", "pods", _by_force),),
    ),
)
