"""Debian's part of the image, from small packages that the real dpkg-deb makes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clusters.driver_image import debian
from harness.errors import EnvironmentBlocked, UsageError

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs Debian's dpkg-deb")

Package = Callable[..., None]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "archive"
    path.mkdir()
    return path


@pytest.fixture
def package(tmp_path: Path, archive: Path) -> Package:
    """Makes a package of files by path, in the stand-in for Debian's archive."""

    def make(
        name: str, files: dict[str, str], depends: str = "", links: dict[str, str] | None = None
    ) -> None:
        root = tmp_path / "packages" / name
        control = root / "DEBIAN" / "control"
        control.parent.mkdir(parents=True)
        fields = f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: x <x@example.com>\n"
        control.write_text(f"{fields}{f'Depends: {depends}' + chr(10) if depends else ''}Description: x\n")
        for path, content in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content)
            (root / path).chmod(0o755 if "bin/" in path else 0o644)
        for path, target in (links or {}).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).symlink_to(target)
        target = str(archive / f"{name}_1.0_all.deb")
        command = ["dpkg-deb", "--root-owner-group", "--build", str(root), target]
        subprocess.run(command, check=True, capture_output=True)

    return make


@pytest.fixture
def debootstrap(tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A debootstrap that has "downloaded" the packages of the archive."""
    program = tmp_path / "bin" / "debootstrap"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
echo "$@" >>{tmp_path}/calls
for last; do :; done
/bin/mkdir -p "$last/var/cache/apt/archives" && /bin/cp {archive}/* "$last/var/cache/apt/archives/"
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv(
        "PATH", f"{program.parent}:{Path(shutil.which('dpkg-deb') or '').parent}:/bin:/usr/bin"
    )
    return program


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.mkdir()
    return path


def everything(package: Package) -> None:
    package(
        "python3.11-minimal",
        {"usr/bin/python3.11": "python", "usr/share/doc/python/copyright": "x", "etc/python": "x"},
        "libc6 (>= 2.36), debconf (>= 0.5) | debconf-2.0",
    )
    package("libpython3.11-stdlib", {"usr/lib/python3.11/os.py": "os"}, "libc6, media-types | mime-support")
    package(
        "libstdc++6",
        {"usr/lib/t/libstdc++.so.6.0": "c++"},
        links={"usr/lib/t/libstdc++.so.6": "libstdc++.so.6.0"},
    )
    package(
        "libc6", {"lib/t/libc.so.6": "c", "sbin/ldconfig": "tool"}, links={"lib64/ld.so": "/lib/t/libc.so.6"}
    )
    package("debconf", {"usr/bin/debconf": "x"})
    package("bash", {"bin/bash": "shell"})


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or not path.is_dir()}


def test_what_python_needs_is_there_and_nothing_else(
    package: Package, debootstrap: Path, cache: Path
) -> None:
    everything(package)

    root = debian.ensure(cache)

    status = {f"var/lib/dpkg/status.d/{name}" for name in ("libc6", *debian.PACKAGES)}
    assert tree(root) == status | {
        "bin",
        "lib",
        "lib64",
        "sbin",
        "usr/bin/python3.11",
        "usr/lib/python3.11/os.py",
        "usr/lib/t/libc.so.6",
        "usr/lib/t/libstdc++.so.6",
        "usr/lib/t/libstdc++.so.6.0",
        "usr/lib64/ld.so",
        "usr/sbin/ldconfig",
    }
    assert (root / "lib/t/libc.so.6").read_text() == "c"
    assert (root / "usr/bin/python3.11").stat().st_mode & 0o777 == 0o755
    assert "Version: 1.0" in (root / "var/lib/dpkg/status.d/libc6").read_text()


def test_it_is_downloaded_once_and_verified(
    package: Package, debootstrap: Path, cache: Path, tmp_path: Path
) -> None:
    everything(package)

    assert debian.ensure(cache) == debian.ensure(cache)

    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert "--download-only" in call
    assert "--force-check-gpg" in call
    assert "bookworm" in call


def test_a_package_that_is_missing_is_named_and_nothing_stays(
    package: Package, debootstrap: Path, cache: Path
) -> None:
    package("python3.11-minimal", {"usr/bin/python3.11": "x"}, "libnew1 (>= 3)")

    with pytest.raises(EnvironmentBlocked, match="Debian bookworm has no package lib"):
        debian.ensure(cache)
    assert list(cache.iterdir()) == []


def test_a_failed_download_shows_why(debootstrap: Path, cache: Path) -> None:
    debootstrap.write_text("#!/bin/sh\necho E: Release signed by unknown key; exit 1\n")

    with pytest.raises(EnvironmentBlocked, match="Release signed by unknown key"):
        debian.ensure(cache)
    assert list(cache.iterdir()) == []


def test_without_debootstrap_it_says_how_to_get_it(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="debootstrap is not on PATH: apt-get install debootstrap"):
        debian.ensure(cache)
