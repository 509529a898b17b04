"""The image itself: what is in it, and that it is always the same."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clusters.driver_image import build, debian
from harness.settings import cache_root

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def image() -> build.DriverImage:
    return build.ensure()


@contextmanager
def opened(image: build.DriverImage) -> Iterator[tuple[dict[str, Any], tarfile.TarFile]]:
    """Its config, and its only layer."""
    with tarfile.open(image.archive) as archive:

        def blob(descriptor: dict[str, Any]) -> bytes:
            file = archive.extractfile("blobs/sha256/" + descriptor["digest"].removeprefix("sha256:"))
            assert file
            return file.read()

        index = archive.extractfile("index.json")
        assert index
        (entry,) = json.loads(index.read())["manifests"]
        manifest = json.loads(blob(entry))
        (layer,) = manifest["layers"]
        with tarfile.open(fileobj=io.BytesIO(blob(layer))) as files:
            yield json.loads(blob(manifest["config"])), files


def test_it_runs_the_driver(image: build.DriverImage) -> None:
    with opened(image) as (config, files):
        assert config["config"]["Entrypoint"] == ["/usr/bin/python3.11", "-I", "-m", "fake_driver"]
        assert files.getmember("usr/bin/python3.11").mode == 0o755
        assert "usr/local/lib/python3.11/dist-packages/fake_driver/__main__.py" in files.getnames()


def test_there_is_no_other_program_and_nothing_setuid(image: build.DriverImage) -> None:
    with opened(image) as (_, files):
        programs = {name for name in files.getnames() if "/bin/" in f"/{name}" or "/sbin/" in f"/{name}"}
        assert programs == {"usr/bin/python3.11"}
        for member in files:
            assert (member.uid, member.gid, member.mtime) == (0, 0, 0)
            assert member.mode in (0o644, 0o755, 0o777)
            assert member.mode != 0o777 or member.issym()


def test_made_again_of_the_same_packages_it_is_the_same(image: build.DriverImage, tmp_path: Path) -> None:
    folder = cache_root() / "driver-image"
    base = debian.ensure(folder)
    shutil.copytree(base, tmp_path / "driver-image" / base.name, symlinks=True)

    again = build.ensure(cache=tmp_path)

    assert again.archive != image.archive
    assert again.archive.read_bytes() == image.archive.read_bytes()
