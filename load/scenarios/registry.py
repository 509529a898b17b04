"""Which kinds of scenarios there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import pydantic

from load.scenarios.apf import ApfSweep
from load.scenarios.burst import BurstWatch
from load.scenarios.interface import ScenarioSpec
from load.scenarios.migrate import Migrate
from load.scenarios.quiet import Quiet
from load.scenarios.quota import QuotaRaise
from load.scenarios.reference import Reference
from load.scenarios.slices import SliceStorm
from load.scenarios.soak import Soak
from load.scenarios.steps import StepSearch
from load.scenarios.taints import TaintToggles

_Spec = Annotated[
    Quiet
    | StepSearch
    | Reference
    | BurstWatch
    | ApfSweep
    | QuotaRaise
    | TaintToggles
    | SliceStorm
    | Migrate
    | Soak,
    pydantic.Field(discriminator="kind"),
]
_ADAPTER: pydantic.TypeAdapter[ScenarioSpec] = pydantic.TypeAdapter(_Spec)


def scenario_spec(document: Mapping[str, Any]) -> ScenarioSpec:
    """The part `scenario` of a profile, checked.

    Raises:
        pydantic.ValidationError: if a key is unknown or a value can't be.
    """
    return _ADAPTER.validate_python(document)
