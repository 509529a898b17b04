"""What a driver has in the folders of a node, looked at and changed here or through its pod."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.errors import HarnessError

_BELOW = "import json; print(json.dumps(sorted(str(each.relative_to(path)) for each in path.rglob('*'))))"
_MAKE_FILE = "path.touch(exist_ok=False)"
_MAKE_FOLDER = "path.mkdir()"
_REMOVE = "path.rmdir() if path.is_dir() else path.unlink()"


@dataclass(frozen=True)
class NodeFiles:
    """The two places on a node where a driver's files are.

    What the system refuses ends in the error of whatever runs Python.
    """

    own: str
    """The driver's own folder, among the kubelet's plugins."""
    cdi: str
    """The folder of its CDI specs, in which others have theirs."""
    python: Callable[[Sequence[str]], str]
    """Runs Python with these arguments where the two folders are, and returns what it says."""

    def below(self, folder: str) -> list[str]:
        """Everything in a folder and its folders, relative to it; nothing if it isn't there."""
        paths: list[str] = json.loads(self._do(_BELOW, folder))
        return paths

    def make_file(self, path: str) -> None:
        """Make an empty file where nothing is yet."""
        self._do(_MAKE_FILE, path)

    def make_folder(self, path: str) -> None:
        """Make a folder where nothing is yet."""
        self._do(_MAKE_FOLDER, path)

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        self._do(_REMOVE, path)

    def _do(self, statement: str, path: str) -> str:
        program = f"import pathlib, sys; path = pathlib.Path(sys.argv[1]); {statement}"
        return self.python(["-I", "-c", program, path])


def python_here(arguments: Sequence[str]) -> str:
    """Runs Python on this machine.

    Raises:
        HarnessError: it ended with an error.
    """
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise HarnessError(done.stderr.strip())
    return done.stdout
