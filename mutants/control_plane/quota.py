"""Control planes that break a promise about resource quotas for devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from harness.kube import Object
from mutants.changes import Answer, Ask, Judge, Mutant, Request, See, accept, edit, metric, refuse, reword

_SPECIAL = "resource.kubernetes.io/extended-resource-claim"
_IMPLICIT = "requests.deviceclass.resource.kubernetes.io/"
_CLAIM_CREATIONS = (
    "dynamic_resource_allocation_resourceclaim_creates_total",
    "scheduler_resourceclaim_creates_total",
)


def _for_real(request: Request) -> bool:
    """Whether it isn't a dry run, by which checks find out whether a quota is in force."""
    return "dryRun" not in request.query


# Claims are charged as if they asked for something else.


def _claims(change: Callable[[Object], None]) -> Ask:
    """Claims are created with another spec."""

    def ask(request: Request) -> None:
        if request.verb == "create" and request.target == "resourceclaims" and _for_real(request):
            change(request.body)

    return ask


def _requests(change: Callable[[Object], None]) -> Ask:
    """Claims are created with other requests; a first-available one is changed alternative by alternative."""

    def change_all(claim: Object) -> None:
        for request in claim["spec"]["devices"]["requests"]:
            for part in request.get("firstAvailable") or [request["exactly"]]:
                change(part)

    return _claims(change_all)


def _one_device(request: Object) -> None:
    if "count" in request:
        request["count"] = 1


def _one_for_all(request: Object) -> None:
    if request["allocationMode"] == "All":
        request |= {"allocationMode": "ExactCount", "count": 1}


def _first_request(claim: Object) -> None:
    del claim["spec"]["devices"]["requests"][1:]


def _first_alternative(claim: Object) -> None:
    for request in claim["spec"]["devices"]["requests"]:
        if alternatives := request.get("firstAvailable"):
            del alternatives[1:]


def _all_alternatives(claim: Object) -> None:
    """As requests of their own, the alternatives add up."""
    devices = claim["spec"]["devices"]
    devices["requests"] = [
        {
            "name": f"{request['name']}-{part['name']}",
            "exactly": {k: v for k, v in part.items() if k != "name"},
        }
        for request in devices["requests"]
        for part in request.get("firstAvailable", ())
    ]


def _the_pods_device_deducted(claim: Object) -> None:
    for request in claim["spec"]["devices"]["requests"]:
        request["exactly"]["count"] -= 1


def _admin_access_is_free(request: Request) -> Answer | None:
    if request.verb != "create" or request.target != "resourceclaims" or not _for_real(request):
        return None
    requests = request.body["spec"]["devices"]["requests"]
    free = any(each.get("exactly", {}).get("adminAccess") for each in requests)
    return Answer(201, request.body) if free else None


def _later_imitations_are_free() -> Ask:
    """Of the claims that pass for a pod's special claim, only the first is made and charged."""
    seen: set[str] = set()

    def ask(request: Request) -> Answer | None:
        if request.verb != "create" or request.target != "resourceclaims" or not _for_real(request):
            return None
        metadata = request.body["metadata"]
        if _SPECIAL not in metadata.get("annotations", {}):
            return None
        owner = metadata["ownerReferences"][0]["uid"]
        if owner in seen:
            return Answer(201, request.body)
        seen.add(owner)
        return None

    return ask


def _no_limit(request: Request, answer: Answer) -> Answer:
    """Claims beyond the quota are accepted, once the check knows that the quota is in force."""
    return accept("create", "resourceclaims", 403)(request, answer) if _for_real(request) else answer


# What pods are charged.


def _extended_resources(pod: Object) -> Counter[str]:
    found: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        limits = container.get("resources", {}).get("limits", {})
        found.update({name: int(amount) for name, amount in limits.items() if "/" in name})
    return found


def _without_devices(request: Request) -> None:
    """The pod makes no special claim, so none is charged."""
    if request.verb == "create" and request.target == "pods":
        for container in request.body["spec"]["containers"]:
            container["resources"] = {}


def _charged_again(entries: Callable[[str, Counter[str]], int]) -> tuple[Judge, See]:
    """Quotas show more use, by what was asked for by the pods that were made in their namespace.

    Args:
        entries: name of a quota's entry, the amounts by resource name -> how much more.
    """
    made: dict[str, Counter[str]] = {}

    def judge(request: Request, answer: Answer) -> Answer:
        created = request.verb == "create" and request.target == "pods" and answer.status == 201
        if created and _for_real(request):
            made.setdefault(request.namespace, Counter()).update(_extended_resources(request.body))
        return answer

    def see(request: Request, obj: Object) -> Object:
        if request.target == "resourcequotas":
            used = obj.get("status", {}).get("used", {})
            for entry, amount in used.items():
                more = entries(entry, made.get(obj["metadata"]["namespace"], Counter()))
                used[entry] = str(int(amount) + more)
        return obj

    return judge, see


def _by_its_own_name(entry: str, amounts: Counter[str]) -> int:
    return amounts[entry.removeprefix("requests.")]


def _by_explicit_names(entry: str, amounts: Counter[str]) -> int:
    if not entry.startswith(_IMPLICIT):
        return 0
    return sum(amount for name, amount in amounts.items() if not f"requests.{name}".startswith(_IMPLICIT))


_TWICE = _charged_again(_by_its_own_name)
_EXPLICIT_TOO = _charged_again(_by_explicit_names)


# What the controller counts, and what is said.


def _recounts_differ(request: Request, obj: Object) -> Object:
    """Quotas that are new, so that only the controller has counted them, show one device more."""
    if request.target == "resourcequotas" and "-recount-" in obj["metadata"]["name"]:
        used = obj.get("status", {}).get("used", {})
        used |= {entry: str(int(amount) + 1) for entry, amount in used.items()}
    return obj


