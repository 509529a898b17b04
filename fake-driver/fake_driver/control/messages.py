"""What goes through the control endpoint."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from fake_driver.config import Quirk
from fake_driver.faults import Fault
from fake_driver.inventory.model import Taint
from fake_driver.strict import Message

PUBLISH_TIMEOUT_SECONDS = 15.0


class _Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class NodeStatus(_Answer):
    """One node as the driver sees it."""

    name: str
    registered: bool
    registration_error: str
    registrations: int
    supported_versions: list[str]
    sockets: list[str]
    published: bool
    generation: int
    slices: list[str]
    dropped_fields: list[str]
    publish_error: str
    inventory_problem: str = ""
    devices: list[str]
    health: dict[str, str]
    health_streams: int
    prepared_claims: list[str]


class Status(_Answer):
    """The whole driver."""

    driver: str
    pid: int
    stopping: bool
    metadata_enabled: bool
    quirks: list[str]
    faults: list[dict[str, Any]]
    nodes: list[NodeStatus]

    def node(self, name: str) -> NodeStatus:
        """The status of one node.

        Raises:
            KeyError: the driver doesn't serve it.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)


class Nothing(Message):
    """A request without parameters."""


class FindCalls(Message):
    """Which recorded calls are wanted."""

    node: str | None = None
    method: str | None = None
    claim_uid: str | None = None
    after: int = 0


class SetInventory(Message):
    """A new profile (inline, path or bundled name) for one node, or for all."""

    inventory: Any
    node: str | None = None
    timeout_seconds: float = PUBLISH_TIMEOUT_SECONDS


class SetTaints(Message):
    """Extra taints of a device, instead of the extra ones so far, on one node or on all."""

    device: str
    taints: list[Taint]
    node: str | None = None
    timeout_seconds: float = PUBLISH_TIMEOUT_SECONDS


class SetHealth(Message):
    """The health of a device, on one node or on all."""

    device: str
    health: Literal["Healthy", "Unhealthy", "Unknown"]
    message: str = ""
    timeout_seconds: int | None = Field(default=None, ge=1)
    node: str | None = None


class SetFault(Message):
    """A fault to put into force."""

    fault: Fault


class ClearFaults(Message):
    """The fault to lift, or all."""

    id: int | None = None


class SetMetadata(Message):
    """Whether claims prepared from now on get metadata files."""

    enabled: bool


class UpdateMetadata(Message):
    """New attributes or networkData for devices of a prepared claim's request."""

    node: str
    claim_uid: str
    request: str
    devices: dict[str, dict[str, Any]]


class SetQuirks(Message):
    """The quirks that hold from now on, instead of those so far."""

    quirks: list[Quirk]


class OnNode(Message):
    """One node, or all."""

    node: str | None = None
