"""Entry point of `dra-harness`: the commands, and the one place where errors become exit codes."""

from __future__ import annotations

import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

import typer

from cli import clusters, driver_image, existing, load, load_worker, node_image, runs
from cli.console import fail
from cli.doctor import doctor
from cli.preflight import preflight
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
app.command()(preflight)
app.command()(existing.rbac)
app.command()(existing.clean)
app.command()(load.load)
app.command()(load_worker.load_worker)
app.command()(load.compare)
app.command()(node_image.node_image)
app.command()(driver_image.driver_image)
app.command()(driver_image.driver_manifest)
app.command()(driver_image.pod_image)
app.add_typer(node_image.app, name="docker")


def main() -> NoReturn:
    """Run the command line and exit with one of `ExitCode` (130 for Ctrl-C)."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        app()
    except HarnessError as error:
        fail(str(error))
        sys.exit(error.exit_code)
    except Exception:
        fail(traceback.format_exc())
        fail("this is a defect of dra-harness itself; nothing is said about the cluster")
        sys.exit(ExitCode.HARNESS_ERROR)
    sys.exit(ExitCode.PASSED)


def _as_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends a command as Ctrl-C does: with its clean-up."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
