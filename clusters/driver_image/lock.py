"""Pins the Python packages of the driver's image: those that uv.lock has for it, with the wheels' checksums.

After a change of uv.lock, run `python -m clusters.driver_image.lock`; a test notices if that was forgotten.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
PYTHON = "3.11"
"""The Python of `debian.SUITE`."""

_DRIVER = "fake-driver"
_UV_LOCK = Path(__file__).parents[2] / "uv.lock"
_WHEEL = re.compile(r"-(?:cp311-cp311|cp311-abi3|py3-none|py2\.py3-none)-(?:any|\S*manylinux\S*)\.whl$")


def requirements(lock: Mapping[str, Any]) -> str:
    """The content of requirements.txt.

    Args:
        lock: uv.lock, parsed.
    """
    packages = {package["name"]: package for package in lock["package"]}
    lines = ["# What the driver's image installs; written by `python -m clusters.driver_image.lock`."]
    for name in sorted(_closure(packages)):
        hashes = sorted(_hashes(packages[name]))
        lines.append(
            " \\\n    ".join([f"{name}=={packages[name]['version']}", *map("--hash={}".format, hashes)])
        )
    return "\n".join(lines) + "\n"


def _closure(packages: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    waiting = [_DRIVER]
    while waiting:
        for dependency in packages[waiting.pop()].get("dependencies", ()):
            if dependency["name"] not in found:
                found.add(dependency["name"])
                waiting.append(dependency["name"])
    return found


def _hashes(package: Mapping[str, Any]) -> Iterator[str]:
    for wheel in package["wheels"]:
        name = wheel["url"].rpartition("/")[2]
        if _WHEEL.search(name) and not re.search("i686|ppc64|s390x|armv7|riscv", name):
            yield wheel["hash"]


def main() -> int:
    """Write requirements.txt anew."""
    REQUIREMENTS.write_text(requirements(tomllib.loads(_UV_LOCK.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
