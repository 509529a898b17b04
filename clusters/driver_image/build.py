"""Packs the driver's image: Debian's Python, the wheels of uv.lock, the driver.

Made of the same packages it is the same to the byte. It is made anew when anything changes that decides
what is in it, but for the state of Debian's archive. It is made once: whoever comes meanwhile waits for it.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from clusters.components.image import Image, write_images
from clusters.components.interface import Progress, silent
from clusters.components.locations import GIB, one_at_a_time, require_space
from clusters.driver_image import debian, lock, python
from harness.settings import cache_root

REPOSITORY = "dra-harness.dev/fake-driver"
_FOLDER = "driver-image"
"""Of the cache."""
_PROGRAMS = Path(__file__).parent
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\n",
}


@dataclass(frozen=True)
class DriverImage:
    """An image in an archive."""

    name: str
    """With its tag."""
    archive: Path


def ensure(progress: Progress = silent, cache: Path | None = None) -> DriverImage:
    """Build the image, unless the cache has it.

    Args:
        progress: told what goes on.
        cache: the harness's cache.

    Raises:
        UsageError: a program that this needs is not on PATH, or images can't be made for this machine.
        HarnessError: a download failed.
    """
    cache = cache or cache_root()
    image = DriverImage(f"{REPOSITORY}:{python.version()}", cache / _FOLDER / f"{_digest()}.tar")
    if not image.archive.exists():
        with one_at_a_time(cache, _FOLDER, progress):
            if not image.archive.exists():
                _make(image, progress)
    return image


def _make(image: DriverImage, progress: Progress) -> None:
    folder = image.archive.parent
    folder.mkdir(parents=True, exist_ok=True)
    require_space(folder, GIB, "building the driver's image")
    with tempfile.TemporaryDirectory(dir=folder) as work:
        progress("image", 0, 3, "Debian's packages")
        root = Path(shutil.copytree(debian.ensure(folder), Path(work) / "root", symlinks=True))
        progress("image", 1, 3, "the driver and its Python packages")
        python.install(root)
        for name, content in _ACCOUNTS.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(content)
        progress("image", 2, 3, "the archive")
        write_images([_image(image.name, root)], image.archive)
        progress("image", 3, 3, image.name)


def _image(name: str, root: Path) -> Image:
    settings = {"Cmd": ["serve", "--config", "/etc/fake-driver/driver.yaml"], "WorkingDir": "/"}
    return Image(name, {}, python.ENTRYPOINT, root, settings)


def _digest() -> str:
    found = hashlib.sha256(platform.machine().encode())
    ours = sorted([*_PROGRAMS.glob("*.py"), lock.REQUIREMENTS])
    driver = sorted(path for path in python.source().rglob("*") if path.is_file() and path.suffix != ".pyc")
    for path in [*ours, *driver]:
        found.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()[:16]
