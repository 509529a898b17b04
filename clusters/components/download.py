"""Component source `download`: Kubernetes' official release binaries, held to their published checksums.

They are where https://kubernetes.io/releases/download/ says, below https://dl.k8s.io or a mirror of it:
`release/<version>/bin/linux/<architecture>/<program>`, the SHA-256 of each beside it in `<program>.sha256`.
What was downloaded lies apart from what was built, so a run can say which of them it was made with.
"""

from __future__ import annotations

import hashlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from urllib3.util import parse_url

from clusters.components import locations, lock
from clusters.components.fetch import Fetcher, Unavailable, check_url
from clusters.components.interface import ComponentSource, Program, Progress, silent
from clusters.components.programs import KUBERNETES_MODULE
from harness.settings import cache_root, download_url

PROBE_SECONDS = 2.0
"""How long a server may take to show that it has a version."""


class DownloadSource:
    """Downloads what isn't in the cache yet.

    Args:
        rest: gives the programs that are no part of Kubernetes: nobody publishes the pinned ones.
        url: base URL of the server; `harness.settings.download_url()` if not given.
        cache: folder for what is downloaded; `harness.settings.cache_root()` if not given.
        sleep: injected by tests.

    Raises:
        UsageError: for a URL that can't be.
    """

    def __init__(
        self,
        rest: ComponentSource,
        url: str | None = None,
        cache: Path | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        key = "DRA_HARNESS_DOWNLOAD_URL" if url is None else "--download-url"
        self.url = check_url(download_url() if url is None else url, key)
        self.cache = cache or cache_root()
        self._rest = rest
        self._fetcher = Fetcher(self.url, sleep)

    def ensure(
        self, programs: Iterable[Program], kubernetes_version: str, progress: Progress = silent
    ) -> Mapping[str, Path]:
        """Download what is missing; see `ComponentSource.ensure`. One download runs at a time.

        Raises:
            NotPublished: the server lacks the version, or one of its programs, or a checksum.
            Unavailable: the server can't be reached; what had come is kept for the next attempt.
            HarnessError: a program is not what its checksum says.
        """
        wanted = list(programs)
        found = self.cached(wanted, kubernetes_version)
        kubernetes = [program for program in wanted if program.module == KUBERNETES_MODULE]
        if any(program.name not in found for program in kubernetes):
            with locations.one_at_a_time(self.cache, "download", progress):
                found = self.cached(wanted, kubernetes_version)
                for program in kubernetes:
                    if program.name not in found:
                        found[program.name] = self._download(program, kubernetes_version, progress)
        others = [program for program in wanted if program.module != KUBERNETES_MODULE]
        return found | dict(self._rest.ensure(others, kubernetes_version, progress)) if others else found

    def cached(self, programs: Iterable[Program], kubernetes_version: str) -> dict[str, Path]:
        """Those of the programs that are downloaded already, and where they are; asks no server.

        Raises:
            UsageError: for a version that can't be.
        """
        names = [program.name for program in programs if program.module == KUBERNETES_MODULE]
        if not names:
            return {}
        lock.check(kubernetes_version)
        folder = self._folder(kubernetes_version)
        return {name: folder / name for name in names if os.access(folder / name, os.X_OK)}

    def probe(self, kubernetes_version: str) -> None:
        """Return if the server answers, and has the version; takes `PROBE_SECONDS` at most.

        Raises:
            NotPublished: it answers, but doesn't have the version.
            Unavailable: it doesn't answer.
        """
        path = f"{_path(kubernetes_version)}/kube-apiserver.sha256"
        answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

        def ask() -> None:
            try:
                self._fetcher.checksum(path, PROBE_SECONDS)
            except Exception as error:
                answers.put(error)
            else:
                answers.put(None)

        # Looking a name up has no timeout of its own: without a network it can take half a minute.
        threading.Thread(target=ask, name="probe", daemon=True).start()
        try:
            error = answers.get(timeout=PROBE_SECONDS)
        except queue.Empty:
            raise Unavailable(f"{self.url}: no answer within {PROBE_SECONDS:g} s") from None
        if error is not None:
            raise error

    def _folder(self, version: str) -> Path:
        """What two servers publish as one version need not be the same, so each has a folder."""
        server = f"{parse_url(self.url).host}-{hashlib.sha256(self.url.encode()).hexdigest()[:8]}"
        return (
            self.cache
            / locations.DOWNLOADED
            / server.strip("[").replace("]", "")
            / f"kubernetes-{version}-release-linux-{locations.architecture()}"
        )

    def _download(self, program: Program, version: str, progress: Progress) -> Path:
        target = self._folder(version) / program.name
        path = f"{_path(version)}/{program.name}"
        text = f"{program.name} {version} from {self.url}"

        def told(done: int, total: int) -> None:
            progress("download", done, total, text)

        checksum = self._fetcher.checksum(f"{path}.sha256")
        target.parent.mkdir(parents=True, exist_ok=True)
        self._fetcher.save(path, target, checksum, told)
        progress("download", 1, 1, f"{program.name} {version}: downloaded, and its checksum is right")
        return target


def _path(version: str) -> str:
    return f"release/{version}/bin/linux/{locations.architecture()}"
