"""Container images, packed from files without a container engine or a registry.

Format: an OCI image layout (image-spec v1.1) in a tar archive, as `ctr images import` and
`kind load image-archive` read it. The same files always pack to the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clusters.components import locations
from harness.settings import pod_image

POD_IMAGE = "dra-harness.dev/pod:v1"
"""Reports what it was given, then waits or exits as its arguments say (see `go/cmd/pod`)."""

PAUSE_IMAGE = "dra-harness.dev/pause:v1"
"""The sandbox container's image: the same program, waiting."""

_ENTRYPOINTS = {POD_IMAGE: ["/pod"], PAUSE_IMAGE: ["/pod", "pause"]}
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"

Descriptor = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Image:
    """An image of one layer."""

    name: str
    """With its tag."""
    files: Mapping[str, Path]
    """Executables, by their paths in the image without a leading slash."""
    entrypoint: Sequence[str] = ()
    root: Path | None = None
    """A folder whose content goes into the image too; all of it becomes root's, and of time 0."""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Further keys of the image's config, such as `Cmd`."""


def pod_container() -> dict[str, str]:
    """What a container of the harness's own program runs: the image that nodes have, or can pull."""
    elsewhere = pod_image()
    return {"image": elsewhere or POD_IMAGE, "imagePullPolicy": "IfNotPresent" if elsewhere else "Never"}


def write_archive(pod: Path, archive: Path, machine: str | None = None) -> None:
    """Pack `POD_IMAGE` and `PAUSE_IMAGE` into one archive.

    Args:
        pod: the static program `pod`.
        archive: written whole, replacing what was there.
        machine: what the program runs on, as `platform.machine()` says it; this machine if not given.

    Raises:
        UsageError: for a machine that is neither x86_64 nor aarch64.
    """
    images = [Image(name, {"pod": pod}, entrypoint) for name, entrypoint in _ENTRYPOINTS.items()]
    write_images(images, archive, machine)


def write_images(images: Sequence[Image], archive: Path, machine: str | None = None) -> None:
    """Pack images into one archive, each with one layer; see `write_archive`."""
    target = {"architecture": locations.architecture(machine), "os": "linux"}
    blobs: dict[str, bytes] = {}
    manifests = [_manifest(image, target, blobs) for image in images]
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    files |= {f"blobs/sha256/{digest}": blobs[digest] for digest in sorted(blobs)}
    partial = archive.with_name(archive.name + ".partial")
    partial.write_bytes(_tar({name: (content, 0o644) for name, content in files.items()}))
    partial.replace(archive)


def _manifest(image: Image, target: dict[str, str], blobs: dict[str, bytes]) -> Descriptor:
    files = {name: (path.read_bytes(), 0o755) for name, path in image.files.items()}
    layer = _tar(files, image.root)
    layer_descriptor = _blob(_LAYER, layer, blobs)
    config = target | {
        "config": {"Entrypoint": list(image.entrypoint), **image.settings},
        "rootfs": {"type": "layers", "diff_ids": [layer_descriptor["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _blob(_CONFIG, _json(config), blobs),
        "layers": [layer_descriptor],
    }
    annotations = {
        "io.containerd.image.name": image.name,
        "org.opencontainers.image.ref.name": image.name.rpartition(":")[2],
    }
    return _blob(_MANIFEST, _json(manifest), blobs) | {"platform": target, "annotations": annotations}


def _blob(media_type: str, content: bytes, blobs: dict[str, bytes]) -> Descriptor:
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _tar(files: dict[str, tuple[bytes, int]], root: Path | None = None) -> bytes:
    """An archive of name to (content, mode), and of a folder. `TarInfo` defaults to time 0 and owner 0."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (content, mode) in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            archive.addfile(info, io.BytesIO(content))
        if root is not None:
            for path in sorted(_within(root)):
                _add(archive, path.relative_to(root).as_posix(), path)
    return buffer.getvalue()


def _within(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):  # which doesn't follow links
        yield from (Path(folder, name) for name in (*folders, *files))


def _add(archive: tarfile.TarFile, name: str, path: Path) -> None:
    info = tarfile.TarInfo(name)
    if path.is_symlink():
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
        archive.addfile(info)
    elif path.is_dir():
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(info)
    else:
        found = path.stat()
        info.size, info.mode = found.st_size, 0o755 if found.st_mode & 0o100 else 0o644
        with path.open("rb") as content:
            archive.addfile(info, content)
