"""The driver's socket tests again, with the hardware's inventory: the kubelet is promised the same."""

# ruff: noqa: F403 - the imported tests are what this file is for
from __future__ import annotations

from typing import Any

import pytest

from tests.fake_driver.nvml.conftest import settings
from tests.fake_driver.nvml.machine import Machine
from tests.fake_driver.test_health import *
from tests.fake_driver.test_prepare import *
from tests.fake_driver.test_registration import *


@pytest.fixture  # type: ignore[no-redef] # it takes the place of the imported one
def default_inventory(machine: Machine) -> Any:
    """Two H100s."""
    machine.gpu("h100", 0)
    machine.gpu("h100", 1)
    return {"nvml": settings(machine)}
