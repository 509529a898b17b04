"""Builds a node image for kind from Debian packages and the pinned programs, without a registry.

A container of Debian's system gets the files of `recipe`, unpacks the images that nodes start with, and is
committed. Everything but debootstrap is done by Docker, so no root is needed where the base image is there.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from clusters.components import CONTROL_PLANE, NODE, NODE_IMAGE, ComponentSource, Progress, silent
from clusters.components.image import write_images
from clusters.components.locations import GIB, one_at_a_time, require_space
from clusters.kind import docker, recipe
from harness.errors import EnvironmentBlocked, UsageError
from harness.settings import cache_root

REPOSITORY = "dra-harness.dev/node"
_BASE = "dra-harness.dev/node-base"
_NEEDED = 4 * GIB
ISOLATED = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"),
)
"""Before a command: what it mounts is seen by it alone, and with its parent all that it started ends.

debootstrap mounts /proc and /sys in its target. Left there, they would be removed with the folder."""
_DROPPED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists")


def ensure(source: ComponentSource, kubernetes: str, progress: Progress = silent) -> str:
    """Build the node image for a Kubernetes version, unless Docker has it; returns its tag.

    Raises:
        UsageError: the version can't be built, or a program is missing, naming it.
        EnvironmentBlocked: Docker or debootstrap failed.
    """
    require_buildable()
    wanted = (*CONTROL_PLANE, *NODE, *NODE_IMAGE)
    programs = source.ensure(wanted, kubernetes, progress)
    tag = f"{REPOSITORY}:{kubernetes}-{recipe.digest(kubernetes, programs)}"
    if docker.has_image(tag):
        return tag
    folder = _folder()
    with one_at_a_time(folder, "build", progress):
        if not docker.has_image(tag):  # another run may just have built it
            remove_leftovers()
            require_space(folder, _NEEDED, "building a node image")
            with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as work:
                _build(programs, kubernetes, tag, Path(work), progress)
    return tag


def _build(programs: Mapping[str, Path], kubernetes: str, tag: str, work: Path, progress: Progress) -> None:
    progress("image", 0, 3, "Debian's system")
    base = _base(work)
    progress("image", 1, 3, "the images that nodes start with")
    _write_images(programs, kubernetes, base, work)
    progress("image", 2, 3, "the node image")
    _commit(base, _layer(programs, kubernetes, work), tag)
    progress("image", 3, 3, tag)


def is_ours(image: str) -> bool:
    """Whether a node image is one of these, whatever it is called; one that Docker lacks is pulled.

    Raises:
        EnvironmentBlocked: Docker can't get it.
    """
    if image.startswith(f"{REPOSITORY}:"):  # built before images had the label
        return True
    label = f'{{{{index .Config.Labels "{recipe.LABEL}"}}}}'
    inspect = ["image", "inspect", "--format", label, image]
    try:
        value = docker.run(inspect)
    except EnvironmentBlocked:
        docker.run(["pull", image])
        value = docker.run(inspect)
    return value.strip() == "true"


def require_buildable() -> None:
    """Refuse where no image was built yet and Debian's packages can't be had: before programs are built.

    Raises:
        UsageError: naming what is missing.
        EnvironmentBlocked: Docker doesn't answer.
    """
    lacking = ""
    if shutil.which("debootstrap") is None:
        lacking = "debootstrap is not on PATH: apt-get install debootstrap"
    elif os.geteuid() != 0:
        lacking = "debootstrap needs root; use sudo"
    if lacking and not docker.has_image(_base_tag()) and not docker.has_image(REPOSITORY):
        raise UsageError(f"node-image: {lacking}")


def remove_leftovers() -> None:
    """Remove the containers and folders of builds that were killed; nothing else may be building.

    Raises:
        EnvironmentBlocked: Docker failed.
    """
    if left := docker.run(["ps", "--all", "--quiet", "--filter", f"name={_container()}"]).split():
        docker.run(["rm", "--force", "--volumes", *left])
    for path in _folder().iterdir():
        if path.is_dir():  # what earlier harnesses' builds have mounted there is left alone
            subprocess.run(["rm", "-rf", "--one-file-system", path], capture_output=True, check=False)


def _folder() -> Path:
    return cache_root() / "node-image"


def _container() -> str:
    """What a build calls its container. Another cache has other ones: a daemon may serve several users.

    Not a label, which the image would have too, and with it every node."""
    return f"dra-harness-build-{hashlib.sha256(os.fsencode(_folder())).hexdigest()[:12]}"


def _base_tag() -> str:
    packages = hashlib.sha256(" ".join((recipe.SUITE, *recipe.PACKAGES)).encode()).hexdigest()[:12]
    return f"{_BASE}:{recipe.SUITE}-{packages}"


def _base(work: Path) -> str:
    """The image of Debian's packages alone; returns its tag."""
    tag = _base_tag()
    if docker.has_image(tag):
        return tag
    root = work / "root"
    options = ["--variant=minbase", f"--include={','.join(recipe.PACKAGES)}"]
    _run([*ISOLATED, "debootstrap", *options, recipe.SUITE, str(root)])
    for folder in _DROPPED:
        shutil.rmtree(root / folder, ignore_errors=True)
    archive = work / "root.tar"
    _run(["tar", "--numeric-owner", "-C", str(root), "-cf", str(archive), "."])
    docker.run(["import", archive, tag])
    archive.unlink()
    return tag


