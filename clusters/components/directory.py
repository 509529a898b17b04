"""Component source `directory`: prebuilt programs, all in one directory, as `--components DIR` gives them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from clusters.components.interface import ComponentSource, Program, Progress, silent
from clusters.components.programs import KUBERNETES_MODULE
from harness.errors import UsageError

_VERSION_TIMEOUT = 30.0


class DirectorySource:
    """Takes each program from the file of its name. For release candidates, and machines without a network.

    Args:
        directory: holds the executables.
        rest: gives the programs that are no part of Kubernetes and aren't in the directory, so that a release
            candidate's own programs are enough; without it the directory has to have everything.
    """

    def __init__(self, directory: Path, rest: ComponentSource | None = None) -> None:
        self.directory = directory.absolute()
        self._rest = rest

    def ensure(
        self, programs: Iterable[Program], kubernetes_version: str, progress: Progress = silent
    ) -> Mapping[str, Path]:
        """Check that the programs are there; see `ComponentSource.ensure`. Nothing is copied or changed.

        Raises:
            UsageError: naming every file that is missing or can't be executed, or every Kubernetes program
                that says it is of another version.
        """
        wanted, others = self._share_out(programs)
        if faults := [fault for program in wanted if (fault := self._fault(program.name))]:
            raise UsageError(
                f"{self.directory}: expected an executable file for each program: {'; '.join(faults)}"
            )
        versions = {
            program.name: self._version(program.name)
            for program in wanted
            if program.module == KUBERNETES_MODULE
        }
        foreign = [
            f"{name} is {version}" for name, version in versions.items() if version != kubernetes_version
        ]
        if foreign:
            raise UsageError(
                f"{self.directory}: expected Kubernetes {kubernetes_version}: {', '.join(foreign)}"
            )
        found = {program.name: self.directory / program.name for program in wanted}
        if self._rest and others:
            found |= self._rest.ensure(others, kubernetes_version, progress)
        return found

    def _share_out(self, programs: Iterable[Program]) -> tuple[list[Program], list[Program]]:
        """Those that the directory has to have, and those that come from elsewhere."""
        own: list[Program] = []
        others: list[Program] = []
        for program in programs:
            elsewhere = (
                self._rest is not None
                and program.module != KUBERNETES_MODULE
                and not (self.directory / program.name).exists()
            )
            (others if elsewhere else own).append(program)
        return own, others

    def kubernetes_version(self) -> str:
        """What the directory's kube-apiserver says it is, such as `v1.38.0-rc.0`.

        Raises:
            UsageError: if it isn't there or doesn't say.
        """
        if fault := self._fault("kube-apiserver"):
            raise UsageError(f"{self.directory}: expected Kubernetes' programs: {fault}")
        return self._version("kube-apiserver")

    def _fault(self, name: str) -> str | None:
        path = self.directory / name
        if not path.exists():
            return f"{name} is missing"
        if not path.is_file():
            return f"{name} is no file"
        return None if os.access(path, os.X_OK) else f"{name} is not executable"

    def _version(self, name: str) -> str:
        path = self.directory / name
        try:
            output = subprocess.run(
                [path, "--version"], capture_output=True, text=True, check=True, timeout=_VERSION_TIMEOUT
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise UsageError(
                f"{path}: expected a program for this machine: `--version` failed: {error}"
            ) from error
        found = re.fullmatch(r"Kubernetes (v\S+)", output.strip())
        if found is None:
            raise UsageError(
                f"{path}: `--version` expected `Kubernetes vX.Y.Z`, got {output.strip()[:200]!r}"
            )
        return found[1]
