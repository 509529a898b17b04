"""`driver-image`, `driver-manifest`, `pod-image`: what runs in pods, as images and a manifest."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from cli.console import BringUpProgress, out
from cli.options import DEFAULT_KUBERNETES
from clusters import driver_chart, providers
from clusters.components import POD_IMAGE, PROGRAMS, BuildSource, write_archive
from clusters.driver_image import build
from clusters.interface import LoadsImages
from harness.errors import UsageError


def driver_image(
    output: Annotated[
        Path | None, typer.Option("--output", help="Where the archive goes; printed if not given.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="A cluster whose nodes are to have the image.")
    ] = None,
) -> None:
    """Build the bundled driver's image as an OCI archive, without a container engine or a registry."""
    provider = None if cluster is None else providers.having(cluster)
    if provider is not None and not isinstance(provider, LoadsImages):
        raise UsageError(f"--cluster {cluster}: its nodes are out of reach; push the archive to a registry")
    if output is not None:
        _require_file(output)
    progress = BringUpProgress()
    try:
        image = build.ensure(progress.components)
    finally:
        progress.close()
    archive = image.archive
    if output is not None:
        try:
            archive = Path(shutil.copyfile(image.archive, output))
        except OSError as error:
            raise UsageError(f"--output {output}: can't be written: {error.strerror}") from error
    if cluster is not None and provider is not None:
        provider.load_image(cluster, archive)
    size = archive.stat().st_size / 1e6
    out.print(f"{image.name}, {size:.0f} MB: {archive}", markup=False, soft_wrap=True)


def pod_image(
    output: Annotated[Path, typer.Option("--output", help="Where the archive goes.")],
) -> None:
    """Pack the image of the checks' own pods as an OCI archive, for clusters that somebody else made."""
    _require_file(output)
    progress = BringUpProgress()
    try:
        programs = BuildSource().ensure([PROGRAMS["pod"]], DEFAULT_KUBERNETES, progress.components)
    finally:
        progress.close()
    try:
        write_archive(programs["pod"], output)
    except OSError as error:
        raise UsageError(f"--output {output}: can't be written: {error.strerror}") from error
    out.print(f"{POD_IMAGE}, {output.stat().st_size / 1e6:.1f} MB: {output}", markup=False, soft_wrap=True)


def driver_manifest(
    name: Annotated[str, typer.Option("--name", help="Name of the release.")] = driver_chart.RELEASE,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Its namespace.")
    ] = driver_chart.RELEASE,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A value of the chart, as key.of.it=value (YAML).")
    ] = None,
    values: Annotated[
        list[Path] | None, typer.Option("--values", "-f", help="A file with values of the chart.")
    ] = None,
) -> None:
    """Print the manifest of the bundled driver as a DaemonSet, rendered from its chart."""
    chosen: dict[str, Any] = {"namespace": {"create": True}}
    for setting in set_ or ():
        _set(chosen, setting)
    for path in values or ():
        if not path.is_file():
            raise UsageError(f"--values {path}: no such file")
    progress = BringUpProgress()
    try:
        program = driver_chart.helm(progress=progress.components)
    finally:
        progress.close()
    text = driver_chart.render(program, chosen, files=values or (), name=name, namespace=namespace)
    out.print(text, markup=False, soft_wrap=True, end="")


def _require_file(output: Path) -> None:
    if not output.absolute().parent.is_dir():
        raise UsageError(f"--output {output}: there is no folder {output.absolute().parent}")
    if output.is_dir():
        raise UsageError(f"--output {output}: expected the name of a file, this is a folder")


def _set(values: dict[str, Any], setting: str) -> None:
    """Put `a.b=value` into nested mappings."""
    key, equals, text = setting.partition("=")
    *parents, last = key.split(".")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"--set {setting}: not a YAML value: {error}") from error
    if not (equals and all(parents) and last):
        raise UsageError(f"--set {setting}: expected key=value, such as control.enabled=true")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise UsageError(f"--set {setting}: {parent} was set to a value before")
    values[last] = value
