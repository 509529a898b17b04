"""The image archive, read back with nothing but tar, JSON and sha256."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from clusters.components import PAUSE_IMAGE, POD_IMAGE, write_archive
from harness.errors import UsageError

PROGRAM = b"\x7fELF a static program"


@pytest.fixture
def archive(tmp_path: Path) -> dict[str, bytes]:
    """The files of an archive."""
    return unpack(packed(tmp_path).read_bytes())


def packed(tmp_path: Path, machine: str = "x86_64") -> Path:
    program = tmp_path / "pod"
    program.write_bytes(PROGRAM)
    path = tmp_path / f"image-{machine}.tar"
    write_archive(program, path, machine)
    return path


def unpack(content: bytes) -> dict[str, bytes]:
    files = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            files[member.name] = file.read()
    return files


def follow(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """The blob of a descriptor, whose size and digest are checked."""
    algorithm, digest = descriptor["digest"].split(":")
    blob = files[f"blobs/{algorithm}/{digest}"]
    assert hashlib.sha256(blob).hexdigest() == digest
    assert len(blob) == descriptor["size"]
    return blob


def manifests(files: dict[str, bytes]) -> dict[str, dict[str, Any]]:
    index = json.loads(files["index.json"])
    return {entry["annotations"]["io.containerd.image.name"]: entry for entry in index["manifests"]}


def test_both_images_have_their_names(archive: dict[str, bytes]) -> None:
    assert set(manifests(archive)) == {POD_IMAGE, PAUSE_IMAGE}
    assert {POD_IMAGE, PAUSE_IMAGE} == {"dra-harness.dev/pod:v1", "dra-harness.dev/pause:v1"}
    assert json.loads(archive["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}


@pytest.mark.parametrize(("name", "entrypoint"), [(POD_IMAGE, ["/pod"]), (PAUSE_IMAGE, ["/pod", "pause"])])
def test_an_image_is_one_layer_with_the_program(
    archive: dict[str, bytes], name: str, entrypoint: list[str]
) -> None:
    manifest = json.loads(follow(archive, manifests(archive)[name]))
    config = json.loads(follow(archive, manifest["config"]))
    (layer,) = manifest["layers"]
    content = follow(archive, layer)
    assert config["config"]["Entrypoint"] == entrypoint
    assert config["rootfs"] == {
        "type": "layers",
        "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"],
    }
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        (member,) = tar.getmembers()
        assert (member.name, member.mode, member.uid, member.mtime) == ("pod", 0o755, 0, 0)
    assert unpack(content) == {"pod": PROGRAM}


def test_nothing_is_in_the_archive_that_nothing_points_to(archive: dict[str, bytes]) -> None:
    reached = set()
    for descriptor in manifests(archive).values():
        manifest = json.loads(follow(archive, descriptor))
        reached |= {descriptor["digest"], manifest["config"]["digest"], manifest["layers"][0]["digest"]}
    blobs = {name for name in archive if name.startswith("blobs/")}
    assert blobs == {"blobs/" + digest.replace(":", "/") for digest in reached}


def test_the_same_program_packs_to_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    assert packed(first).read_bytes() == packed(second).read_bytes()
    assert sorted(path.name for path in first.iterdir()) == ["image-x86_64.tar", "pod"]


@pytest.mark.parametrize(("machine", "architecture"), [("x86_64", "amd64"), ("aarch64", "arm64")])
def test_the_architecture_is_that_of_the_machine(tmp_path: Path, machine: str, architecture: str) -> None:
    files = unpack(packed(tmp_path, machine).read_bytes())
    for descriptor in manifests(files).values():
        config = json.loads(follow(files, json.loads(follow(files, descriptor))["config"]))
        assert descriptor["platform"] == {"architecture": architecture, "os": "linux"}
        assert (config["architecture"], config["os"]) == (architecture, "linux")


def test_another_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'s390x': the pod image is made for x86_64 and aarch64 only"):
        packed(tmp_path, "s390x")
