"""The image's Python packages are those of uv.lock."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from clusters.driver_image import lock

ROOT = Path(__file__).parents[3]


def locked() -> dict[str, Any]:
    return tomllib.loads((ROOT / "uv.lock").read_text())


def test_requirements_are_what_uv_lock_says() -> None:
    assert lock.REQUIREMENTS.read_text() == lock.requirements(locked()), (
        "run: .venv/bin/python -m clusters.driver_image.lock"
    )


def test_they_are_everything_that_the_driver_depends_on() -> None:
    project = tomllib.loads((ROOT / "fake-driver" / "pyproject.toml").read_text())["project"]
    wanted = {re.split("[<>=]", dependency)[0] for dependency in project["dependencies"]}
    pinned = set(re.findall(r"^([a-z0-9-]+)==", lock.REQUIREMENTS.read_text(), re.MULTILINE))
    assert wanted <= pinned
    assert {"pydantic-core", "typing-extensions"} <= pinned


def test_every_package_has_wheels_for_the_images_python_and_no_other_file() -> None:
    hashes = {
        file["hash"]: file["url"].rpartition("/")[2]
        for package in locked()["package"]
        for file in [*package.get("wheels", ()), package.get("sdist")]
        if file and "url" in file
    }
    blocks = re.split(r"^(?=[a-z0-9-]+==)", lock.REQUIREMENTS.read_text(), flags=re.MULTILINE)[1:]
    for block in blocks:
        names = [hashes[each] for each in re.findall(r"--hash=(\S+)", block)]
        assert names, block
        assert all(
            re.search(r"(cp311|abi3|none)-(any|manylinux\S+(x86_64|aarch64))\S*\.whl$", n) for n in names
        )
