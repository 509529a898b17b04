"""The configuration file of `fake-driver device-plugin`."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field

from fake_driver.config import DNS_SUBDOMAIN
from fake_driver.control.config import ControlConfig
from fake_driver.pod import fill_in
from fake_driver.strict import Strict, read_yaml, validate

_RESOURCE = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"


class PluginNodeConfig(Strict):
    """One node, and how many devices it has at first."""

    name: str = Field(pattern=DNS_SUBDOMAIN, max_length=253)
    kubelet_dir: Path
    count: int = Field(default=1, ge=0)


class DevicePluginConfig(Strict):
    """Everything that one device plugin process needs to know."""

    resource: str = Field(pattern=_RESOURCE)
    nodes: list[PluginNodeConfig] = Field(min_length=1)
    control: ControlConfig
    pre_start_required: bool = False
    stop_grace_seconds: float = Field(default=5, ge=0)
    log_file: Path | None = None


def load_plugin_config(path: Path) -> DevicePluginConfig:
    """Read the configuration file; what it leaves out, the pod may know (see `fake_driver.pod`).

    Raises:
        ConfigError: one error that names the file, the key and what was expected.
    """
    return validate(DevicePluginConfig, fill_in(read_yaml(path), os.environ), str(path))
