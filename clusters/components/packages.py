"""Installs pinned Python packages into a folder of their own, with whichever of pip and uv there is."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path

from clusters.components import command
from harness.errors import HarnessError, UsageError


def install(requirements: Path, target: Path, why: str, what: str, *, python: str = "") -> None:
    """Install wheels, each with a checksum from `requirements`.

    Args:
        requirements: a requirements.txt with hashes.
        target: the folder.
        why: what they are for, to begin an error message with.
        what: how to call them in an error message.
        python: the Python on Linux that they are for, such as `3.11`; the running one if not given.

    Raises:
        UsageError: there is neither pip nor uv.
        HarnessError: the installation failed.
    """
    options = ["--require-hashes", "--no-deps", "--target", str(target), "-r", str(requirements)]
    try:
        command.run([*_installer(why, what, python), *options], Path.cwd(), os.environ)
    except command.CommandFailed as error:
        message = f"installing {what} failed (is there a network?)"
        raise HarnessError(f"{why}; {message}:\n{error.output}") from error


def _installer(why: str, what: str, python: str) -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", *_for_pip(python)]
    if uv := shutil.which("uv"):
        chosen = _for_uv(python) or ["--python", sys.executable]
        return [uv, "pip", "install", "--quiet", "--only-binary=:all:", *chosen]
    if pip := shutil.which("pip"):
        return [pip, "install", "--quiet", "--only-binary=:all:", *_for_pip(python)]
    raise UsageError(f"{why}: put `uv` or `pip` on PATH so that the harness can install {what}")


def _for_pip(python: str) -> list[str]:
    if not python:
        return []
    abi = f"cp{python.replace('.', '')}"
    options = ["--implementation", "cp", "--python-version", python, "--abi", abi, "--abi", "abi3"]
    for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014"):
        options += ["--platform", f"{tag}_{platform.machine()}"]
    return [*options, "--no-compile"]


def _for_uv(python: str) -> list[str]:
    if not python:
        return []
    return ["--python-version", python, "--python-platform", f"{platform.machine()}-manylinux_2_28"]
