"""The driver and what it imports, in the image's Python."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import subprocess
from pathlib import Path

import fake_driver

from clusters.components import packages
from clusters.driver_image import lock
from harness.errors import EnvironmentBlocked

_PROGRAM = f"usr/bin/python{lock.PYTHON}"
_PACKAGES = f"usr/local/lib/python{lock.PYTHON}/dist-packages"
_SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc")
_INSTALLERS_OWN = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
_CHECK = (
    "import fake_driver.__main__, fake_driver.driver, fake_driver.control.server, "
    "fake_driver.control.operations, fake_driver.deviceplugin.plugin, fake_driver.inventory.nvml.inventory"
)

ENTRYPOINT = (f"/{_PROGRAM}", "-I", "-m", "fake_driver")
"""Isolated: neither variables nor the working directory change what is imported."""


def install(root: Path) -> None:
    """Add the driver to an unpacked Debian, and see that it can be imported there.

    Raises:
        UsageError: there is neither pip nor uv.
        HarnessError: wheels can't be downloaded.
        EnvironmentBlocked: the image's Python doesn't run or lacks something.
    """
    target = root / _PACKAGES
    packages.install(
        lock.REQUIREMENTS, target, "driver-image", "the driver's Python packages", python=lock.PYTHON
    )
    shutil.rmtree(target / "bin", ignore_errors=True)
    for name in _INSTALLERS_OWN:
        for path in target.glob(f"*.dist-info/{name}"):
            path.unlink()
    shutil.copytree(source(), target / "fake_driver", ignore=_SKIPPED)
    for path in target.rglob("__pycache__"):
        shutil.rmtree(path)
    _run(root, "-c", _CHECK)
    # Never compared with the source again: its time is not kept, and the root is read-only.
    compiled = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/"]
    _run(root, *compiled, str(root / f"usr/lib/python{lock.PYTHON}"), str(target))


def source() -> Path:
    """The folder of the package `fake_driver`."""
    return Path(fake_driver.__file__).parent


def version() -> str:
    """The driver's version."""
    return importlib.metadata.version("fake-driver")


def _run(root: Path, *arguments: str) -> None:
    """Run the image's Python in place, with the image's own libraries."""
    (loader,) = root.glob(f"usr/lib/{platform.machine()}-linux-gnu/ld-linux-*.so.?")
    command: list[str | Path] = [
        loader,
        "--inhibit-cache",
        "--library-path",
        loader.parent,
        root / _PROGRAM,
        "-B",
    ]
    environment = {
        "PYTHONHOME": str(root / "usr"),
        "PYTHONPATH": str(root / _PACKAGES),
        "PYTHONHASHSEED": "0",  # the order of sets in compiled files
    }
    done = subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = re.sub(re.escape(str(root)), "", (done.stdout + done.stderr).strip())
        raise EnvironmentBlocked(f"driver-image: the image's Python: {said[-2000:]}")
