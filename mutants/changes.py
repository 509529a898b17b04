"""What an API mutant does: small changes of what is asked of the API server and of what it answers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.kube import Object

Path = str | Sequence[str]
"""`spec.devices.requests.*.count`, or a sequence where a key has a dot; `*` is every item or key."""


@dataclass
class Request:
    """A request on its way to the API server."""

    verb: str
    """get, list, watch, create, update, patch, delete, deletecollection; outside the API, the method."""
    component: str
    path: str
    resource: str = ""
    """Plural, such as resourceclaims; empty outside the API (`/metrics`, `/version`)."""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    @property
    def target(self) -> str:
        """resource, or resource/subresource."""
        return "/".join(filter(None, (self.resource, self.subresource)))


@dataclass(frozen=True)
class Answer:
    """What the client gets."""

    status: int
    body: Any


Ask = Callable[[Request], Answer | None]
"""Changes a request in place, or answers it instead of the server."""
See = Callable[[Request, Object], Object | None]
"""Returns an object as the client is to see it; None hides it."""
Judge = Callable[[Request, Answer], Answer]
"""Changes a whole answer."""
Read = Callable[[Request, str], str]
"""Changes an answer that isn't JSON: metrics, logs."""


@dataclass(frozen=True)
class Mutant:
    """A control plane that breaks one promise, as far as checks can tell."""

    name: str
    says: str
    """What is broken, in a sentence."""
    kills: Sequence[str]
    """Requirement IDs whose checks must fail, or beginnings of the node ids of single checks."""
    neighbours: Sequence[str] = ()
    """Likewise, checks that may fail with it, since they stand on the same promise."""
    quirks: Sequence[str] = ()
    """Seeded faults of every bundled driver (fake_driver.config.Quirk)."""
    gates: Mapping[str, bool] = field(default_factory=dict)
    """Feature gates of a cluster of its own, in which the promise is truly broken."""
    asks: Sequence[Ask] = ()
    sees: Sequence[See] = ()
    judges: Sequence[Judge] = ()
    reads: Sequence[Read] = ()

    def ask(self, request: Request) -> Answer | None:
        """What becomes of a request: an answer, or None to pass it on as it now is."""
        for change in self.asks:
            if (answer := change(request)) is not None:
                return answer
        return None

    def answer(self, request: Request, answer: Answer) -> Answer:
        """What the client sees of an answer with a JSON body."""
        for judge in self.judges:
            answer = judge(request, answer)
        body = answer.body
        if answer.status >= 400 or not isinstance(body, dict) or not self.sees:
            return answer
        if isinstance(body.get("items"), list):
            seen = [self._see(request, item) for item in body["items"]]
            return Answer(answer.status, body | {"items": [item for item in seen if item is not None]})
        seen_one = self._see(request, body)
        return not_found(request) if seen_one is None else Answer(answer.status, seen_one)

    def event(self, request: Request, event: Object) -> Object | None:
        """What the client sees of a watch event."""
        if event.get("type") not in ("ADDED", "MODIFIED", "DELETED"):
            return event
        seen = self._see(request, event["object"])
        return None if seen is None else event | {"object": seen}

    def answer_text(self, request: Request, text: str) -> str:
        """What the client sees of an answer that isn't JSON."""
        for read in self.reads:
            text = read(request, text)
        return text

    def _see(self, request: Request, obj: Object) -> Object | None:
        seen: Object | None = copy.deepcopy(obj)
        for see in self.sees:
            if seen is None:
                return None
            seen = see(request, seen)
        return seen


def parse_path(method: str, component: str, path: str, query: Mapping[str, str]) -> Request:
    """Say what a request is about, as the API server's request info does.

    https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
    """
    parts = [part for part in path.split("/") if part]
    prefix = {"api": 2, "apis": 3}.get(parts[0] if parts else "", 0)
    parts = parts[prefix:] if prefix else []
    if not parts:
        return Request(method, component, path, query=query)
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in ("status", "finalize"):
        namespace, parts = parts[1], parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    return Request(
        verb=_verb(method, name, query),
        component=component,
        path=path,
        resource=parts[0],
        subresource=parts[2] if len(parts) > 2 else "",
        namespace=namespace,
        name=name,
        query=query,
    )


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method == "GET":
        if query.get("watch") in ("true", "1"):
            return "watch"
        return "get" if name else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method, method)


def not_found(request: Request) -> Answer:
    """The answer for an object that isn't there."""
    message = f'{request.resource} "{request.name}" not found'
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
    return Answer(404, body | {"message": message})


# Changes of what is seen.


def drop(resource: str, path: Path) -> See:
    """Objects of a resource are seen without a field."""
    return _on(resource, lambda obj: _change(obj, path, _remove))


def put(resource: str, path: Path, value: Any) -> See:
    """Objects of a resource are seen with another value of a field; missing parents are made."""
    return edit(resource, path, lambda _: copy.deepcopy(value))


def edit(resource: str, path: Path, change: Callable[[Any], Any]) -> See:
    """Objects of a resource are seen with a changed field; `change` gets the old value, or None."""

    def assign(parent: Any, key: Any) -> None:
        old = parent.get(key) if isinstance(parent, dict) else parent[key]
        parent[key] = change(old)

    return _on(resource, lambda obj: _change(obj, path, assign, make=True))


