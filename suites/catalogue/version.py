"""Kubernetes versions as servers report them, and the ranges that the catalogue writes about them."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable

from harness.errors import UsageError

_VERSION = re.compile(
    r"v?(?P<major>\d+)\.(?P<minor>\d+)\.(?P<patch>\d+)"
    r"(?:-(?P<stage>alpha|beta|rc)\.(?P<number>\d+)(?:\.(?P<commits>\d+)(?![\w.]*[A-Za-z]))?)?"
    r"(?:[-+.][0-9A-Za-z.+_-]+)?",
    re.ASCII,
)
_LINE = re.compile(r"v?(\d+)\.(\d+)", re.ASCII)
_STAGES = {"alpha": 0, "beta": 1, "rc": 2, None: 3}
_RELEASED = _STAGES[None]


@dataclasses.dataclass(frozen=True, order=True)
class Version:
    """One Kubernetes version. Build metadata and vendor suffixes (`-gke.100`, `+k3s1`) don't count.

    Order is semantic versioning's: v1.38.0-alpha.1 < v1.38.0-rc.1 < v1.38.0.
    """

    major: int
    minor: int
    patch: int
    stage: int = _RELEASED
    """0 alpha, 1 beta, 2 release candidate, 3 released."""
    number: int = 0
    """Of the pre-release: the 1 of rc.1."""
    commits: int = 0
    """Commits after the pre-release tag, in builds made between two tags."""

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read a version such as v1.37.2, 1.38.0-rc.1, v1.37.2+build or v1.36.3-gke.100.

        Raises:
            UsageError: if the text isn't a Kubernetes version with major, minor and patch.
        """
        match = _VERSION.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"{text!r} is not a Kubernetes version; expected one such as v1.37.2 or v1.38.0-rc.1"
            )
        return cls(
            major=int(match["major"]),
            minor=int(match["minor"]),
            patch=int(match["patch"]),
            stage=_STAGES[match["stage"]],
            number=int(match["number"] or 0),
            commits=int(match["commits"] or 0),
        )

    @classmethod
    def of(cls, version: Version | str) -> Version:
        """The version itself, or the text parsed.

        Raises:
            UsageError: see `parse`.
        """
        return version if isinstance(version, Version) else cls.parse(version)

    @property
    def line(self) -> tuple[int, int]:
        """The minor release that it belongs to; a pre-release of 1.38 belongs to 1.38."""
        return self.major, self.minor

    @property
    def is_prerelease(self) -> bool:
        """Whether it is an alpha, beta or release candidate."""
        return self.stage < _RELEASED

    def __str__(self) -> str:
        released = f"v{self.major}.{self.minor}.{self.patch}"
        if not self.is_prerelease:
            return released
        stage = next(name for name, rank in _STAGES.items() if rank == self.stage)
        commits = f".{self.commits}" if self.commits else ""
        return f"{released}-{stage}.{self.number}{commits}"


@dataclasses.dataclass(frozen=True)
class Bound:
    """A point in the history of releases: a minor release as a whole (v1.36), or one version (v1.37.1).

    A minor release includes its pre-releases: a candidate of 1.38 has left 1.37 behind, and is held to what
    1.38 promises. A bound of three parts is compared as semantic versioning does.
    """

    text: str

    @classmethod
    def parse(cls, text: str) -> Bound:
        """Read v1.36, 1.36 or v1.37.1.

        Raises:
            UsageError: if the text is neither a minor release nor a version.
        """
        text = text.strip()
        if not _LINE.fullmatch(text):
            try:
                Version.parse(text)
            except UsageError:
                raise UsageError(
                    f"{text!r} is not a release; expected one such as v1.36 or v1.37.1"
                ) from None
        return cls(f"v{text.removeprefix('v')}")

    def compared_with(self, version: Version) -> int:
        """Negative if `version` comes before the bound, 0 if it is (in) the bound, positive if after."""
        line = _LINE.fullmatch(self.text)
        if line is not None:
            bound_line = int(line[1]), int(line[2])
            return (version.line > bound_line) - (version.line < bound_line)
        bound = Version.parse(self.text)
        return (version > bound) - (version < bound)

    def __str__(self) -> str:
        return self.text


_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclasses.dataclass(frozen=True)
class VersionRange:
    """A set of Kubernetes versions, such as `>=1.36,<1.38`; every clause must hold. See `Bound` for 1.38."""

    text: str
    clauses: tuple[tuple[str, Bound], ...]

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Read clauses joined by commas, each an operator (>=, >, <=, <, ==, !=) and a release.

        Raises:
            UsageError: if a clause can't be read.
        """
        clauses = []
        for clause in text.split(","):
            name = next((name for name in _OPERATORS if clause.strip().startswith(name)), None)
            if name is None:
                raise UsageError(
                    f"{text!r} is not a version range; expected clauses such as '>=1.36,<1.38', "
                    f"with the operators {', '.join(_OPERATORS)}"
                )
            clauses.append((name, Bound.parse(clause.strip().removeprefix(name))))
        return cls(text, tuple(clauses))

    def __contains__(self, version: Version) -> bool:
        return all(_OPERATORS[name](bound.compared_with(version), 0) for name, bound in self.clauses)

    def __str__(self) -> str:
        return self.text
