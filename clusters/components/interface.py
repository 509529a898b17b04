"""The seam between a cluster provider and the programs that it starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol


@dataclasses.dataclass(frozen=True)
class Module:
    """A pinned Go module with one or more programs, all compiled by one `go build`.

    Its go.mod and go.sum are in `modules/<name>/`, except for Kubernetes (`modules/kubernetes/<version>/`)
    and for the harness's own programs (`go/`).
    """

    name: str
    cgo: bool = False
    """Compiled with a C compiler and the C libraries below; everything else is static."""
    tags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    """C libraries, by their pkg-config names."""


@dataclasses.dataclass(frozen=True)
class Program:
    """One executable: what it is called, and the Go package that it is compiled from."""

    name: str
    module: Module
    package: str


class Progress(Protocol):
    """Told about anything that takes longer than a moment."""

    def __call__(self, phase: str, done: int, total: int, text: str) -> None:
        """Report a step.

        Args:
            phase: one of `toolchain`, `lock`, `download`, `compile`, `wait`, and `source` for
                where the programs are to come from after all.
            done: steps finished in this phase.
            total: steps in all, 0 if that can't be known.
            text: one line for people.
        """


def silent(phase: str, done: int, total: int, text: str) -> None:
    """A `Progress` that tells nobody."""


class ComponentSource(Protocol):
    """Where the programs of a cluster come from. One file per implementation."""

    def ensure(
        self, programs: Iterable[Program], kubernetes_version: str, progress: Progress = silent
    ) -> Mapping[str, Path]:
        """Make sure that the programs are there, and say where: program name to absolute path.

        Args:
            programs: some of `programs.PROGRAMS`.
            kubernetes_version: version of those that are part of Kubernetes, such as `v1.37.2`.
            progress: told what goes on when this takes longer than a moment.

        Raises:
            UsageError: for a version or directory that can't be, or a machine that lacks something.
            HarnessError: if a download or a build failed.
        """
        ...
