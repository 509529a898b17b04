"""Sets up this checkout: system packages, then the Python environment in `.venv`. Standard library only.

On Debian and Ubuntu, as root, missing system packages are installed; elsewhere they are named.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV_VERSION = "0.13.9"
OLDEST_PYTHON = (3, 11)

PROGRAMS = {
    "gcc": "gcc",
    "pkg-config": "pkg-config",
    "ip": "iproute2",
    "unshare": "util-linux",
    "mount": "mount",
}
"""Program -> the Debian package that has it."""

FILES = {"libseccomp-dev": "seccomp.h", "libc6-dev": "stdio.h"}
"""Package -> a header that it brings; both are for building runc."""

TEST_PROGRAMS = {
    "chromium": "chromium",
    "chromedriver": "chromium-driver",
    "debootstrap": "debootstrap",
}
KIND_PROGRAMS = {
    "docker": "docker.io",
    "dockerd": "docker.io",
    "runc": "runc",
    "iptables": "iptables",
    "debootstrap": "debootstrap",
}


def main() -> None:
    """Set up, or end with one message and exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--test", action="store_true", help="also what the project's own tests need")
    parser.add_argument("--kind", action="store_true", help="also what provider kind needs")
    options = parser.parse_args()
    if sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        _fail(f"Python {oldest} or newer is needed; this is {sys.version.split()[0]}")
    packages = missing_packages(with_tests=options.test, with_kind=options.kind)
    if packages:
        install(packages)
    uv = ROOT / ".venv-tools" / "bin" / "uv"
    if not uv.exists():
        venv.create(ROOT / ".venv-tools", with_pip=True)
        _run([ROOT / ".venv-tools" / "bin" / "pip", "install", "--quiet", f"uv=={UV_VERSION}"])
    _run([uv, "sync", "--frozen", "--quiet", "--python", sys.executable])


def missing_packages(*, with_tests: bool, with_kind: bool = False) -> list[str]:
    """The Debian packages that this machine lacks, by what they would bring."""
    programs = PROGRAMS | (TEST_PROGRAMS if with_tests else {}) | (KIND_PROGRAMS if with_kind else {})
    wanted = [package for program, package in programs.items() if shutil.which(program) is None]
    packages = list(dict.fromkeys(wanted))
    packages += [package for package, header in FILES.items() if not _has_header(header)]
    if not _has_module("ensurepip"):
        packages.append("python3-venv")
    return packages


def install(packages: list[str]) -> None:
    """Install packages with apt, or say that the user has to."""
    line = f"apt-get install -y --no-install-recommends {' '.join(packages)}"
    if shutil.which("apt-get") is None:
        _fail(f"missing on this machine (names of Debian's packages): {', '.join(packages)}")
    if os.geteuid() != 0:
        _fail(f"missing on this machine: {', '.join(packages)}; as root: {line}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    sys.stdout.write(f"installing {', '.join(packages)}\n")
    sys.stdout.flush()
    _run(["apt-get", "update", "-qq"], environment)
    _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], environment)


def _has_header(name: str) -> bool:
    return any((folder / name).exists() for folder in (Path("/usr/include"), Path("/usr/local/include")))


def _has_module(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def _run(command: list[str | Path], environment: dict[str, str] | None = None) -> None:
    try:
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
    except subprocess.CalledProcessError as error:
        _fail(f"{Path(command[0]).name} ended with {error.returncode}")


def _fail(message: str) -> None:
    sys.stderr.write(f"setup: {message}\n")
    sys.exit(2)


if __name__ == "__main__":
    main()
