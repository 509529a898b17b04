"""Who takes part in a run: workers that have the same harness and the same orders, each with its clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from load.generator.clock import NO_OFFSET, Offset
from load.model import Orders
from load.source import harness_version


def credentials(orders: Orders, name: str) -> dict[str, str]:
    """What a worker shows to be taken: its name, the version of its harness and the digest of its orders."""
    return {"name": name, "version": harness_version(), "orders": orders.digest()}


@dataclass(frozen=True)
class Member:
    """A worker that takes part."""

    client: str
    """Locust's id of it."""
    name: str
    """For people; not necessarily unique."""
    clock: Offset = NO_OFFSET
    """Of its clock against the master's."""


class Roster:
    """The workers of one run, by their index.

    Args:
        orders: of the run.
        expected: how many workers there are to be.
    """

    def __init__(self, orders: Orders, expected: int) -> None:
        self._wanted = credentials(orders, "")
        self._refused: dict[str, str] = {}
        self._members: dict[str, Member] = {}
        self.expected = expected

    @property
    def complete(self) -> bool:
        """Whether all are there."""
        return len(self._members) >= self.expected

    @property
    def members(self) -> Sequence[Member]:
        """Those who are there; a worker's index is its place here."""
        return list(self._members.values())

    def index(self, client: str) -> int:
        """Which of them it is."""
        return list(self._members).index(client)

    def __contains__(self, client: str) -> bool:
        return client in self._members

    def __getitem__(self, client: str) -> Member:
        return self._members[client]

    def join(self, client: str, shown: dict[str, Any]) -> str:
        """Take a worker; returns why it is not taken, or an empty text. To join again changes nothing."""
        if client in self._members:
            return ""
        name = str(shown.get("name") or client)
        reason = self._objection(name, shown)
        if reason:
            self._refused[client] = reason
        else:
            self._members[client] = Member(client, str(shown.get("name") or f"{len(self._members)}"))
        return reason

    def leave(self, client: str) -> None:
        """It is gone, before it had anything to do."""
        self._members.pop(client, None)

    def set_clock(self, client: str, clock: Offset) -> None:
        """Its clock was read."""
        self._members[client] = replace(self._members[client], clock=clock)

    def missing(self) -> str:
        """Who came, who was refused, and how many are missing."""
        names = ", ".join(member.name for member in self._members.values()) or "nobody"
        refusals = "".join(f"; {reason}" for reason in self._refused.values())
        return f"{len(self._members)} of {self.expected} workers joined ({names}){refusals}"

    def _objection(self, name: str, shown: dict[str, Any]) -> str:
        mine, theirs = self._wanted["version"], shown.get("version")
        if theirs != mine:
            return f"worker {name} runs dra-harness {theirs}, the master {mine}: both need the same"
        if shown.get("orders") != self._wanted["orders"]:
            return f"worker {name} has other orders than the master: give it the orders.json of this trial"
        if self.complete:
            return f"worker {name} is one too many: {self.expected} were expected"
        return ""
