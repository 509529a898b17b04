"""Decides which writes bring a pool's slices to what they should be, and at which generation.

A consumer uses a pool only while all slices of its highest generation are there, so the device set of one
generation must never change; taints may (the upstream helper edits them in place as well).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fake_driver.publishing.split import Content, content_of, same_content

Stored = dict[str, Any]


@dataclass(frozen=True)
class Published:
    """What this process last published completely."""

    contents: Sequence[Content]
    generation: int


@dataclass(frozen=True)
class Plan:
    """The writes, to be done in this order: updates, creates, deletes."""

    generation: int
    updates: tuple[tuple[int, Stored], ...]
    creates: tuple[int, ...]
    deletes: tuple[Stored, ...]

    @property
    def writes(self) -> int:
        """How many objects get a new content; deletes not counted."""
        return len(self.updates) + len(self.creates)


def slice_prefix(index: int) -> str:
    """The start of the name of slice `index`; names sort like indices, as the scheduler reads them."""
    return f"{index:03x}-"


def make_plan(
    wanted: Sequence[Content],
    stored: Sequence[Stored],
    published: Published | None,
    owner: Stored | None,
    unchanged: Callable[[int, Content], bool] = lambda index, content: False,
) -> Plan:
    """Compare and plan.

    Args:
        wanted: the pool's slice contents.
        stored: the pool's slices in the API server.
        published: what this process published before, if anything.
        owner: the owner reference that each slice needs.
        unchanged: says that the stored content at an index is what the server made of the wanted one.
    """
    matched, rest = _match(stored, len(wanted))
    highest = max((slice_["spec"]["pool"]["generation"] for slice_ in stored), default=0)
    generation = _generation(wanted, matched, highest, published, unchanged)
    pool = (generation, len(wanted))
    updates = []
    for index, slice_ in sorted(matched.items()):
        content = content_of(slice_["spec"])
        same = same_content(wanted[index], content) or unchanged(index, content)
        owned = owner is None or slice_["metadata"].get("ownerReferences") == [owner]
        if not (same and owned and _pool(slice_) == pool):
            updates.append((index, slice_))
    creates = tuple(index for index in range(len(wanted)) if index not in matched)
    return Plan(generation, tuple(updates), creates, tuple(rest))


def _match(stored: Sequence[Stored], count: int) -> tuple[dict[int, Stored], list[Stored]]:
    """Stored slices by index, and those that match none; a newer generation is preferred."""
    matched: dict[int, Stored] = {}
    rest: list[Stored] = []
    prefixes = {slice_prefix(index): index for index in range(count)}
    ordered = sorted(stored, key=lambda slice_: (-slice_["spec"]["pool"]["generation"], _name(slice_)))
    for slice_ in ordered:
        index = prefixes.get(_name(slice_).partition("-")[0] + "-")
        if index is None or index in matched:
            rest.append(slice_)
        else:
            matched[index] = slice_
    return matched, rest


def _generation(
    wanted: Sequence[Content],
    matched: dict[int, Stored],
    highest: int,
    published: Published | None,
    unchanged: Callable[[int, Content], bool],
) -> int:
    if published is not None:
        same = _same_devices(wanted, published.contents)
        if same and highest <= published.generation:
            return published.generation
        return max(highest, published.generation) + 1
    if not wanted:
        return highest
    complete = len(matched) == len(wanted) and all(
        _pool(slice_) == (highest, len(wanted))
        and (
            same_content(wanted[index], content_of(slice_["spec"]), ignore_taints=True)
            or unchanged(index, content_of(slice_["spec"]))
        )
        for index, slice_ in matched.items()
    )
    return highest if complete else highest + 1


def _same_devices(one: Sequence[Content], other: Sequence[Content]) -> bool:
    return len(one) == len(other) and all(
        same_content(left, right, ignore_taints=True) for left, right in zip(one, other, strict=True)
    )


def _pool(slice_: Stored) -> tuple[int, int]:
    pool = slice_["spec"]["pool"]
    return pool["generation"], pool["resourceSliceCount"]


def _name(slice_: Stored) -> str:
    return str(slice_["metadata"]["name"])
