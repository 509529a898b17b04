"""Words, symbols and pieces of text that several reports share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness.errors import ExitCode
from harness.results import Result
from reports.run import UNFINISHED

VERDICTS = {
    ExitCode.PASSED: "passed",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "usage error",
    ExitCode.BLOCKED: "incomplete",
    ExitCode.HARNESS_ERROR: "harness error",
}
"""Exit codes in a word."""

OWNERS = {
    "A": "kube-apiserver",
    "S": "kube-scheduler",
    "C": "kube-controller-manager",
    "L": "kubelet",
    "D": "driver",
    "R": "container runtime",
    "O": "operator",
}
"""The letters of an owner field."""


@dataclass(frozen=True)
class Look:
    """How a status is shown; never by colour alone."""

    symbol: str
    ascii: str
    style: str
    """A Rich style."""
    meaning: str


LOOKS: dict[str, Look] = {
    Result.FAIL: Look("✘", "x", "bold red", "a promise was not kept"),
    Result.ERROR: Look("!", "!", "bold magenta", "the harness's own fault; says nothing about the cluster"),
    UNFINISHED: Look("…", "?", "bold magenta", "was to be run and has no result"),
    Result.EXPECTED_FAIL: Look("≈", "~", "yellow", "a known deviation: fails as its issue says"),
    Result.BLOCKED: Look("■", "#", "bold yellow", "the cluster lacks something the check needs"),
    Result.SKIPPED: Look("»", ">", "cyan", "left out because the user asked for that"),
    Result.UNSUPPORTED: Look("○", "o", "dim", "not claimed by this version or driver"),
    Result.NOT_COVERED: Look("·", ".", "dim", "no check exists"),
    Result.PASS: Look("✔", "+", "green", "kept its promise"),
}
"""The look of each status, in the order of `run.STATUSES`."""

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_LINK = re.compile(r"https?://[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]|\bk/k#\d+")
_PROMISE = re.compile(r"(?:^|(?<=[\s:]))expected: (?P<expected>.*?)\nobserved: (?P<observed>.*)\Z", re.DOTALL)


@dataclass(frozen=True)
class Message:
    """A check's message in its parts. `expected` and `observed` are both set or both empty."""

    lead: str
    expected: str = ""
    observed: str = ""


def printable(text: str) -> str:
    """Replace what neither a terminal nor XML 1.0 may get: control characters and lone surrogates."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def split_message(message: str) -> Message:
    """Take apart the text of a `RequirementFailed`; any other message is all lead."""
    found = _PROMISE.search(message)
    if found is None:
        return Message(message.strip())
    lead = message[: found.start()].strip().rstrip(":").rpartition("\n")[2]
    return Message(
        "" if lead.endswith("RequirementFailed") else lead,
        found["expected"].strip(),
        found["observed"].strip(),
    )


def find_links(text: str) -> list[tuple[int, int, str]]:
    """Where in a text the links are, with their addresses; `k/k#1` is an issue of kubernetes/kubernetes."""
    return [(match.start(), match.end(), _address(match.group())) for match in _LINK.finditer(text)]


def _address(found: str) -> str:
    if found.startswith("k/k#"):
        return "https://github.com/kubernetes/kubernetes/issues/" + found.removeprefix("k/k#")
    return found


def links(text: str) -> list[str]:
    """The addresses in a text, each once."""
    return list(dict.fromkeys(address for _, _, address in find_links(text)))


def short_name(check: str) -> str:
    """`test_it[explicit]` for a node id."""
    path, bracket, form = check.partition("[")
    return path.rpartition("::")[2] + bracket + form


def by_folder(paths: Iterable[str]) -> dict[str, list[str]]:
    """File names by the folder that they are in, both in the order given; `""` for no folder."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    return folders


def duration(seconds: float) -> str:
    """A time for people: `0.35 s`, `12.3 s`, `4 min 05 s`, `1 h 02 min`."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(count: int) -> str:
    """A number of bytes for people, in kB of 1000."""
    return f"{count} B" if count < 1000 else f"{count / 1000:.1f} kB"
