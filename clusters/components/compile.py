"""Compiles the programs of one module with one `go build`, reproducibly and with progress."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clusters.components import command, locations, lock
from clusters.components.interface import Module, Program, Progress
from clusters.components.programs import KUBERNETES_MODULE
from clusters.components.toolchain import Toolchain
from harness.errors import HarnessError, UsageError

_FLAGS = ("-mod=readonly", "-buildvcs=false", "-trimpath")
_LINKER = ("-s", "-w")
_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
_VERSION_VARIABLES = ("gitVersion", "gitMajor", "gitMinor", "gitCommit", "gitTreeState", "buildDate")

_BYTES_PER_PACKAGE = 4 * 1024**2
"""About 2 MiB per package in Go's cache for Kubernetes, and as much again in the work folder meanwhile."""
_BYTES_PER_DOWNLOAD = 8 * 1024**2
_BYTES_PER_PROGRAM = locations.GIB // 4

_HOW_TO_GET = {
    "gcc": "gcc (Debian, Ubuntu: apt install gcc; Fedora: dnf install gcc)",
    "pkg-config": "pkg-config (Debian, Ubuntu: apt install pkg-config; Fedora: dnf install pkgconf)",
    "libseccomp": "the headers of libseccomp (Debian, Ubuntu: apt install libseccomp-dev; "
    "Fedora: dnf install libseccomp-devel)",
}


@dataclasses.dataclass(frozen=True)
class Build:
    """One module, at one version, with one toolchain."""

    module: Module
    kubernetes_version: str
    """Empty for a module that isn't Kubernetes."""
    source: Path
    """Folder of go.mod and go.sum; of Go files too, for the harness's own programs."""
    go: Toolchain

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.module.name} {self.kubernetes_version}".strip()

    @property
    def key(self) -> str:
        """Names the outcome: module and version, and a digest of everything else that decides it."""
        facts = [
            dataclasses.asdict(self.module),
            self.kubernetes_version,
            self.go.version,
            self.go.platform,
            (_FLAGS, _LINKER, _VERSION_PACKAGES, _VERSION_VARIABLES),
        ]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        for path in sorted(self.source.rglob("*")):
            if path.name in ("go.mod", "go.sum") or path.suffix == ".go":
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"{path.relative_to(self.source)} {content}\n".encode())
        parts = (self.module.name, self.kubernetes_version, digest.hexdigest()[:16])
        return "-".join(part for part in parts if part)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the `go` command: it decides the flags for listing and building alike."""
        flags = (*_FLAGS, *(f"-tags={tag}" for tag in self.module.tags))
        return self.go.environment(cgo=self.module.cgo, flags=" ".join(flags))


def require_compiler(module: Module) -> None:
    """Check that the machine can compile a module.

    Raises:
        UsageError: naming every package that is missing, and how to get it.
    """
    if not module.cgo:
        return
    absent = [tool for tool in ("gcc", "pkg-config") if shutil.which(tool) is None]
    if "pkg-config" not in absent:
        absent += [library for library in module.libraries if not _has_library(library)]
    if absent:
        names = "; ".join(_HOW_TO_GET[name] for name in absent)
        raise UsageError(f"building {module.name} needs what is not installed: {names}")


def _has_library(library: str) -> bool:
    try:
        command.run(["pkg-config", "--exists", library], Path.cwd(), os.environ)
    except command.CommandFailed:
        return False
    return True


def compile_programs(build: Build, programs: Sequence[Program], work: Path, progress: Progress) -> Path:
    """Build programs of one module.

    Args:
        build: what to build from, and with.
        programs: of the build's module.
        work: an empty folder for everything temporary; Go's work files can grow to some GiB.
        progress: told what is downloaded and compiled.

    Returns:
        A folder below `work` that has each program under its name.

    Raises:
        UsageError: if there is not enough disk space.
        HarnessError: if a download or the compiler failed; carries the last lines of the output.
    """
    stale = _stale_packages(build, programs, progress)
    needed = len(stale) * _BYTES_PER_PACKAGE + len(programs) * _BYTES_PER_PROGRAM
    for directory in {work, Path(build.go.variable("GOCACHE"))}:
        locations.require_space(directory, needed, f"building {build.title}")
    output = work / "programs"
    output.mkdir()
    _go_build(build, programs, output, stale, progress)
    return output


def _stale_packages(build: Build, programs: Sequence[Program], progress: Progress) -> set[str]:
    """Import paths of what is to be compiled before the programs; downloads all source on the way."""
    module_cache = Path(build.go.variable("GOMODCACHE"))
    total = _count_downloads(build.source / "go.sum", module_cache)
    locations.require_space(module_cache, total * _BYTES_PER_DOWNLOAD, f"downloading {build.title}")
    downloaded = 0
    stale = set()

    def on_line(line: str) -> None:
        nonlocal downloaded
        if line.startswith("go: downloading "):
            downloaded += 1
            progress("download", downloaded, max(total, downloaded), line.removeprefix("go: downloading "))
        elif line:
            stale.add(line)

    template = '{{if and .Stale (ne .Name "main")}}{{.ImportPath}}{{end}}'
    packages = [program.package for program in programs]
    arguments = ["list", "-deps", "-f", template, *packages]
    try:
        command.run([build.go.go, *arguments], build.source, build.environment, on_line)
    except command.CommandFailed as error:
        reason = "no network to download its modules" if error.network else "its modules can't be loaded"
        raise HarnessError(f"building {build.title}: {reason}:\n{error.output}") from error
    return stale


def _count_downloads(go_sum: Path, module_cache: Path) -> int:
    """How many modules in a go.sum have no source in Go's module cache."""
    if not go_sum.exists():
        return 0
    entries = [line.split()[:2] for line in go_sum.read_text(encoding="utf-8").splitlines()]
    modules = [(path, version) for path, version in entries if not version.endswith("/go.mod")]
    return sum(not _is_downloaded(path, version, module_cache) for path, version in modules)


