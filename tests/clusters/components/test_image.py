"""The image archive, read back with nothing but tar, JSON and sha256."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from clusters.components import PAUSE_IMAGE, POD_IMAGE, write_archive
from clusters.components.image import Image, write_images
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
    with pytest.raises(UsageError, match="'s390x': programs are made for x86_64 and aarch64 only"):
        packed(tmp_path, "s390x")


def test_a_folder_becomes_root_s_and_of_no_time(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "usr" / "bin" / "tool").write_text("tool")
    (root / "usr" / "bin" / "tool").chmod(0o700)
    (root / "note").write_text("note")
    (root / "note").chmod(0o600)
    (root / "bin").symlink_to("usr/bin")
    os.utime(root / "note", (1e9, 1e9))
    image = Image("example.dev/x:v1", {}, ["/usr/bin/tool"], root, {"Cmd": ["serve"]})
    write_images([image], tmp_path / "image.tar", "x86_64")

    files = unpack((tmp_path / "image.tar").read_bytes())
    manifest = json.loads(follow(files, manifests(files)["example.dev/x:v1"]))
    config = json.loads(follow(files, manifest["config"]))["config"]
    assert config == {"Entrypoint": ["/usr/bin/tool"], "Cmd": ["serve"]}
    with tarfile.open(fileobj=io.BytesIO(follow(files, manifest["layers"][0]))) as layer:
        assert [(m.name, m.type, m.mode, m.uid, m.mtime, m.linkname) for m in layer] == [
            ("bin", tarfile.SYMTYPE, 0o777, 0, 0, "usr/bin"),
            ("note", tarfile.REGTYPE, 0o644, 0, 0, ""),
            ("usr", tarfile.DIRTYPE, 0o755, 0, 0, ""),
            ("usr/bin", tarfile.DIRTYPE, 0o755, 0, 0, ""),
            ("usr/bin/tool", tarfile.REGTYPE, 0o755, 0, 0, ""),
        ]
