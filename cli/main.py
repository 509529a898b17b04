"""Entry point of `dra-harness`: the commands, and the one place where errors become exit codes."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

import click
import typer

from cli import clusters, runs
from cli.console import fail
from cli.doctor import doctor
from harness.errors import ExitCode, HarnessError

app = typer.Typer(
    name="dra-harness",
    help="Conformance and load tests for Kubernetes Dynamic Resource Allocation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(doctor)
app.command()(clusters.up)
app.command()(clusters.down)
app.command("list")(clusters.list_)
app.command()(clusters.status)
app.command()(clusters.logs)
app.command()(clusters.kubeconfig)
app.command()(runs.plan)
app.command()(runs.run)
app.command()(runs.report)


def main() -> NoReturn:
    """Run the command line and exit with one of `ExitCode`."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    sys.exit(_exit_code())


def _exit_code() -> int:
    try:
        result = app(standalone_mode=False)
    except click.exceptions.Exit as wanted:
        return wanted.exit_code
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        fail("interrupted; what was started has been taken down")
        return ExitCode.HARNESS_ERROR
    except HarnessError as error:
        fail(str(error))
        return error.exit_code
    return result if isinstance(result, int) else ExitCode.PASSED


def _as_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends a run as Ctrl-C does: with its clean-up."""
    raise KeyboardInterrupt