def _is_downloaded(path: str, version: str, module_cache: Path) -> bool:
    escaped = re.sub("[A-Z]", lambda letter: "!" + letter[0].lower(), path)
    return (module_cache / "cache" / "download" / escaped / "@v" / f"{version}.ziphash").exists()


def _go_build(
    build: Build, programs: Sequence[Program], output: Path, stale: set[str], progress: Progress
) -> None:
    names = ", ".join(program.name for program in programs)
    total = len(stale) + len(programs)
    compiled = 0

    def on_line(line: str) -> None:
        nonlocal compiled
        if line in stale:
            compiled += 1
            text = line if compiled < len(stale) else f"linking {names}"
            progress("compile", compiled, total, f"{build.title}: {text}")

    progress("compile", 0, total, f"{build.title}: {len(stale)} packages to compile, then {names} to link")
    stamps = [f"-X {stamp}" for stamp in _version_stamps(build)]
    # `go build` names a program after its package, which is wrong for etcd: a lone program is named here.
    destination = output / programs[0].name if len(programs) == 1 else f"{output}/"
    arguments = ["-v", "-ldflags", " ".join((*_LINKER, *stamps)), "-o", destination]
    environment = build.environment | {"GOTMPDIR": str(output.parent)}
    packages = [program.package for program in programs]
    try:
        command.run([build.go.go, "build", *arguments, *packages], build.source, environment, on_line)
    except command.CommandFailed as error:
        raise HarnessError(f"building {build.title} failed:\n{error.output}") from error
    progress("compile", total, total, f"{build.title}: built {names}")


def _version_stamps(build: Build) -> list[str]:
    """What makes Kubernetes say its version, as `variable=value`; otherwise it is v0.0.0-master."""
    if build.module != KUBERNETES_MODULE:
        return []
    return version_stamps(build.kubernetes_version, lock.published(build.kubernetes_version, build.go))


def version_stamps(version: str, published: Mapping[str, Any]) -> list[str]:
    """The `-X` values for a Kubernetes version.

    Args:
        version: such as `v1.37.2`.
        published: what `lock.published` says about it.
    """
    major, minor = version.removeprefix("v").split(".")[:2]
    commit = published.get("Origin", {}).get("Hash", "")
    values = (version, major, minor, commit, "clean", published["Time"])
    return [
        f"{package}.{variable}={value}"
        for package in _VERSION_PACKAGES
        for variable, value in zip(_VERSION_VARIABLES, values, strict=True)
    ]