def _never_less() -> See:
    """The use of a quota never goes down."""
    most: dict[tuple[str, str, str], int] = {}

    def see(request: Request, obj: Object) -> Object:
        if request.target == "resourcequotas":
            metadata, used = obj["metadata"], obj.get("status", {}).get("used", {})
            for entry, amount in used.items():
                key = (metadata["namespace"], metadata["name"], entry)
                most[key] = max(most.get(key, 0), int(amount))
                used[entry] = str(most[key])
        return obj

    return see


def _not_by_quota(message: Any) -> str:
    return str(message).replace("exceeded quota", "not enough room")


_TESTS = "quota/test_claims.py::"
_MOST = f"{_TESTS}test_a_claim_is_charged_the_most_it_may_take"
_IMITATIONS = f"{_TESTS}test_imitations_are_charged"
_SPECIAL_CLAIM = "quota/test_extended_resources.py::test_a_special_claim_is_charged_like_any_other"
_WAITS = "quota/test_extended_resources.py::test_a_pod_waits_for_the_quota_of_its_claim"

MUTANTS = (
    Mutant(
        "one-device-per-request",
        "a request is charged as one device, however many it asks for",
        kills=(f"{_MOST}[count]", f"{_MOST}[several-requests]", "QTA-09"),
        asks=(_requests(_one_device),),
    ),
    Mutant(
        "all-is-one",
        "a request for all devices is charged as one",
        kills=(f"{_MOST}[all]", f"{_MOST}[alternatives-of-all]"),
        asks=(_requests(_one_for_all),),
    ),
    Mutant(
        "first-request-only",
        "only the first request of a claim is charged",
        kills=(f"{_MOST}[several-requests]", f"{_MOST}[alternatives-of-all]"),
        asks=(_claims(_first_request),),
    ),
    Mutant(
        "first-alternative-only",
        "of alternatives the first is charged, not the most",
        kills=(f"{_MOST}[alternatives]", f"{_MOST}[alternatives-of-all]"),
        asks=(_claims(_first_alternative),),
    ),
    Mutant(
        "alternatives-add-up",
        "alternatives are charged one and all",
        kills=(f"{_MOST}[alternatives]", f"{_MOST}[alternatives-of-all]"),
        asks=(_claims(_all_alternatives),),
    ),
    Mutant(
        "quota-without-limit",
        "claims are charged, and accepted beyond the quota",
        kills=(f"{_MOST}[count]", "QTA-08"),
        judges=(_no_limit,),
    ),
    Mutant(
        "controller-counts-more",
        "the quota controller counts more than admission charges",
        kills=("QTA-03", "QTA-04", "QTA-05", f"{_MOST}[all]"),
        sees=(_recounts_differ,),
    ),
    Mutant(
        "special-claims-uncharged",
        "the special claim of a pod is charged neither as a claim nor for its devices",
        kills=("QTA-02",),
        asks=(_without_devices,),
    ),
    Mutant(
        "devices-not-given-back",
        "what was charged for a special claim stays charged when it is gone",
        kills=(f"{_SPECIAL_CLAIM}[explicit]",),
        sees=(_never_less(),),
    ),
    Mutant(
        "pods-charged-twice",
        "a pod is charged once for itself and once more for its special claim",
        kills=("QTA-03", "QTA-05", f"{_IMITATIONS}_beside_a_special_claim"),
        judges=(_TWICE[0],),
        sees=(_TWICE[1],),
    ),
    Mutant(
        "implicit-covers-device-plugins",
        "the quota by the implicit name is charged for what pods ask for by the explicit one, plugin or not",
        kills=("QTA-04", "QTA-05"),
        judges=(_EXPLICIT_TOO[0],),
        sees=(_EXPLICIT_TOO[1],),
    ),
    Mutant(
        "pod-refused-for-its-claim",
        "a pod whose special claim is beyond the quota is refused itself",
        kills=(_WAITS,),
        asks=(refuse("create", "pods", 403, "Forbidden", "exceeded quota: quota"),),
    ),
    Mutant(
        "events-without-quota",
        "the events of a pod that waits for quota don't say so",
        kills=(_WAITS,),
        sees=(edit("events", "message", _not_by_quota),),
    ),
    Mutant(
        "failed-creations-uncounted",
        "the scheduler counts no creations of claims",
        kills=("quota/test_extended_resources.py::test_failed_creations_of_claims_are_counted",),
        reads=tuple(metric(name, 0, "kube-scheduler") for name in _CLAIM_CREATIONS),
    ),
    Mutant(
        "imitations-uncharged",
        "of the claims that pass for a pod's special claim, only the first is charged (k/k#135404)",
        kills=(_IMITATIONS,),
        asks=(_later_imitations_are_free(),),
    ),
    Mutant(
        "deducted-for-any-claim",
        "the pod's devices are deducted from claims that aren't quite like its special claim",
        kills=(f"{_TESTS}test_a_poor_imitation_is_charged_in_full",),
        asks=(_claims(_the_pods_device_deducted),),
    ),
    Mutant(
        "admin-access-uncharged",
        "claims for admin access are not charged",
        kills=("QTA-08",),
        asks=(_admin_access_is_free,),
    ),
    Mutant(
        "uncounted-quota-passes",
        "pods are accepted while a limit has no computed use",
        kills=("QTA-10",),
        judges=(accept("create", "pods", 403),),
    ),
    Mutant(
        "uncounted-quota-unnamed",
        "the refusal for lack of a computed use doesn't say which limit has none",
        kills=("QTA-10",),
        judges=(reword("pods", "status unknown for quota: quota"),),
    ),
)
