"""Names of what a load run makes on a cluster: the same for the same run, and shared with no other."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from harness.labels import RUN


@dataclass(frozen=True)
class Names:
    """Names of one run's objects."""

    run_id: str
    token: str = field(init=False)
    """Eight hex digits of the run's id, which may be too long or have letters that names can't."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "token", hashlib.sha256(self.run_id.encode()).hexdigest()[:8])

    @property
    def prefix(self) -> str:
        """Begins the name of every object that is in no namespace of the run."""
        return f"load-{self.token}-"

    @property
    def labels(self) -> dict[str, str]:
        """What everything that the run makes carries."""
        return {RUN: self.run_id}

    def name(self, suffix: str) -> str:
        """A DNS label, such as `load-1a2b3c4d-gpu`."""
        return f"{self.prefix}{suffix}"

    @property
    def device_class(self) -> str:
        """The DeviceClass that has an extended resource's name, and that claims ask for."""
        return self.name("gpu")

    @property
    def implicit_class(self) -> str:
        """The DeviceClass without one, known by its implicit name only."""
        return self.name("implicit")

    @property
    def extended_resource(self) -> str:
        """The name that `device_class` gives its devices."""
        return f"{self.token}.dra-harness.dev/gpu"

    @property
    def implicit_resource(self) -> str:
        """The name that every class has: https://kep.k8s.io/5004."""
        return f"deviceclass.resource.kubernetes.io/{self.implicit_class}"
