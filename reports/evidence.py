"""Evidence, messages and artifacts in the form that the page shows, within the page's size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import markupsafe

from harness.events import CheckFinished
from harness.results import Result
from reports.text import by_folder, printable, size, split_message

ITEM_LIMIT = 20_000
"""Bytes of one piece on the page, as HTML."""
BUDGET = 1_500_000
"""Bytes of all pieces of the checks that need attention, and again of all others."""

_INLINE = 100
"""A scalar of up to this many characters is shown in one line with its title."""
_ATTENTION = (Result.FAIL, Result.ERROR, Result.EXPECTED_FAIL)


@dataclass(frozen=True)
class Block:
    """A piece of text under a title. `note` says how much was left out, if anything."""

    title: str
    text: str
    inline: bool = False
    note: str = ""


@dataclass(frozen=True)
class Shown:
    """What the page shows of one check, besides its name, result and time."""

    message: list[Block]
    """Expected and observed, or one block without a title; empty for a check without a message."""
    evidence: list[Block]
    traceback: Block | None
    artifacts: dict[str, list[tuple[str, str]]]
    """By folder: link and file name. The link is empty for a path that would leave the run's folder."""


def show(checks: Sequence[CheckFinished]) -> list[Shown]:
    """What to show of each check, in their order.

    A piece is cut after `ITEM_LIMIT` bytes, and all pieces earlier where they would not fit into `BUDGET`
    together; what passed never takes room from what failed.
    """
    whole = [_whole(check) for check in checks]
    urgent = [check.result in _ATTENTION for check in checks]
    limits = {
        kind: _limit([shown for shown, is_urgent in zip(whole, urgent, strict=True) if is_urgent is kind])
        for kind in (True, False)
    }
    return [_clip_all(shown, limits[is_urgent]) for shown, is_urgent in zip(whole, urgent, strict=True)]


def _whole(check: CheckFinished) -> Shown:
    return Shown(
        message=_message(check.message),
        evidence=[_evidence(item.title, item.value) for item in check.evidence],
        traceback=Block("Traceback", check.details) if check.details else None,
        artifacts={
            folder: [(_href(f"{folder}/{name}" if folder else name), name) for name in names]
            for folder, names in by_folder(check.artifacts).items()
        },
    )


def _message(text: str) -> list[Block]:
    parts = split_message(text)
    pairs = (("", parts.lead), ("Expected", parts.expected), ("Observed", parts.observed))
    return [Block(title, value) for title, value in pairs if value]


def _evidence(title: str, value: Any) -> Block:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    inline = not isinstance(value, dict | list) and len(text) <= _INLINE and "\n" not in text
    return Block(title, text if text else '""', inline)


def _href(path: str) -> str:
    """A relative link; quoting takes the colon of any scheme away."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\\" in path:
        return ""
    return "./" + quote(path)


def _blocks(shown: Shown) -> list[Block]:
    return [*shown.message, *shown.evidence, *([shown.traceback] if shown.traceback else [])]


def _bytes(text: str) -> int:
    return len(markupsafe.escape(printable(text)).encode())


def _limit(shown: list[Shown]) -> int:
    sizes = [_bytes(block.text) for item in shown for block in _blocks(item)]
    limit = ITEM_LIMIT
    while limit > 1 and sum(min(item, limit) for item in sizes) > BUDGET:
        limit //= 2
    return limit


def _clip_all(shown: Shown, limit: int) -> Shown:
    return Shown(
        message=[_clip(block, limit) for block in shown.message],
        evidence=[_clip(block, limit) for block in shown.evidence],
        traceback=_clip(shown.traceback, limit) if shown.traceback else None,
        artifacts=shown.artifacts,
    )


def _clip(block: Block, limit: int) -> Block:
    full = _bytes(block.text)
    if full <= limit:
        return block
    kept = block.text
    while (taken := _bytes(kept)) > limit:
        kept = kept[: min(len(kept) - 1, len(kept) * limit // taken)]
    left_out = len(block.text.encode(errors="replace")) - len(kept.encode(errors="replace"))
    return Block(block.title, kept, block.inline, f"cut here: {size(left_out)} more in events.ndjson")
