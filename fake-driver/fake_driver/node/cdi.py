"""CDI specs: one file per claim, one CDI device per allocated device.

A container sees each device as a variable of its own, so that claims and requests never overwrite each other:
`DRA_DEVICE_<DRIVER>_<DEVICE>=<pool>/<device>;claim=<uid>;request=<request>`, and as the character device
`/dev/dra-harness/<driver>/<device>` with the numbers of `/dev/null`.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_driver.config import Quirk
from fake_driver.files import write_json
from fake_driver.node.claims import AllocatedDevice, PreparedClaim

CDI_VERSION = "0.6.0"  # the first with dots in class names; every supported runtime reads it
ENV_PREFIX = "DRA_DEVICE_"
DEVICE_DIRECTORY = "/dev/dra-harness"
_NULL_MAJOR, _NULL_MINOR = 1, 3


@dataclass(frozen=True)
class SeenDevice:
    """What a container's environment says about one device."""

    variable: str
    pool: str
    device: str
    claim_uid: str
    request: str


def env_name(driver: str, device: AllocatedDevice, claim_uid: str) -> str:
    """The variable for a device; shares and admin access add to it, since they may meet in one container."""
    parts = [driver, device.device]
    if device.share_id:
        parts += ["SHARE", device.share_id]
    if device.admin_access:
        parts += ["ADMIN", claim_uid]
    return ENV_PREFIX + re.sub(r"[^A-Z0-9]", "_", "_".join(parts).upper())


def parse_environment(text: str, driver: str | None = None) -> list[SeenDevice]:
    """The devices that `env` output of a container shows, sorted by variable; of one driver if given."""
    prefix = ENV_PREFIX + (re.sub(r"[^A-Z0-9]", "_", driver.upper()) + "_" if driver else "")
    pattern = re.compile(r"^(\w+)=(.+)/([^/;]+);claim=([^;]*);request=(.*)$")
    seen = []
    for line in text.splitlines():
        match = pattern.match(line.strip())
        if match and match[1].startswith(prefix):
            seen.append(SeenDevice(*match.groups()))
    return sorted(seen, key=lambda device: device.variable)


class CdiWriter:
    """Writes and removes the claim specs of one driver on one node."""

    def __init__(
        self, driver: str, class_name: str, directory: Path, quirks: Set[Quirk] = frozenset()
    ) -> None:
        self._driver = driver
        self._kind = f"{driver}/{class_name}"
        self._directory = directory
        self._quirks = quirks

    def path(self, claim_uid: str) -> Path:
        """The spec file of a claim."""
        return self._directory / f"{self._driver}_claim_{claim_uid}.json"

    def device_id(self, claim_uid: str, device: AllocatedDevice) -> str:
        """The fully qualified CDI name of a device of a claim."""
        return f"{self._kind}={self._device_name(claim_uid, device)}"

    def write(self, claim: PreparedClaim) -> None:
        """Write the claim's spec in one step.

        Raises:
            OSError: the directory can't be written.
        """
        devices = [
            {"name": self._device_name(claim.uid, device), "containerEdits": self._edits(claim.uid, device)}
            for device in claim.devices
        ]
        spec = {"cdiVersion": CDI_VERSION, "kind": self._kind, "devices": devices}
        write_json(self.path(claim.uid), spec)

    def remove(self, claim_uid: str) -> None:
        """Remove the claim's spec, if there is one."""
        self.path(claim_uid).unlink(missing_ok=True)

    def claims(self) -> set[str]:
        """UIDs of the claims that have a spec."""
        start, end = f"{self._driver}_claim_", ".json"
        return {
            path.name.removeprefix(start).removesuffix(end) for path in self._directory.glob(f"{start}*{end}")
        }

    def _edits(self, claim_uid: str, device: AllocatedDevice) -> dict[str, Any]:
        value = f"{device.pool}/{device.device};claim={claim_uid};request={device.request}"
        own = {env_name(self._driver, device, claim_uid): value}
        hardware = device.edits
        return hardware | {
            "env": [
                *(f"{key}={entry}" for key, entry in {**own, **device.env}.items()),
                *hardware.get("env", ()),
            ],
            "deviceNodes": [
                {
                    "path": f"{DEVICE_DIRECTORY}/{self._driver}/{device.device}",
                    "type": "c",
                    "major": _NULL_MAJOR,
                    "minor": _NULL_MINOR,
                    "fileMode": 0o666,
                    "permissions": "rw",
                },
                *hardware.get("deviceNodes", ()),
            ],
        }

    def _device_name(self, claim_uid: str, device: AllocatedDevice) -> str:
        parts = [claim_uid, device.main_request, device.device]
        if Quirk.REUSES_CDI_IDS in self._quirks:
            del parts[0]
        return "_".join([*parts, device.share_id] if device.share_id else parts)
