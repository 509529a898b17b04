"""Debian's Python with the libraries that it needs and nothing else: no shell, no package manager.

debootstrap downloads and verifies the packages; their files are unpacked here, so no root is needed and no
maintainer script runs.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.errors import EnvironmentBlocked, UsageError

SUITE = "bookworm"
PACKAGES = ("python3.11-minimal", "libpython3.11-stdlib", "libstdc++6")
LEFT_OUT = frozenset(
    {
        "debconf",  # for maintainer scripts only, like the next two
        "dpkg",
        "readline-common",
        "libreadline8",  # an interactive Python's
        "libnsl2",  # for the module `nis`; brings Kerberos, like the next
        "libtirpc3",
        "libdb5.3",  # for the module `dbm`
        "libncursesw6",  # for the module `curses`
        "libsqlite3-0",
        "media-types",
        "gcc-12-base",
    }
)
"""Dependencies that the driver does without."""

_SKIPPED = re.compile(
    r"usr/share/(doc|man|locale|lintian|info|bash-completion|python3|gdb|binfmts)(/|$)|usr/lib/[^/]+/gconv/|etc/|var/"
)
_MERGED = re.compile(r"(lib|lib64|bin|sbin)(?=/|$)")
"""Folders that Debian has in /usr, and finds at the root through links."""

_STATUS = "var/lib/dpkg/status.d"
"""Where scanners look for the packages of an image without dpkg."""


def ensure(cache: Path) -> Path:
    """The unpacked packages, as a folder in the cache; not to be changed.

    Raises:
        UsageError: a program that this needs is not on PATH.
        EnvironmentBlocked: a download failed, or a signature or checksum is wrong.
    """
    decides = f"{SUITE} {PACKAGES} {sorted(LEFT_OUT)} {platform.machine()} {Path(__file__).read_text()}"
    target = cache / f"{SUITE}-{hashlib.sha256(decides.encode()).hexdigest()[:16]}"
    if not target.exists():
        for program in ("debootstrap", "dpkg-deb"):
            if shutil.which(program) is None:
                raise UsageError(f"driver-image: {program} is not on PATH: apt-get install debootstrap dpkg")
        with tempfile.TemporaryDirectory(dir=cache) as work:
            root = Path(work) / "root"
            _unpack(root, Path(work) / "downloads")
            root.rename(target)
    return target


def _unpack(root: Path, downloads: Path) -> None:
    options = ["--download-only", "--variant=minbase", "--force-check-gpg", f"--include={','.join(PACKAGES)}"]
    _run(["debootstrap", *options, SUITE, str(downloads)])
    archives = {
        path.name.partition("_")[0]: path for path in (downloads / "var/cache/apt/archives").glob("*.deb")
    }
    for folder in ("lib", "lib64", "bin", "sbin"):
        (root / "usr" / folder).mkdir(parents=True)
        (root / folder).symlink_to(f"usr/{folder}")
    status = root / _STATUS
    status.mkdir(parents=True)
    for name, control in closure(archives).items():
        _extract(archives[name], root)
        (status / name).write_text(control)


def closure(archives: Mapping[str, Path]) -> dict[str, str]:
    """`PACKAGES` and what they depend on, as far as it isn't left out: package to control file."""
    found: dict[str, str] = {}
    waiting = list(PACKAGES)
    while waiting:
        name = waiting.pop()
        if name in found or name in LEFT_OUT:
            continue
        if name not in archives:
            raise EnvironmentBlocked(f"driver-image: Debian {SUITE} has no package {name}")
        found[name] = _run(["dpkg-deb", "--field", str(archives[name])])
        for field in ("Depends", "Pre-Depends"):
            for alternatives in filter(None, _field(found[name], field).split(",")):
                first = re.match(r"[a-z0-9.+-]+", alternatives.strip())
                if first:
                    waiting.append(first[0])
    return found


def _field(control: str, name: str) -> str:
    match = re.search(rf"^{name}: (.*)$", control, re.MULTILINE)
    return match[1] if match else ""


def _extract(archive: Path, root: Path) -> None:
    command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as files,
    ):
        for member in _placed(files):
            target = root / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                target.unlink(missing_ok=True)
                target.symlink_to(member.linkname)
            elif member.islnk():
                shutil.copy2(root / _place(member.linkname), target)
            elif content := files.extractfile(member):
                with content, target.open("wb") as file:
                    shutil.copyfileobj(content, file)
                target.chmod(member.mode & 0o755)
    if process.returncode:
        raise EnvironmentBlocked(f"driver-image: dpkg-deb can't read {archive.name}")


def _placed(files: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for member in files:
        member.name = _place(member.name)
        if not member.isdir() and not _SKIPPED.match(member.name):
            yield member


def _place(name: str) -> str:
    return re.sub(rf"^{_MERGED.pattern}", r"usr/\1", name.removeprefix("./"))


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentBlocked(f"driver-image: {command[0]}: {(done.stdout + done.stderr).strip()[-2000:]}")
    return done.stdout
