"""One context of a kubeconfig, by itself: all that a run takes of a file that may know many clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from harness.errors import UsageError

_FILES = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}
"""Keys that name files, relative to the kubeconfig: they have to hold in a copy elsewhere."""

Json = dict[str, Any]


def single_context(path: Path, context: str | None) -> tuple[str, str]:
    """Take one context out of a kubeconfig.

    Args:
        path: the kubeconfig.
        context: which; None takes its current one.

    Returns:
        The context's name, and a kubeconfig of this context, its cluster and its user alone, in which it is
        the current one and every file is named by its absolute path.

    Raises:
        UsageError: the file can't be read, is no kubeconfig, or has no such context; the message names the
            file, the key and what was expected.
    """
    document = _read(path)
    name = context or _text(document, "current-context")
    if not name:
        raise UsageError(f"{path}: current-context: not set; give --context, of: {_names(document)}")
    chosen = _entry(document, "contexts", name)
    if chosen is None:
        raise UsageError(f"{path}: contexts: none is named {name!r}; there are: {_names(document)}")
    parts: Json = {}
    for kind in ("cluster", "user"):
        wanted = _text(chosen.get("context"), kind)
        found = _entry(document, f"{kind}s", wanted) if wanted else None
        if found is None or not isinstance(found.get(kind), dict):
            raise UsageError(
                f"{path}: {kind}s: expected the {kind} {wanted!r} of context {name!r}, with its settings"
            )
        parts[f"{kind}s"] = [{**found, kind: _with_absolute_files(found[kind], kind, path)}]
    if not _text(parts["clusters"][0]["cluster"], "server"):
        raise UsageError(f"{path}: clusters: expected the cluster of context {name!r} to have a server")
    alone = {"apiVersion": "v1", "kind": "Config", "current-context": name, "contexts": [chosen], **parts}
    return name, yaml.safe_dump(alone, sort_keys=False)


def _read(path: Path) -> Json:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError):
        raise UsageError(f"{path}: expected a kubeconfig; this is no YAML") from None
    if not isinstance(document, dict) or not isinstance(document.get("contexts"), list):
        raise UsageError(f"{path}: contexts: expected a kubeconfig with a list of contexts")
    return document


def _entry(document: Json, key: str, name: str) -> Json | None:
    entries = document.get(key)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            return entry
    return None


def _text(value: object, key: str) -> str:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def _names(document: Json) -> str:
    return ", ".join(_text(entry, "name") for entry in document["contexts"]) or "none"


def _with_absolute_files(settings: Json, kind: str, path: Path) -> Json:
    folder = path.absolute().parent
    made = dict(settings)
    for key in _FILES[kind]:
        if _text(made, key):
            made[key] = str(folder / made[key])
    program = _text(made.get("exec"), "command")
    if "/" in program:  # one without is looked for on PATH
        made["exec"] = {**made["exec"], "command": str(folder / program)}
    return made
