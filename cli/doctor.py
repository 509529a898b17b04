"""`doctor`: what this machine has and lacks, and how to get it."""

from __future__ import annotations

import typer

from cli.console import show
from cli.options import Output, OutputOption
from clusters.components import machine
from clusters.local import preflight


def doctor(output: OutputOption = Output.TABLE) -> None:
    """Say what this machine lacks for a local cluster; exits 3 if it lacks something."""
    findings = [*preflight.check_machine(), *machine.check_machine()]
    rows = [
        {"subject": each.subject, "state": "ok" if each.ok else "missing", "message": each.message}
        for each in findings
    ]
    show(rows, ["subject", "state", "message"], output)
    if not all(each.ok for each in findings):
        raise typer.Exit(3)
