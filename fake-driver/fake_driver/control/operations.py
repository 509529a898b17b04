"""The operations of the control endpoint of `serve`, by name."""

from __future__ import annotations

from fake_driver.control import messages as m
from fake_driver.control.server import Operation
from fake_driver.driver import Driver


def operations(driver: Driver) -> dict[str, Operation]:
    """Each operation's request model and what runs it."""
    return {
        "status": (m.Nothing, driver.status),
        "calls": (m.FindCalls, driver.find_calls),
        "clear-calls": (m.Nothing, driver.clear_calls),
        "set-inventory": (m.SetInventory, driver.set_inventory),
        "set-taints": (m.SetTaints, driver.set_taints),
        "set-health": (m.SetHealth, driver.set_health),
        "set-fault": (m.SetFault, driver.set_fault),
        "clear-faults": (m.ClearFaults, driver.clear_faults),
        "set-metadata": (m.SetMetadata, driver.set_metadata),
        "update-metadata": (m.UpdateMetadata, driver.update_metadata),
        "set-quirks": (m.SetQuirks, driver.set_quirks),
        "register": (m.OnNode, driver.register),
        "unregister": (m.OnNode, driver.unregister),
        "stop": (m.Nothing, driver.ask_stop),
        "uninstall": (m.Nothing, driver.ask_uninstall),
    }
