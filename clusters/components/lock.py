"""Pins a Kubernetes version: writes the go.mod and go.sum from which its programs are built.

`k8s.io/kubernetes` can't be required as it is published: its go.mod points the staging modules (`k8s.io/api`
and so on) at folders of its own repository. Each is published as a module of its own, at v0.Y.Z for
Kubernetes v1.Y.Z, so the go.mod written here replaces them by those.

Maintainers add a version to the tree with `python -m clusters.components.lock v1.36.1` and review the result.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clusters.components import command, locations, programs, toolchain
from clusters.components.interface import Progress, silent
from clusters.components.toolchain import Toolchain
from harness.errors import HarnessError, UsageError
from harness.settings import cache_root

_MODULE = "k8s.io/kubernetes"
_VERSION = re.compile(r"v1\.(\d+)\.(\d+)(?:-(alpha|beta|rc)\.(\d+))?")
_TOOL_DIRECTIVE_SINCE = "1.24"
_LOCKED = locations.MODULES / "kubernetes"


def check(version: str) -> None:
    """Refuse what doesn't look like a Kubernetes version.

    Raises:
        UsageError: saying what versions look like, and which are locked.
    """
    if not _VERSION.fullmatch(version):
        raise UsageError(f"Kubernetes version {version!r}: {_expected()}")


def _expected() -> str:
    versions = ", ".join(locked())
    return f"expected a version such as v1.37.2 or v1.38.0-rc.0; locked in this release: {versions}"


def locked() -> list[str]:
    """The versions whose go.sum is part of this release, oldest first."""
    return sorted((path.name for path in _LOCKED.iterdir() if (path / "go.sum").exists()), key=_order)


def _order(version: str) -> tuple[int, int, str, int]:
    found = _VERSION.fullmatch(version)
    assert found is not None, version
    minor, patch, stage, number = found.groups()
    return int(minor), int(patch), stage or "release", int(number or 0)


def directory_of(version: str, cache: Path) -> Path:
    """Where a version's go.mod and go.sum are, or are to be: in this release, or else in the cache."""
    in_tree = _LOCKED / version
    return in_tree if (in_tree / "go.sum").exists() else cache / "modules" / "kubernetes" / version


def published(version: str, go: Toolchain) -> dict[str, Any]:
    """What the Go module proxy says about a Kubernetes version, as `go list -m -json` prints it.

    `GoMod` is the path of its go.mod, `Time` when it was committed, and `Origin`, which not every proxy
    tells, has the commit's `Hash`.

    Raises:
        UsageError: if it has no such version.
        HarnessError: if it can't be reached.
    """
    with tempfile.TemporaryDirectory() as no_module:
        arguments = ["list", "-m", "-json", f"{_MODULE}@{version}"]
        try:
            output = command.run([go.go, *arguments], Path(no_module), go.environment())
        except command.CommandFailed as error:
            raise _explain(version, error) from error
    answer: dict[str, Any] = json.loads(output[output.index("{") :])
    return answer


def _explain(version: str, error: command.CommandFailed) -> HarnessError:
    if error.absent:
        return UsageError(
            f"Kubernetes version {version!r}: the Go module proxy does not have all of it; {_expected()} "
            f"(prebuilt programs can be given as a directory):\n{error.output}"
        )
    reason = "no network to download it" if error.network else "the download failed"
    return HarnessError(f"Kubernetes {version}: {reason}:\n{error.output}")


def go_mod(version: str, module: Mapping[str, Any]) -> str:
    """The go.mod for building Kubernetes' programs.

    Args:
        version: of Kubernetes, `v1.Y.Z`.
        module: the go.mod published with it, as `go mod edit -json` prints it.
    """
    staging_version = "v0." + version.removeprefix("v1.")
    staging = [
        replace["Old"]["Path"]
        for replace in module["Replace"]
        if replace["New"]["Path"].startswith("./staging/")
    ]
    tools = [program.package for program in programs.PROGRAMS.values() if program.module.name == "kubernetes"]
    blocks = [
        "module dra-harness.local/components/kubernetes",
        f"go {module['Go']}",
        *(f"godebug {entry['Key']}={entry['Value']}" for entry in module.get("GoDebug") or ()),
        f"require {_MODULE} {version}",
        _block("replace", [f"{path} => {path} {staging_version}" for path in staging]),
        _block("tool", tools),
    ]
    return "\n\n".join(blocks) + "\n"


def _block(word: str, lines: Sequence[str]) -> str:
    return "\n".join((f"{word} (", *(f"\t{line}" for line in lines), ")"))


def lock(version: str, directory: Path, *, cache: Path | None = None, progress: Progress = silent) -> None:
    """Write go.mod and go.sum for a Kubernetes version into a directory.

    Every module's checksum comes from the Go checksum database (unless the user's Go is set up otherwise),
    and from then on go.sum is what builds are held to.

    Args:
        version: any that the Go module proxy has whole.
        directory: gets the two files; made if it isn't there.
        cache: for the Go toolchain, should the machine have none.
        progress: told that this goes on.

    Raises:
        UsageError: if there is no such version, or no Go.
        HarnessError: if the module proxy can't be reached.
    """
    check(version)
    progress("lock", 0, 1, f"pinning the modules of Kubernetes {version}")
    cache = cache or cache_root()
    go = toolchain.find(_TOOL_DIRECTIVE_SINCE, cache, progress)
    source = published(version, go)["GoMod"]
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        module = json.loads(command.run([go.go, "mod", "edit", "-json", source], work, go.environment()))
        go = toolchain.find(module["Go"], cache, progress)
        (work / "go.mod").write_text(go_mod(version, module), encoding="utf-8")
        try:
            command.run([go.go, "mod", "tidy"], work, go.environment(flags="-mod=mod"))
        except command.CommandFailed as error:
            raise _explain(version, error) from error
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("go.mod", "go.sum"):
            _replace(directory / name, (work / name).read_bytes())
    progress("lock", 1, 1, f"pinned the modules of Kubernetes {version} in {directory}")


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    partial.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Add a version to the tree: `python -m clusters.components.lock VERSION`."""
    parser = argparse.ArgumentParser(prog="python -m clusters.components.lock", description=main.__doc__)
    parser.add_argument("version", help="Kubernetes version, such as v1.37.2")
    version = parser.parse_args(arguments).version
    try:
        lock(version, _LOCKED / version)
    except HarnessError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    sys.stdout.write(f"{_LOCKED / version}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
