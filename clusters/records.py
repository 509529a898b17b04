"""What is written down of a cluster of this machine: before anything is started, and removed last.

Everything a cluster owns on the machine carries its `id`, so that `down` finds it all from its record alone,
whatever moment the harness died at.
"""

from __future__ import annotations

import abc
import contextlib
import json
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

import filelock
import pydantic

from clusters.interface import Cluster, Profile
from harness.errors import UsageError
from harness.files import write_atomically
from harness.settings import state_root

STATE_FILE = "cluster.json"


class Record(pydantic.BaseModel, abc.ABC):
    """What is written down of a cluster, whatever provider makes it."""

    # A key of a later harness must not keep this one from listing and removing the cluster.
    model_config = pydantic.ConfigDict(frozen=True, extra="ignore")

    PROVIDER: ClassVar[str]
    FOLDER: ClassVar[str]
    """Name of the folder that has all of the provider's clusters."""

    id: str
    """Six hex digits: the mark on what the cluster has on this machine."""
    name: str
    kubernetes: str
    profile: Profile
    simulated_nodes: int = 0
    gates: dict[str, bool] = {}
    """Gates on top of the profile's."""
    ready: bool = False
    kept: bool = False
    """Whether it outlives the process that made it; otherwise it is swept once that is gone."""
    seconds: float = 0.0
    phases: dict[str, float] = {}

    @abc.abstractmethod
    def cluster(self) -> Cluster:
        """The handle that checks use."""

    @classmethod
    def folder(cls) -> Path:
        """Where all of the provider's clusters of this user are."""
        return state_root() / cls.FOLDER

    @property
    def directory(self) -> Path:
        """The cluster's files."""
        return self.folder() / self.name

    @property
    def path(self) -> Path:
        """The record itself."""
        return self.directory / STATE_FILE

    @classmethod
    def find(cls, name: str) -> Self | None:
        """Read a cluster's record; None if there is no such cluster.

        Raises:
            UsageError: the file can't be read, naming it and the key.
        """
        path = cls.folder() / name / STATE_FILE
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"]) or "the file"
            raise UsageError(f"{path}: {key}: {first['msg']}") from error

    @classmethod
    def load(cls, name: str) -> Self:
        """Read a cluster's record.

        Raises:
            UsageError: there is no such cluster.
        """
        found = cls.find(name)
        if found is None:
            known = ", ".join(each.name for each in cls.every()) or "none"
            raise UsageError(f"no {cls.PROVIDER} cluster is named {name!r}; there are: {known}")
        return found

    @classmethod
    def every(cls) -> list[Self]:
        """Every cluster that has a record, by name; one that goes meanwhile is left out.

        So is one whose record can't be read: it must not keep the others from being listed and removed, and
        naming it (`load`) says what is wrong with it.
        """
        found = []
        for path in sorted(cls.folder().glob(f"*/{STATE_FILE}")):
            with contextlib.suppress(UsageError):
                found.append(cls.find(path.parent.name))
        return [record for record in found if record is not None]

    @classmethod
    def attach(cls, name: str) -> Cluster:
        """The handle of a cluster that is up.

        Raises:
            UsageError: there is none of this name, or it did not come up.
        """
        found = cls.load(name)
        if not found.ready:
            raise UsageError(f"cluster {name!r} did not come up; `dra-harness down {name}` cleans it")
        return found.cluster()

    @classmethod
    def require_free(cls, name: str) -> None:
        """Refuse the name of a cluster that there is.

        Raises:
            UsageError: there is one.
        """
        if cls.find(name) is not None:
            raise UsageError(
                f"a {cls.PROVIDER} cluster named {name!r} exists; choose another name, or first "
                f"`dra-harness down {name}`"
            )

    def save(self) -> None:
        """Write the record, whole or not at all."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self.path, self.model_dump_json(indent=1))

    def remove(self) -> None:
        """Remove the cluster's files, its record last, and empty folders above.

        A cluster of the same name that another process made meanwhile is left alone.
        """
        found = self.find(self.name)
        if found is None or found.id != self.id:
            return
        for path in self.directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != STATE_FILE:
                path.unlink()
        shutil.rmtree(self.directory)
        remove_if_empty(self.folder())
        remove_if_empty(state_root())

    def maker_lock(self) -> filelock.FileLock:
        """The lock of the process that makes (and, unless kept, uses) the cluster; it dies with that."""
        return filelock.FileLock(self.directory / "maker.lock")

    @contextlib.contextmanager
    def unused(self) -> Iterator[bool]:
        """Say whether the cluster's maker is gone; while it is, the caller has the maker's lock."""
        lock = self.maker_lock()
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    @contextlib.contextmanager
    def orphaned(self) -> Iterator[bool]:
        """Say whether the cluster was made for one run, whose process is gone; like `unused` for the lock."""
        with self.unused() as unused:
            now = self.find(self.name) if unused else None
            yield now is not None and now.id == self.id and not now.kept

    @contextlib.contextmanager
    def taken(self, *, force: bool) -> Iterator[None]:
        """Entered to take the cluster down; `force` enters also while its maker is there.

        Raises:
            UsageError: its maker is there.
        """
        with self.unused() as unused:
            if not unused and not force:
                raise UsageError(
                    f"cluster {self.name!r} is in use by the process that makes it; end that, or use --force"
                )
            yield


def is_of(path: Path, cluster_id: str) -> bool:
    """Whether there is a file that may be the record of a cluster: one that can't be read may be."""
    try:
        return bool(json.loads(path.read_bytes())["id"] == cluster_id)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, LookupError, TypeError):
        return True


def new_id() -> str:
    """A fresh mark; random, so that two users' clusters differ."""
    return secrets.token_hex(3)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder in which nothing is."""
    with contextlib.suppress(OSError):
        folder.rmdir()
