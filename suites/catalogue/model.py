"""What the catalogue holds: areas, requirements, and the known upstream deviations from them."""

from __future__ import annotations

import datetime
import difflib
import enum
import hashlib
import json
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import pydantic

from clusters.interface import Profile
from harness.errors import UsageError
from suites.catalogue.sources import Source
from suites.catalogue.version import Bound, Version, VersionRange

AREAS: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {
        "extended-resource": ("ER",),
        "apf": ("APF",),
        "quota": ("QTA",),
        "taints": ("TNT",),
        "metadata": ("MD",),
        "list-attributes": ("LST",),
        "numa": ("NUM",),
        "partitionable": ("PRT",),
        "prioritized-list": ("PRI",),
        "consumable-capacity": ("CAP",),
        "admin-access": ("ADM",),
        "claim-status": ("CST",),
        "binding-conditions": ("BND",),
        "health": ("HLT",),
        "podresources": ("PRS",),
        "rbac": ("RBC",),
        "lifecycle": ("LIF",),
        "upgrade": ("UPG",),
        "checklist": ("CHK",),
        "core": ("COR", "OPT"),
    }
)
"""Area name to the prefixes of its requirement IDs, in the order of the catalogue."""

_AREA_OF_PREFIX = {prefix: area for area, prefixes in AREAS.items() for prefix in prefixes}


class Level(enum.StrEnum):
    """How binding a requirement is, in the words of RFC 2119."""

    MUST = "MUST"
    MUST_NOT = "MUST NOT"
    SHOULD = "SHOULD"
    MAY = "MAY"


class Owner(enum.StrEnum):
    """Who keeps a promise. Only a driver's own requirements can fail a vendor's certificate."""

    APISERVER = "apiserver"
    SCHEDULER = "scheduler"
    CONTROLLER_MANAGER = "controller-manager"
    KUBELET = "kubelet"
    DRIVER = "driver"
    RUNTIME = "runtime"
    OPERATOR = "operator"

    @property
    def letter(self) -> str:
        """The one-letter code of run events: A, S, C, L, D, R or O."""
        return "L" if self is Owner.KUBELET else self.value[0].upper()


class Form(enum.StrEnum):
    """How a pod names an extended resource."""

    EXPLICIT = "explicit"
    """By the device class's `extendedResourceName`."""
    IMPLICIT = "implicit"
    """As `deviceclass.resource.kubernetes.io/<class>`, which every class has."""


class Scope(enum.StrEnum):
    """Where a deviation lives."""

    CLUSTER = "cluster"
    """In Kubernetes itself."""
    GO_HELPER = "go-helper"
    """In upstream's Go library for drivers: only drivers that link it deviate."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text such as 'v1.36', got {value!r}")
    return value


def _parse_bound(value: object) -> Bound:
    try:
        return Bound.parse(_text(value))
    except UsageError as error:
        raise ValueError(str(error)) from None


def _parse_range(value: object) -> VersionRange:
    try:
        return VersionRange.parse(_text(value))
    except UsageError as error:
        raise ValueError(str(error)) from None


_Bound = Annotated[Bound, pydantic.PlainValidator(_parse_bound), pydantic.PlainSerializer(str)]
_Range = Annotated[VersionRange, pydantic.PlainValidator(_parse_range), pydantic.PlainSerializer(str)]
_Sentence = Annotated[str, pydantic.Field(min_length=10, pattern=r"\.$")]
_Gate = Annotated[str, pydantic.Field(pattern=r"^[A-Z][A-Za-z0-9]+$")]


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)


class Deviation(_Strict):
    """A known upstream departure from a requirement: expected, linked, and only for a while."""

    issue: str
    """As people write it, such as k/k#141103."""
    url: Annotated[str, pydantic.Field(pattern=r"^https://\S+$")]
    versions: _Range
    """The Kubernetes versions that deviate; open at the end while no release with the fix is known."""
    summary: _Sentence
    expires: datetime.date
    """The first day on which the deviation is no longer an excuse and has to be looked at again."""
    scope: Scope = Scope.CLUSTER

    def expired(self, today: datetime.date) -> bool:
        """Whether the requirement is to be judged again as if the deviation weren't known."""
        return today >= self.expires


