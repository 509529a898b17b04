"""What the generator is told of a profile's pods."""

from __future__ import annotations

from load import objects
from load.model import PodKind
from load.naming import Names
from load.profiles.schema import PodShape, Via
from load.scenarios.capacity import plugin_resource


def pod_kind(names: Names, shape: PodShape, *, mixed: bool = False) -> PodKind:
    """The kind of a shape; `mixed`: some nodes serve its extended resource without a claim."""
    kind = objects.pod_kind(names, shape)
    if shape.via is Via.PLUGIN:
        amounts = {plugin_resource(names): str(shape.devices)}
        kind.manifest["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": dict(amounts)}
    by_status = mixed and shape.via in (Via.EXPLICIT, Via.IMPLICIT)
    return kind.model_copy(update={"claims_by_status": by_status})
