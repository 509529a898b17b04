"""The configuration file of `fake-driver serve`."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from fake_driver.control.config import ControlConfig
from fake_driver.pod import fill_in
from fake_driver.strict import Strict, read_yaml, validate

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


class Quirk(StrEnum):
    """Seeded misbehaviour, one broken promise each: what a check of that promise must catch."""

    PREPARE_MOVES_DEVICE = "prepare-moves-device"
    UNPREPARE_UNKNOWN_FAILS = "unprepare-unknown-fails"
    UNPREPARE_NEEDS_CLAIM = "unprepare-needs-claim"
    UNPREPARE_KEEPS_DEVICE = "unprepare-keeps-device"
    NO_SLICE_RESTORE = "no-slice-restore"
    WRONG_SLICE_COUNT = "wrong-slice-count"
    KEEPS_OLD_SLICES = "keeps-old-slices"
    TRUSTS_OLD_SLICES = "trusts-old-slices"
    TAKES_SLICES_ALONG = "takes-slices-along"
    FORGETS_CLAIMS = "forgets-claims"
    SHARES_DEVICES = "shares-devices"
    UNQUALIFIED_CDI_IDS = "unqualified-cdi-ids"
    REUSES_CDI_IDS = "reuses-cdi-ids"
    KEEPS_CDI_SPECS = "keeps-cdi-specs"
    DUPLICATE_CDI_IDS = "duplicate-cdi-ids"
    CONFIG_FOR_ALL_REQUESTS = "config-for-all-requests"
    EMPTY_IN_V1BETA1 = "empty-in-v1beta1"
    REFUSES_EXTENDED_RESOURCES = "refuses-extended-resources"
    NO_REQUEST_NAMES = "no-request-names"
    SUBREQUEST_NAMES = "subrequest-names"
    NO_SUBREQUEST_CONFIG = "no-subrequest-config"
    GIVES_UP_ON_CLAIMS = "gives-up-on-claims"
    METADATA_DIRECT_PATH_ONLY = "metadata-direct-path-only"
    METADATA_NO_DIRECT_CLAIMS = "metadata-no-direct-claims"
    METADATA_ALL_REQUESTS = "metadata-all-requests"
    METADATA_OLDEST_FIRST = "metadata-oldest-first"
    METADATA_WRONG_UID = "metadata-wrong-uid"
    METADATA_FIRST_DEVICE_ONLY = "metadata-first-device-only"
    METADATA_NO_DRIVER_NAME = "metadata-no-driver-name"
    METADATA_SAME_GENERATION = "metadata-same-generation"
    METADATA_WRITABLE = "metadata-writable"
    METADATA_KEEPS_FILES = "metadata-keeps-files"
    METADATA_ALWAYS = "metadata-always"
    METADATA_IGNORES_FAILURE = "metadata-ignores-failure"
    METADATA_SUBREQUEST_PATH = "metadata-subrequest-path"
    METADATA_LEAK = "metadata-leak"
    METADATA_AS_TEXT = "metadata-as-text"
    METADATA_UPDATES_ANYTHING = "metadata-updates-anything"
    METADATA_WRONG_NAME = "metadata-wrong-name"
    METADATA_SLOW = "metadata-slow"
    LISTS_BY_DEFAULT = "lists-by-default"
    HIDES_REFUSALS = "hides-refusals"
    NUMA_OWN_NAME = "numa-own-name"
    NUMA_AS_TEXT = "numa-as-text"
    NUMA_OFF_BY_ONE = "numa-off-by-one"
    NUMA_ZERO_FOR_NONE = "numa-zero-for-none"
    NUMA_EIGHT_NODES = "numa-eight-nodes"
    NUMA_RENUMBERS = "numa-renumbers"
    PCI_SHORT_ADDRESS = "pci-short-address"
    HEALTH_PARTIAL_LIST = "health-partial-list"
    HEALTH_NO_REFRESH = "health-no-refresh"
    HEALTH_TAINTS = "health-taints"
    KEEPS_TAINTS = "keeps-taints"
    OVERFULL_SLICES = "overfull-slices"


class NodeConfig(Strict):
    """One node that the driver serves, and where its directories are."""

    name: str = Field(pattern=DNS_SUBDOMAIN, max_length=253)
    kubelet_dir: Path
    kubelet_dir_in_node: str = Field(default="/var/lib/kubelet", pattern="^/")
    cdi_dir: Path
    inventory: Any = None


class MetadataConfig(Strict):
    """Device metadata files (KEP-5304), and their API versions from newest to oldest."""

    enabled: bool = True
    versions: list[Literal["v1beta1", "v1alpha1"]] = Field(default=["v1beta1", "v1alpha1"], min_length=1)


class HealthConfig(Strict):
    """Device health (KEP-4680). `timeoutSeconds` is each device's default report lifetime."""

    enabled: bool = True
    versions: list[Literal["v1", "v1alpha1"]] = Field(default=["v1", "v1alpha1"], min_length=1)
    timeout_seconds: int = Field(default=30, ge=1)
    refresh_seconds: float | None = Field(default=None, gt=0)

    @property
    def refresh(self) -> float:
        """Seconds between two reports without news; a third of the lifetime unless set."""
        return self.refresh_seconds or self.timeout_seconds / 3


class ServeConfig(Strict):
    """Everything that one driver process needs to know."""

    driver: str = Field(pattern=DNS_SUBDOMAIN, max_length=63)
    kubeconfig: Path | None = None
    instance: str | None = Field(default=None, pattern=DNS_LABEL, max_length=63)
    nodes: list[NodeConfig] = Field(min_length=1)
    control: ControlConfig
    inventory: Any = "h200"
    cdi_class: str = Field(default="gpu", pattern=r"^[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")
    metadata: MetadataConfig = MetadataConfig()
    health: HealthConfig = HealthConfig()
    api_versions: list[Literal["v1", "v1beta1"]] = Field(default=["v1", "v1beta1"], min_length=1)
    start_timeout_seconds: float = Field(default=60, gt=0)
    stop_grace_seconds: float = Field(default=5, ge=0)
    quirks: list[Quirk] = Field(default_factory=list)
    log_file: Path | None = None

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [node.name for node in self.nodes]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"nodes: expected each name once, {repeated[0]!r} is repeated")
        return self


def load_config(path: Path) -> ServeConfig:
    """Read the configuration file; what it leaves out, the pod may know (see `fake_driver.pod`).

    Raises:
        ConfigError: one error that names the file, the key and what was expected.
    """
    return validate(ServeConfig, fill_in(read_yaml(path), os.environ), str(path))
