"""The bundled driver's manifest: its Helm chart, rendered by the real Helm."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fake_driver

from clusters.components import HELM, BuildSource, ComponentSource, Progress, silent
from harness.errors import EnvironmentBlocked, UsageError

RELEASE = "dra-driver"
"""Name and namespace of the release, unless said otherwise."""

_SECONDS = 60.0
_NO_KUBERNETES = ""
"""Helm is no part of Kubernetes, so its build doesn't depend on a version."""


def chart() -> Path:
    """The chart's folder.

    Raises:
        UsageError: this installation has none.
    """
    folder = Path(fake_driver.__file__).parents[1] / "deploy" / "chart"
    if not (folder / "Chart.yaml").exists():
        raise UsageError(f"{folder}: the driver's chart is not there; it comes with the source tree")
    return folder


def helm(source: ComponentSource | None = None, progress: Progress = silent) -> Path:
    """Helm: the one on PATH, else the pinned one, which is built on first use.

    Raises:
        UsageError: it can't be built here.
        HarnessError: the build failed.
    """
    if found := shutil.which("helm"):
        return Path(found)
    return (source or BuildSource()).ensure([HELM], _NO_KUBERNETES, progress)["helm"]


def render(
    program: Path,
    values: Mapping[str, Any],
    *,
    files: Sequence[Path] = (),
    name: str = RELEASE,
    namespace: str = RELEASE,
) -> str:
    """The chart's objects as YAML documents.

    Args:
        program: Helm.
        values: what differs from the chart's own values; goes before `files`.
        files: values files.
        name: the release's name.
        namespace: where it is to be.

    Raises:
        UsageError: the values are wrong; the message is Helm's.
        EnvironmentBlocked: Helm did not end.
    """
    options = [f"--values={path}" for path in files]
    command: list[str | Path] = [program, "template", name, chart(), "--namespace", namespace]
    try:
        done = subprocess.run(
            [*command, *options, "--values", "-"],
            input=json.dumps(values),
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentBlocked(f"{program}: {error}") from error
    if done.returncode:
        raise UsageError(f"the driver's chart: {done.stderr.strip().removeprefix('Error: ')}")
    return done.stdout
