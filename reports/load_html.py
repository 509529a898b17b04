"""`report.html` of a load run, and `comparison.html`: pages that need nothing but themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import markupsafe

from reports import load_document as document
from reports.html import asset, environment, policy
from reports.load_document import Json

FILE_NAME = "report.html"
COMPARISON = "comparison.html"

_QUANTILES = (("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p999", "p99.9"), ("max", "max"))
_EXIT = {"PASS": 0, "FAIL": 1, "INVALID": 3}
_OUTCOMES = {"no regression": 0, "regression": 1, "too few runs": 3}
_LEAST = 1e-4
"""Seconds at the left edge of the latencies' chart."""


def write(run: Json, run_dir: Path) -> Path:
    """Write `report.html`, with the comparison that lies in the folder, if one does."""
    compared = run_dir / document.COMPARISON
    comparison = document.read(run_dir, document.COMPARISON) if compared.exists() else None
    path = run_dir / FILE_NAME
    path.write_text(render(run, comparison), encoding="utf-8")
    return path


def write_comparison(comparison: Json, folder: Path) -> Path:
    """Write `comparison.html`."""
    path = folder / COMPARISON
    outcome = comparison["outcome"]
    path.write_text(
        _page("comparison.html.j2", comparison=comparison, exit_code=_OUTCOMES.get(outcome, 3)),
        encoding="utf-8",
    )
    return path


def render(run: Json, comparison: Json | None = None) -> str:
    """The page of one run."""
    return _page(
        "load.html.j2",
        run=run,
        comparison=comparison,
        exit_code=_EXIT.get(run["verdict"], 3),
        facts=_facts(run),
        quantiles=_QUANTILES,
        scale=_scale(run),
    )


def _page(template: str, **values: Any) -> str:
    jinja = environment()
    css = asset(jinja, "report.css") + asset(jinja, "load.css")
    jinja.filters.update(
        time=document.time,
        figure=document.figure,
        share=document.share,
        change=document.change,
        causes=document.causes,
        ended=document.verdicts,
        grounds=document.grounds,
        words=_words,
        cells=_cells,
        steps=_steps,
    )
    jinja.globals["causes_mean"] = document.CAUSES
    jinja.globals["verdicts"] = document.VERDICTS
    return jinja.get_template(template).render(
        css=markupsafe.Markup(css),  # noqa: S704 - files of this package
        policy=policy(css, ""),
        **values,
    )


def _facts(run: Json) -> list[tuple[str, str]]:
    """What the reader must know to place, and to repeat, the run."""
    main = run["trials"][0]
    facts = [
        ("Profile", f"{run['profile']}, size {run['size']}, limits {run['limits']}"),
        ("Pods", f"{main['intended']} in {main['seconds']:.0f} s"),
        ("Trials", str(len(run["trials"]))),
        ("Started", str(run["started_at"])[:19].replace("T", " ") + " UTC"),
        ("Duration", document.time(run["seconds"])),
        ("Seed", str(run["seed"])),
        ("Run", run["run_id"]),
        ("Command", " ".join(run["command"])),
    ]
    return [(name, value) for name, value in facts if value]


def _scale(run: Json) -> list[tuple[float, str]]:
    """Ticks of the latencies' chart: where, in percent, and what. Logarithmic, the same for all trials."""
    longest = max(
        (row["max"]["value"] for trial in run["trials"] for row in trial["stages"] if row["max"]), default=1.0
    )
    decades = range(round(math.log10(_LEAST)), math.ceil(math.log10(max(longest, 0.01))) + 1)
    return [
        (100 * number / (len(decades) - 1), document.time(10.0**power))
        for number, power in enumerate(decades)
    ]


def _steps(row: Json, scale: list[tuple[float, str]]) -> list[tuple[float, str, str]]:
    """Where the quantiles of a stage lie in the chart: percent, name and value."""
    decades = len(scale) - 1
    points = []
    for key, name in _QUANTILES:
        if row[key]:
            place = math.log10(max(row[key]["value"], _LEAST) / _LEAST) / decades
            points.append((min(100.0, 100 * place), name, document.figure(row[key])))
    return points


def _words(key: str) -> str:
    """`apf_levels` as a heading."""
    text = key.replace("_", " ").replace("apf", "APF").replace("api", "API")
    return text[:1].upper() + text[1:]


def _cells(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The columns that any of the rows has."""
    return list(dict.fromkeys(key for row in rows for key in row))