def hide(resource: str, when: Callable[[Object], bool] = lambda obj: True) -> See:
    """Objects of a resource that meet a condition aren't seen."""

    def see(request: Request, obj: Object) -> Object | None:
        return None if request.resource == resource and when(obj) else obj

    return see


def freeze(resource: str, when: Callable[[Object], bool]) -> See:
    """An object that has once met a condition is seen like this for good, as if nobody touched it."""
    frozen: dict[str, Object] = {}

    def see(request: Request, obj: Object) -> Object:
        if request.target != resource:
            return obj
        uid = obj["metadata"]["uid"]
        if when(obj):
            frozen.setdefault(uid, copy.deepcopy(obj))
        return copy.deepcopy(frozen.get(uid, obj))

    return see


def _on(resource: str, change: Callable[[Object], None]) -> See:
    def see(request: Request, obj: Object) -> Object:
        if request.target == resource or (request.resource == resource and request.subresource == "status"):
            change(obj)
        return obj

    return see


# Changes of what is asked: the cluster then does as if it ignored a field.


def strip(resource: str, path: Path) -> Ask:
    """What is written to a resource goes without a field, as if the cluster ignored it."""
    return rewrite(resource, lambda body: _change(body, path, _remove))


def rewrite(resource: str, change: Callable[[Any], None]) -> Ask:
    """What is written to a resource (or resource/subresource) is changed, in place."""

    def ask(request: Request) -> None:
        if request.target == resource and request.verb in ("create", "update", "patch"):
            change(request.body)

    return ask


def ignore(verb: str, resource: str, when: Callable[[Request], bool] = lambda request: True) -> Ask:
    """A verb on a resource (or resource/subresource) is answered as done, and isn't."""

    def ask(request: Request) -> Answer | None:
        if request.verb != verb or request.target != resource or not when(request):
            return None
        body = request.body if isinstance(request.body, dict) else {"kind": "Status", "status": "Success"}
        return Answer(201 if verb == "create" else 200, body)

    return ask


# Changes of whole answers.


def accept(verb: str, resource: str, *statuses: int) -> Judge:
    """Refusals of a verb on a resource are answered as success: what must be refused seems to be allowed."""

    def judge(request: Request, answer: Answer) -> Answer:
        refused = answer.status in (statuses or (400, 403, 409, 422))
        if refused and request.verb == verb and request.target == resource:
            return Answer(201 if verb == "create" else 200, request.body)
        return answer

    return judge


def refuse(
    verb: str,
    resource: str,
    status: int,
    reason: str,
    message: str,
    when: Callable[[Request], bool] = lambda request: True,
) -> Ask:
    """A verb on a resource (or resource/subresource) is refused, though it must be allowed."""

    def ask(request: Request) -> Answer | None:
        if request.verb != verb or request.target != resource or not when(request):
            return None
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
        return Answer(status, body | {"reason": reason, "message": message})

    return ask


def invent(resource: str, obj: Object) -> Judge:
    """Every list of a resource has one object more than there are."""

    def judge(request: Request, answer: Answer) -> Answer:
        if request.verb != "list" or request.target != resource or answer.status >= 400:
            return answer
        return Answer(answer.status, answer.body | {"items": [*answer.body["items"], copy.deepcopy(obj)]})

    return judge


def reword(resource: str, message: str) -> Judge:
    """Refusals about a resource come with another message: refused, but not for the stated reason."""

    def judge(request: Request, answer: Answer) -> Answer:
        if answer.status >= 400 and request.resource == resource and isinstance(answer.body, dict):
            return Answer(answer.status, answer.body | {"message": message})
        return answer

    return judge


# Changes of metrics.


def metric(name: str, value: float, component: str = "") -> Read:
    """Every sample of a metric has another value; a component's, or everybody's."""

    def read(request: Request, text: str) -> str:
        if "metrics" not in request.path or (component and request.component != component):
            return text
        lines = [
            f"{line.rsplit(' ', 1)[0]} {value}" if line.startswith((f"{name} ", f"{name}{{")) else line
            for line in text.split("\n")
        ]
        return "\n".join(lines)

    return read


def _change(obj: Any, path: Path, act: Callable[[Any, Any], object], *, make: bool = False) -> None:
    keys = path.split(".") if isinstance(path, str) else list(path)
    for parent, key in reversed(list(_places(obj, keys, make=make))):  # from the end: items may go
        act(parent, key)


def _remove(parent: Any, key: Any) -> None:
    if isinstance(parent, list) or key in parent:
        del parent[key]


def _places(obj: Any, keys: Sequence[str], *, make: bool) -> Iterator[tuple[Any, Any]]:
    first, *rest = keys
    if isinstance(obj, list):
        places = range(len(obj)) if first == "*" else [int(first)] if first.isdigit() else []
        found: list[Any] = [place for place in places if place < len(obj)]
    elif isinstance(obj, dict):
        found = list(obj) if first == "*" else [first]
    else:
        return
    for key in found:
        if not rest:
            yield obj, key
            continue
        if make and isinstance(obj, dict) and obj.get(key) is None:
            obj[key] = {}
        child = obj.get(key) if isinstance(obj, dict) else obj[key]
        yield from _places(child, rest, make=make)
