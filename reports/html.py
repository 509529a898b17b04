"""`report.html`: the whole run on one page that needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from harness.events import CheckFinished
from harness.results import Result
from reports.evidence import Block, Shown, show
from reports.interface import Reporter
from reports.run import Requirement, Run
from reports.text import LOOKS, OWNERS, VERDICTS, duration, find_links, printable, short_name

FILE_NAME = "report.html"


@dataclass(frozen=True)
class CheckView:
    """One check as shown: in full under its first requirement, as a link under all others."""

    event: CheckFinished
    anchor: str
    shown: Shown

    @property
    def name(self) -> str:
        """The check without its file."""
        return short_name(self.event.check)


@dataclass(frozen=True)
class Row:
    """One requirement as shown."""

    requirement: Requirement
    checks: list[CheckView]
    elsewhere: list[CheckView]
    """Checks that are shown under another requirement."""

    @property
    def pieces(self) -> list[Block]:
        """All evidence of the checks shown here."""
        return [block for view in self.checks for block in view.shown.evidence]


class HtmlReporter(Reporter):
    """Writes one page without any reference to the network, and with a policy that forbids them."""

    def write(self, run: Run, run_dir: Path) -> list[Path]:
        """Write `report.html`."""
        path = run_dir / FILE_NAME
        path.write_text(render(run), encoding="utf-8")
        return [path]


def render(run: Run) -> str:
    """The page. Its style and script are the only ones that its policy lets a browser use."""
    jinja = environment()
    css, script = (asset(jinja, name) for name in ("report.css", "report.js"))
    views = [
        CheckView(event, f"check-{number}", shown)
        for number, (event, shown) in enumerate(zip(run.checks, show(run.checks), strict=True), start=1)
    ]
    rows, leftover = _rows(run, views)
    return jinja.get_template("report.html.j2").render(
        run=run,
        css=markupsafe.Markup(css),  # noqa: S704 - a file of this package
        script=markupsafe.Markup(script),  # noqa: S704 - a file of this package
        policy=policy(css, script),
        verdict=VERDICTS[run.exit_code],
        kubernetes=_distinct(cluster.ready.kubernetes for cluster in run.clusters),
        facts=_facts(run),
        bar=_bar(run.requirement_counts),
        attention=[view for view in views if view.event.result in (Result.FAIL, Result.ERROR)],
        deviations=[view for view in views if view.event.result == Result.EXPECTED_FAIL],
        not_run=_not_run(run),
        areas=_areas(rows),
        leftover=leftover,
    )


def environment() -> jinja2.Environment:
    """Renders the templates of this package: everything is escaped, and a missing value is an error."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    made.filters.update(duration=duration, linkify=_linkify, owners=_owners)
    made.globals["looks"] = LOOKS
    return made


def asset(jinja: jinja2.Environment, name: str) -> str:
    """The text of a file beside the templates."""
    assert jinja.loader is not None
    return jinja.loader.get_source(jinja, name)[0]


def policy(css: str, script: str) -> str:
    """A content security policy that allows this style and script, and nothing else."""

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        f"default-src 'none'; style-src 'sha256-{digest(css)}'; script-src 'sha256-{digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _linkify(text: str) -> markupsafe.Markup:
    """Escape a text and make its links clickable."""
    text = printable(text)
    result, position = markupsafe.Markup(), 0
    for start, end, address in find_links(text):
        anchor = markupsafe.Markup('<a href="{}" rel="noreferrer">{}</a>')
        result += markupsafe.escape(text[position:start]) + anchor.format(address, text[start:end])
        position = end
    return result + markupsafe.escape(text[position:])


def _owners(letters: str) -> str:
    """`kube-scheduler, kubelet` for `S,L`."""
    return ", ".join(OWNERS.get(letter, letter) for letter in letters.replace(" ", "").split(",") if letter)


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))


def _facts(run: Run) -> list[tuple[str, str]]:
    """What the reader must know to place, and to repeat, the run."""
    started, ready = run.started, [cluster.ready for cluster in run.clusters]
    commit = f" ({started.suite_commit[:12]})" if started.suite_commit else ""
    dirty = ", with local changes" if started.suite_dirty else ""
    facts = [
        ("Profile", _distinct(cluster.profile for cluster in ready)),
        ("Provider", _distinct(cluster.provider for cluster in ready)),
        ("Nodes", _distinct(str(len(cluster.nodes)) for cluster in ready)),
        ("Driver", _distinct(cluster.driver for cluster in ready) or ("one for each check" if ready else "")),
        ("Started", started.at.strftime("%Y-%m-%d %H:%M:%S UTC")),
        ("Duration", duration(run.seconds) + ("" if run.finished else ", cut off")),
        ("Suite", f"{started.suite_version}{commit}{dirty}"),
        ("Catalogue", f"sha256 {started.catalogue_digest[:16]}"),
        ("Areas", ", ".join(started.areas) or "all"),
        ("Seed", str(started.seed)),
        ("Run", started.run_id),
        ("Command", " ".join(started.command)),
    ]
    return [(name, value) for name, value in facts if value]


def _bar(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Segments of the bar over all requirements, in percent of its width."""
    total, position, segments = sum(counts.values()), 0.0, []
    for status, count in counts.items():
        width = 100 * count / total
        segments.append({"status": status, "count": count, "x": f"{position:.3f}%", "width": f"{width:.3f}%"})
        position += width
    return segments


def _rows(run: Run, views: list[CheckView]) -> tuple[list[Row], list[CheckView]]:
    """The requirements with their checks, and the checks that belong to none."""
    by_event = {id(view.event): view for view in views}
    placed: set[str] = set()
    rows = []
    for requirement in run.requirements:
        mine = [by_event[id(event)] for event in requirement.checks]
        first = [view for view in mine if view.anchor not in placed]
        placed.update(view.anchor for view in first)
        rows.append(Row(requirement, first, [view for view in mine if view not in first]))
    return rows, [view for view in views if view.anchor not in placed]


def _areas(rows: list[Row]) -> dict[str, list[Row]]:
    areas: dict[str, list[Row]] = {}
    for row in rows:
        areas.setdefault(row.requirement.plan.area, []).append(row)
    return areas


def _not_run(run: Run) -> list[tuple[str, str, list[str]]]:
    """Decisions of the plan: status, reason and the requirements that share it."""
    groups: dict[tuple[str, str], list[str]] = {}
    for status in (Result.BLOCKED, Result.SKIPPED, Result.UNSUPPORTED, Result.NOT_COVERED):
        for item in run.with_status(status):
            said = next((check.message for check in item.checks if check.result == status), "")
            reason = (item.plan.reason or said).strip() or LOOKS[status].meaning
            groups.setdefault((status, reason), []).append(item.id)
    return [(status, reason, names) for (status, reason), names in groups.items()]
