"""Device metadata files (KEP-5304): what a container can read about its devices, mounted through CDI."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from fake_driver.config import Quirk
from fake_driver.errors import ClaimError
from fake_driver.files import write_atomically, write_json
from fake_driver.node.cdi import CDI_VERSION
from fake_driver.node.claims import AllocatedDevice, ClaimRef, PreparedClaim

GROUP = "metadata.resource.k8s.io"
CONTAINER_DIRECTORY = PurePosixPath("/var/run/kubernetes.io/dra-device-attributes")


@dataclass(frozen=True)
class MetadataPaths:
    """Where the files of one driver on one node lie, as seen here and as seen in the node."""

    driver: str
    plugin_dir: Path
    plugin_dir_in_node: PurePosixPath
    cdi_dir: Path


class MetadataWriter:
    """Writes, updates and removes the metadata files and their CDI specs."""

    def __init__(self, paths: MetadataPaths, versions: list[str], quirks: set[Quirk]) -> None:
        self._paths = paths
        self._versions = versions
        self._quirks = quirks

    def cdi_ids(self, claim: PreparedClaim) -> dict[str, str]:
        """The CDI name of each main request's file."""
        kind = f"{self._paths.driver}/metadata"
        return {request: f"{kind}={claim.uid}_{request}" for request in claim.requests()}

    def write(self, claim: PreparedClaim) -> None:
        """Write the file and the CDI spec of every request of the claim.

        Raises:
            ClaimError: a still prepared claim of the same name owns the directory.
            OSError: something can't be written.
        """
        for request, devices in claim.requests().items():
            path = self._file(claim.namespace, claim.name, request)
            write_atomically(path, self._stream(claim, request, devices).encode())
            write_json(self._spec_path(claim.uid, request), self._spec(claim, request, devices))

    def missing(self, claim: PreparedClaim) -> bool:
        """Whether any of the claim's files is gone."""
        return any(
            not self._spec_path(claim.uid, request).exists()
            or not self._file(claim.namespace, claim.name, request).exists()
            for request in claim.requests()
        )

    def update(self, claim: PreparedClaim, request: str, changes: dict[str, dict[str, Any]]) -> PreparedClaim:
        """Replace attributes or networkData of a request's devices, at the next generation.

        Args:
            claim: the prepared claim.
            request: a main request name.
            changes: by device name, `attributes` and/or `networkData`.

        Raises:
            ClaimError: the claim has no metadata, or no such request or device.
        """
        devices = claim.requests().get(request)
        if devices is None or not claim.metadata:
            raise ClaimError(f"request {request!r} has no metadata in claim {claim.namespace}/{claim.name}")
        unknown = sorted(set(changes) - {device.device for device in devices})
        if unknown:
            raise ClaimError(f"request {request!r} has no device {unknown[0]!r}")
        changed = tuple(
            _changed(device, changes.get(device.device, {})) if device.main_request == request else device
            for device in claim.devices
        )
        step = 0 if Quirk.METADATA_SAME_GENERATION in self._quirks else 1
        generation = claim.generations.get(request, 1) + step
        updated = replace(claim, devices=changed, generations=claim.generations | {request: generation})
        self.write(updated)
        return updated

    def remove(self, ref: ClaimRef) -> None:
        """Remove the claim's files and specs, but not those of another claim that has the name by now."""
        for path in self._paths.cdi_dir.glob(f"{self._paths.driver}_metadata_{ref.uid}_*.json"):
            path.unlink(missing_ok=True)
        if Quirk.METADATA_KEEPS_FILES in self._quirks:
            return
        directory = self._directory(ref.namespace, ref.name)
        if self._owner(directory) in (ref.uid, None):
            shutil.rmtree(directory, ignore_errors=True)

    def check_owner(self, claim: PreparedClaim, prepared: dict[str, PreparedClaim]) -> None:
        """Refuse to overwrite the files of another claim of the same name that is still prepared.

        Raises:
            ClaimError: it names that claim's UID.
        """
        for other in prepared.values():
            if other.uid != claim.uid and (other.namespace, other.name) == (claim.namespace, claim.name):
                raise ClaimError(
                    f"metadata of {claim.namespace}/{claim.name} belongs to the claim with UID {other.uid}, "
                    "which is still prepared"
                )

    def claims(self) -> set[str]:
        """UIDs of the claims that have a metadata CDI spec."""
        start = f"{self._paths.driver}_metadata_"
        names = (path.name for path in self._paths.cdi_dir.glob(f"{start}*.json"))
        return {name.removeprefix(start).partition("_")[0] for name in names}

    def remove_orphans(self, prepared: dict[str, PreparedClaim]) -> None:
        """Remove what a crash left behind: specs and files of claims that aren't prepared."""
        for path in self._paths.cdi_dir.glob(f"{self._paths.driver}_metadata_*.json"):
            uid = path.name.removeprefix(f"{self._paths.driver}_metadata_").partition("_")[0]
            if uid not in prepared:
                path.unlink(missing_ok=True)
        for directory in self._root().glob("*_*"):
            if self._owner(directory) not in prepared:
                shutil.rmtree(directory, ignore_errors=True)

    def remove_folder(self) -> None:
        """Remove the folder of all claims' files.

        Raises:
            OSError: it isn't there, or not empty.
        """
        self._root().rmdir()

    def _root(self) -> Path:
        return self._paths.plugin_dir / "dra-device-metadata"

    def _directory(self, namespace: str, name: str) -> Path:
        return self._root() / f"{namespace}_{name}"

    def _file(self, namespace: str, name: str, request: str) -> Path:
        return self._directory(namespace, name) / request / "metadata.json"

    def _spec_path(self, uid: str, request: str) -> Path:
        return self._paths.cdi_dir / f"{self._paths.driver}_metadata_{uid}_{request}.json"

    def _owner(self, directory: Path) -> str | None:
        """UID of the claim whose files are in `directory`, None if there are none to be read."""
        for path in directory.glob("*/metadata.json"):
            try:
                first, _ = json.JSONDecoder().raw_decode(path.read_text(encoding="utf-8"))
                return str(first["metadata"]["uid"])
            except (OSError, ValueError, KeyError):
                continue
        return None

    def _stream(self, claim: PreparedClaim, request: str, devices: list[AllocatedDevice]) -> str:
        versions = self._versions
        if Quirk.METADATA_OLDEST_FIRST in self._quirks:
            versions = versions[::-1]
        groups = {devices[0].request: devices}
        if Quirk.METADATA_ALL_REQUESTS in self._quirks:
            groups = claim.requests()
        return "".join(
            json.dumps(self._document(claim, request, version, groups), indent=2) + "\n"
            for version in versions
        )

    def _document(
        self, claim: PreparedClaim, request: str, version: str, groups: dict[str, list[AllocatedDevice]]
    ) -> dict[str, Any]:
        uid = claim.uid[::-1] if Quirk.METADATA_WRONG_UID in self._quirks else claim.uid
        document: dict[str, Any] = {
            "apiVersion": f"{GROUP}/{version}",
            "kind": "DeviceMetadata",
            "metadata": {
                "name": claim.uid if Quirk.METADATA_WRONG_NAME in self._quirks else claim.name,
                "namespace": claim.namespace,
                "uid": uid,
                "generation": claim.generations.get(request, 1),
            },
            "requests": [
                {"name": name, "devices": [self._device(device) for device in self._listed(devices)]}
                for name, devices in groups.items()
            ],
        }
        if claim.pod_claim_name:
            document["podClaimName"] = claim.pod_claim_name
        return document

    def _listed(self, devices: list[AllocatedDevice]) -> list[AllocatedDevice]:
        return devices[:1] if Quirk.METADATA_FIRST_DEVICE_ONLY in self._quirks else devices

    def _device(self, device: AllocatedDevice) -> dict[str, Any]:
        entry: dict[str, Any] = {"driver": self._paths.driver, "pool": device.pool, "name": device.device}
        attributes = dict(device.attributes)
        if Quirk.METADATA_AS_TEXT in self._quirks:
            attributes = {name: _as_text(value) for name, value in attributes.items()}
        if Quirk.METADATA_LEAK in self._quirks:
            attributes["apiToken"] = {"string": "not-a-real-token"}
        if attributes:
            entry["attributes"] = attributes
        if device.network_data:
            entry["networkData"] = device.network_data
        return entry

    def _spec(self, claim: PreparedClaim, request: str, devices: list[AllocatedDevice]) -> dict[str, Any]:
        relative = self._file(claim.namespace, claim.name, request).relative_to(self._paths.plugin_dir)
        options = ["rw", "bind"] if Quirk.METADATA_WRITABLE in self._quirks else ["ro", "bind"]
        mount = {
            "hostPath": str(self._paths.plugin_dir_in_node / relative),
            "containerPath": str(self._container_path(claim, request, devices[0].request)),
            "options": options,
        }
        name = f"{claim.uid}_{request}"
        edits = {"name": name, "containerEdits": {"mounts": [mount]}}
        return {"cdiVersion": CDI_VERSION, "kind": f"{self._paths.driver}/metadata", "devices": [edits]}

    def _container_path(self, claim: PreparedClaim, request: str, full_request: str) -> PurePosixPath:
        quirks = self._quirks
        from_template = claim.pod_claim_name and Quirk.METADATA_DIRECT_PATH_ONLY not in quirks
        if not from_template and Quirk.METADATA_NO_DIRECT_CLAIMS in quirks:
            return CONTAINER_DIRECTORY / "unused" / claim.uid / request
        name = "" if Quirk.METADATA_NO_DRIVER_NAME in quirks else f"{self._paths.driver}-"
        directory = (
            CONTAINER_DIRECTORY / "resourceclaimtemplates" / str(claim.pod_claim_name)
            if from_template
            else CONTAINER_DIRECTORY / "resourceclaims" / claim.name
        )
        part = full_request if Quirk.METADATA_SUBREQUEST_PATH in quirks else request
        return directory / part / f"{name}metadata.json"


def _as_text(value: dict[str, Any]) -> dict[str, str]:
    """An attribute's value without its type; of a list, the first."""
    (only,) = value.values()
    return {"string": str(only[0] if isinstance(only, list) else only)}


def _changed(device: AllocatedDevice, change: dict[str, Any]) -> AllocatedDevice:
    return replace(
        device,
        attributes=change.get("attributes", device.attributes),
        network_data=change.get("networkData", device.network_data),
    )
