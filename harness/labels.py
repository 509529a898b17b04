"""Labels that the harness puts on what it creates."""

from __future__ import annotations

RUN = "dra-harness.dev/run"
"""Every object that a run creates carries this label, with the run's id as its value."""

DRIVERS = "dra-harness.dev/drivers-of"
"""What a run's drivers in pods consist of carries this one instead: it goes last, when nothing uses them."""