def _write_images(programs: Mapping[str, Path], kubernetes: str, base: str, work: Path) -> None:
    names = _run(
        [str(programs["kubeadm"]), "config", "images", "list", "--kubernetes-version", kubernetes]
    ).split()
    folder = work / "images"
    folder.mkdir()
    for index, image in enumerate(recipe.images(names, programs, _nft(base, work))):
        write_images([image], folder / f"{index}.tar")


def _nft(base: str, work: Path) -> dict[str, Path]:
    """Debian's nft and its libraries, by their paths in an image."""
    listed = docker.run(["run", "--rm", "--entrypoint", "ldd", base, "/usr/sbin/nft"])
    libraries = [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]
    paths = ["usr/sbin/nft", *(library.lstrip("/") for library in libraries)]
    container = docker.run(["create", "--name", _container(), "--entrypoint", "true", base]).strip()
    try:
        found = {}
        for path in paths:
            target = work / "nft" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            docker.run(["cp", "--follow-link", f"{container}:/{path}", target])
            found[path] = target
        return found
    finally:
        docker.run(["rm", container])


def _layer(programs: Mapping[str, Path], kubernetes: str, work: Path) -> Path:
    """All files of the image besides Debian's, as one archive."""
    archive = work / "layer.tar"
    with tarfile.open(archive, "w") as layer:
        for name, placed in recipe.placed(programs).items():
            _add(layer, name, placed.source.read_bytes(), placed.mode)
        _add(layer, recipe.VERSION_FILE, kubernetes.encode(), 0o644)
        for image in sorted((work / "images").iterdir()):
            layer.add(image, f"build/images/{image.name}")
    return archive


def _add(layer: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    layer.addfile(info, io.BytesIO(content))


def _commit(base: str, layer: Path, tag: str) -> None:
    options = ["--privileged", "--volume", "/scratch", "--name", _container()]
    container = docker.run(["create", *options, "--entrypoint", "/build/preload", base]).strip()
    try:
        docker.run(["cp", "-", f"{container}:/"], stdin=layer.read_bytes())
        docker.run(["start", "--attach", container])
        changes = ['ENTRYPOINT ["/usr/local/bin/entrypoint"]', "ENV container=docker"]
        changes.append(f"LABEL {recipe.LABEL}=true")
        changed = [option for change in changes for option in ("--change", change)]
        docker.run(["commit", *changed, container, tag])
    finally:
        docker.run(["rm", "--force", "--volumes", container])


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise EnvironmentBlocked(str(error)) from error
    if done.returncode:
        raise EnvironmentBlocked(f"{command[0]}: {(done.stdout + done.stderr).strip()[-2000:]}")
    return done.stdout
