"""Component source `build`: compiles the pinned modules once, into the user's cache.

A build is keyed by everything that decides its outcome, so a changed pin, flag, toolchain or version is
another build and never an old file. Programs appear in the cache whole, by renaming. One build runs at a
time; whoever comes meanwhile waits for it. What an interrupted build had compiled stays in Go's own cache,
and what it left in the work folder goes with the next build.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from clusters.components import locations, lock, toolchain
from clusters.components.compile import Build, compile_programs, require_compiler
from clusters.components.interface import Module, Program, Progress, silent
from clusters.components.programs import KUBERNETES_MODULE, OWN_MODULE
from clusters.components.toolchain import Toolchain
from harness.settings import cache_root


@dataclasses.dataclass(frozen=True)
class _Wanted:
    build: Build
    programs: Sequence[Program]
    target: Path

    def missing(self) -> list[Program]:
        return [program for program in self.programs if not os.access(self.target / program.name, os.X_OK)]


class BuildSource:
    """Builds what isn't in the cache yet.

    Args:
        cache: folder for what is built; `harness.settings.cache_root()` if not given.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self.cache = cache or cache_root()

    def ensure(
        self, programs: Iterable[Program], kubernetes_version: str, progress: Progress = silent
    ) -> Mapping[str, Path]:
        """Build what is missing; see `ComponentSource.ensure`.

        From nothing, Kubernetes takes about 6 minutes on two cores and 10 GiB of disk. A version whose
        go.sum is not part of this release is pinned first (see `lock.lock`). Go is only needed to build.
        """
        wanted = list(programs)
        found = self.cached(wanted, kubernetes_version)
        if all(program.name in found for program in wanted):
            return found
        by_module = _by_module(wanted)
        if KUBERNETES_MODULE in by_module:
            self._lock_if_needed(kubernetes_version, progress)
        go = toolchain.find(self._needed_go(by_module, kubernetes_version), self.cache, progress)
        with self._only_build(progress):
            plan = self._plan(by_module, kubernetes_version, go)
            to_build = [(each, missing) for each in plan if (missing := each.missing())]
            for each, _ in to_build:
                require_compiler(each.build.module)
            for each, missing in to_build:
                self._compile(each, missing, progress)
        return {program.name: each.target / program.name for each in plan for program in each.programs}

    def cached(self, programs: Iterable[Program], kubernetes_version: str) -> dict[str, Path]:
        """Those of the programs that `ensure` would not have to build, and where they are.

        Needs no Go, asks no server and writes nothing.

        Raises:
            UsageError: for a version that can't be.
        """
        by_module = _by_module(programs)
        if KUBERNETES_MODULE in by_module:
            lock.check(kubernetes_version)
            if not self._is_locked(kubernetes_version):
                del by_module[KUBERNETES_MODULE]
        if not by_module:
            return {}
        go = toolchain.expected(self._needed_go(by_module, kubernetes_version), self.cache)
        plan = self._plan(by_module, kubernetes_version, go) if go else []
        return {
            program.name: each.target / program.name
            for each in plan
            for program in each.programs
            if program not in each.missing()
        }

    def _is_locked(self, version: str) -> bool:
        return (lock.directory_of(version, self.cache) / "go.sum").exists()

    def _lock_if_needed(self, version: str, progress: Progress) -> None:
        if not self._is_locked(version):
            with self._only_build(progress):
                if not self._is_locked(version):
                    text = f"Kubernetes {version} is not locked in this release: pinned on this first use"
                    progress("lock", 0, 1, text)
                    directory = lock.directory_of(version, self.cache)
                    lock.lock(version, directory, cache=self.cache, progress=progress)

    def _needed_go(self, modules: Iterable[Module], kubernetes_version: str) -> str:
        sources = [self._source(module, kubernetes_version) for module in modules]
        directives = [toolchain.go_directive(source / "go.mod") for source in sources]
        return max(directives, key=toolchain.order)

    def _plan(
        self, by_module: Mapping[Module, Sequence[Program]], kubernetes_version: str, go: Toolchain
    ) -> list[_Wanted]:
        wanted = []
        for module, programs in by_module.items():
            version = kubernetes_version if module == KUBERNETES_MODULE else ""
            build = Build(module, version, self._source(module, kubernetes_version), go)
            wanted.append(_Wanted(build, programs, self.cache / locations.BUILT / build.key))
        return wanted

    def _source(self, module: Module, kubernetes_version: str) -> Path:
        if module == KUBERNETES_MODULE:
            return lock.directory_of(kubernetes_version, self.cache)
        return locations.OWN_PROGRAMS if module == OWN_MODULE else locations.MODULES / module.name

    @contextlib.contextmanager
    def _only_build(self, progress: Progress) -> Iterator[None]:
        with locations.one_at_a_time(self.cache, "build", progress):
            shutil.rmtree(self.cache / "tmp", ignore_errors=True)
            yield

    def _compile(self, wanted: _Wanted, missing: Sequence[Program], progress: Progress) -> None:
        work_root = self.cache / "tmp"
        work_root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=work_root, ignore_cleanup_errors=True) as work:
            output = compile_programs(wanted.build, missing, Path(work), progress)
            wanted.target.mkdir(parents=True, exist_ok=True)
            for program in missing:
                (output / program.name).rename(wanted.target / program.name)


def _by_module(programs: Iterable[Program]) -> dict[Module, list[Program]]:
    found: dict[Module, list[Program]] = {}
    for program in programs:
        found.setdefault(program.module, []).append(program)
    return found