class Requirement(_Strict):
    """One promise of DRA, and what it takes to check it.

    The gate DynamicResourceAllocation is needed by all and named by none.
    """

    id: str
    level: Level
    text: _Sentence
    """What must happen and what must not, for a reader without the KEP at hand."""
    source: tuple[Source, ...]
    owners: tuple[Owner, ...]
    since: _Bound
    """First Kubernetes release that promises it by default; for alpha features, the first with its API."""
    gates: tuple[_Gate, ...] = ()
    """Feature gates that have to be on."""
    profile: Profile = Profile.GA
    load: bool = False
    """Whether it takes rate or scale to see."""
    forms: tuple[Form, ...] = ()
    """The forms of an extended resource in which it holds; a check covers each."""
    characterise: bool = False
    """Whether its check only records what is seen, and never fails."""
    characterise_reason: str = ""
    deviations: tuple[Deviation, ...] = ()

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Requirement:
        if not self.source or not self.owners:
            raise ValueError("expected at least one source and one owner")
        for key in ("owners", "gates", "forms"):
            values = getattr(self, key)
            if len(set(values)) != len(values):
                raise ValueError(f"{key} names one twice: {', '.join(values)}")
        if self.characterise != bool(self.characterise_reason):
            raise ValueError("characterise and characterise_reason go together: give both or neither")
        if self.profile is Profile.ALPHA and not self.gates:
            raise ValueError("profile alpha needs the gates that it is for")
        return self

    @property
    def area(self) -> str:
        """The area that its prefix belongs to."""
        return _AREA_OF_PREFIX[self.id.partition("-")[0]]

    @property
    def owner_letters(self) -> str:
        """The owners as run events write them, such as `S,L`."""
        return ",".join(owner.letter for owner in self.owners)

    @property
    def source_line(self) -> str:
        """All sources in one line."""
        return "; ".join(map(str, self.source))

    def holds_on(self, version: Version | str) -> bool:
        """Whether a cluster of this version has promised it: candidates of `since` have.

        Raises:
            UsageError: if the text isn't a Kubernetes version.
        """
        return self.since.compared_with(Version.of(version)) >= 0

    def deviation_for(
        self, kubernetes_version: Version | str, *, go_helper: bool = False
    ) -> Deviation | None:
        """The known deviation of this version, expired or not; None if it is held to the promise.

        Args:
            kubernetes_version: of the cluster, as its API server says it.
            go_helper: whether the driver under test links upstream's Go helper library.

        Raises:
            UsageError: if the text isn't a Kubernetes version.
        """
        version = Version.of(kubernetes_version)
        scopes = {Scope.CLUSTER, Scope.GO_HELPER} if go_helper else {Scope.CLUSTER}
        matching = (known for known in self.deviations if known.scope in scopes and version in known.versions)
        return next(matching, None)


class Area(_Strict):
    """One group of requirements, as it stands in its data file."""

    title: Annotated[str, pydantic.Field(min_length=3)]
    requirements: tuple[Requirement, ...]


class Catalogue:
    """All requirements, in order."""

    def __init__(self, areas: Mapping[str, Area]) -> None:
        self.areas: Mapping[str, Area] = types.MappingProxyType(dict(areas))
        """Area name to area, in the order of `AREAS`."""
        self.requirements: Mapping[str, Requirement] = types.MappingProxyType(
            {requirement.id: requirement for area in areas.values() for requirement in area.requirements}
        )
        """ID to requirement, in order."""
        self.digest = _digest(areas)
        """sha256 of the content, hex. Layout and comments of the files don't count; every value does."""

    def get(self, requirement_id: str) -> Requirement:
        """The requirement of that ID.

        Raises:
            UsageError: if there is none; names the closest.
        """
        try:
            return self.requirements[requirement_id]
        except KeyError:
            raise UsageError(f"no requirement {_with_closest(requirement_id, self.requirements)}") from None

    def select(self, terms: Iterable[str]) -> Sequence[Requirement]:
        """The requirements of the named areas and IDs, each once and in order; all if nothing is named.

        Raises:
            UsageError: if a term is neither an area nor an ID; names each such term and the closest.
        """
        wanted = list(terms)
        known = [*self.areas, *self.requirements]
        unknown = [term for term in dict.fromkeys(wanted) if term not in known]
        if unknown:
            raise UsageError(
                "no area or requirement " + "; ".join(_with_closest(term, known) for term in unknown)
            )
        everything = self.requirements.values()
        return [each for each in everything if not wanted or each.id in wanted or each.area in wanted]


def _digest(areas: Mapping[str, Area]) -> str:
    content = [[name, area.model_dump(mode="json")] for name, area in areas.items()]
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _with_closest(term: str, known: Iterable[str]) -> str:
    """The term, quoted, with the closest known ones as a hint; case is forgiven in the hint only."""
    by_folded = {name.casefold(): name for name in known}
    closest = difflib.get_close_matches(term.casefold(), by_folded, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(by_folded[name] for name in closest)}?" if closest else ""
    return f"{term!r}{hint}"
