"""Which inventory a configuration asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fake_driver.inventory.base import Inventory
from fake_driver.inventory.synthetic import load_inventory
from fake_driver.strict import validate

NVML = "nvml"


def choose_inventory(value: Any, source: Path, driver: str, key: str = "inventory") -> Inventory:
    """The hardware for `nvml` (or a mapping with that key alone), else a synthetic inventory.

    Args:
        value: what the configuration says.
        source: the configuration's file.
        driver: the driver's name, the domain of taints.
        key: dotted key of `value`.

    Raises:
        ConfigError: names the file, the key and what was expected.
    """
    if value == NVML or (isinstance(value, dict) and NVML in value):
        from fake_driver.inventory.nvml.config import NvmlChoice
        from fake_driver.inventory.nvml.inventory import NvmlInventory

        chosen = {NVML: {}} if value == NVML else value
        return NvmlInventory(validate(NvmlChoice, chosen, str(source), key).nvml, driver)
    return load_inventory(value, source, key)
