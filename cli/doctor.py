"""`doctor`: what this machine has and lacks, and how to get it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from fake_driver.inventory.base import NodeInventory
from fake_driver.inventory.nvml.config import NvmlConfig
from fake_driver.inventory.nvml.inventory import NvmlInventory

from cli.console import err, show
from cli.options import DEFAULT_KUBERNETES, Output, OutputOption, ProviderName, ProviderOption
from cli.sources import DownloadUrlOption, SourceOption, released_from
from clusters.components import machine
from clusters.driver_host import BUNDLED_DRIVER
from clusters.kind import preflight as kind_preflight
from clusters.local import preflight
from harness.errors import EnvironmentBlocked

NvmlOption = Annotated[
    bool, typer.Option("--nvml", help="Show this machine's GPUs instead, as the driver would publish them.")
]


OnlineOption = Annotated[
    bool, typer.Option("--online", help="Also ask the server of the releases whether it answers.")
]


def doctor(
    output: OutputOption = Output.TABLE,
    nvml: NvmlOption = False,
    provider_name: ProviderOption = ProviderName.LOCAL,
    source: SourceOption = None,
    download_url: DownloadUrlOption = None,
    online: OnlineOption = False,
) -> None:
    """Say what this machine lacks for a cluster, or for GPUs; exits 3 if it lacks something."""
    if nvml:
        show_gpus(output)
        return
    programs = released_from(source, download_url)
    checked = kind_preflight if provider_name is ProviderName.KIND else preflight
    findings = [
        *checked.check_machine(),
        *machine.check_machine(),
        *machine.check_source(programs, DEFAULT_KUBERNETES, online=online),
    ]
    rows = [
        {"subject": each.subject, "state": "ok" if each.ok else "missing", "message": each.message}
        for each in findings
    ]
    show(rows, ["subject", "state", "message"], output)
    if not all(each.ok for each in findings):
        raise typer.Exit(3)


def show_gpus(output: Output) -> None:
    """Print what the driver's inventory `nvml` would publish of this machine.

    Raises:
        EnvironmentBlocked: there is nothing to publish; the message says why.
    """
    inventory = NvmlInventory(NvmlConfig(), BUNDLED_DRIVER)
    try:
        found = inventory.for_node("this machine")
    finally:
        inventory.stop()
    if not found.devices:
        raise EnvironmentBlocked(found.problem)
    if found.problem:
        err.print(f"warning: {found.problem}", markup=False, soft_wrap=True)
    if output is Output.TABLE:
        show(list(_lines(found)), ["device", "key", "type", "value"], output)
    else:
        show([_whole(found, device) for device in found.devices], [], output)


def _whole(found: NodeInventory, device: dict[str, Any]) -> dict[str, Any]:
    health = found.health[device["name"]]
    return device | {"health": health.value, "message": health.message}


def _lines(found: NodeInventory) -> Iterator[dict[str, Any]]:
    """One line for each thing that is known of a device."""
    for device in found.devices:
        name, health = device["name"], found.health[device["name"]]
        text = f"{health.value}: {health.message}" if health.message else health.value
        yield {"device": name, "key": "health", "value": text}
        for taint in device.get("taints", ()):
            value = f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
            yield {"device": name, "key": "taint", "value": value}
        for key, typed in device["attributes"].items():
            for type_, value in typed.items():
                yield {"device": name, "key": key, "type": type_, "value": value}
        for key, amount in device["capacity"].items():
            yield {"device": name, "key": key, "type": "capacity", "value": amount["value"]}
