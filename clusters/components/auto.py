"""Component source `auto`: the cache, then a download if the server answers, then a build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from clusters.components.build import BuildSource
from clusters.components.download import DownloadSource
from clusters.components.fetch import NotPublished, Unavailable
from clusters.components.interface import Program, Progress, silent
from clusters.components.programs import KUBERNETES_MODULE


class AutoSource:
    """Takes Kubernetes' programs, all of them, from where they are soonest at hand.

    Args:
        build: compiles them; gives all other programs in any case.
        download: fetches them.
    """

    def __init__(self, build: BuildSource, download: DownloadSource) -> None:
        self.build = build
        self.download = download

    def ensure(
        self, programs: Iterable[Program], kubernetes_version: str, progress: Progress = silent
    ) -> Mapping[str, Path]:
        """Find, download or build; see `ComponentSource.ensure`.

        Where the server can't be reached or lacks the version, that is told and they are built. A download
        with a wrong checksum is an error: nothing is to be made of that server.
        """
        wanted = list(programs)
        cached = at_hand((self.build, self.download), wanted, kubernetes_version)
        if cached is not None:
            return cached.ensure(wanted, kubernetes_version, progress)
        try:
            self.download.probe(kubernetes_version)
            return self.download.ensure(wanted, kubernetes_version, progress)
        except (NotPublished, Unavailable) as error:
            progress("source", 0, 0, f"no download, so Kubernetes is built: {error}")
            return self.build.ensure(wanted, kubernetes_version, progress)


def at_hand(
    sources: Iterable[BuildSource | DownloadSource], programs: Iterable[Program], kubernetes_version: str
) -> BuildSource | DownloadSource | None:
    """The first source whose cache has all that is wanted of Kubernetes; no server is asked.

    Raises:
        UsageError: for a version that can't be.
    """
    wanted = list(programs)
    kubernetes = {program.name for program in wanted if program.module == KUBERNETES_MODULE}
    for source in sources:
        if kubernetes <= source.cached(wanted, kubernetes_version).keys():
            return source
    return None
