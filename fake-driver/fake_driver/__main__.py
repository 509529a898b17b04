"""The command line: `fake-driver serve` and `fake-driver device-plugin`."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fake_driver.errors import ConfigError, StartError

if TYPE_CHECKING:
    from fake_driver.control.server import ControlServer


_ENDING = (signal.SIGTERM, signal.SIGINT)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code (0, 1 for a failed start, 2 for bad input).

    Signals that end it wait until the start is done. The first process of a container would ignore one that
    it has no handler for yet, and one that the kernel gives to another thread would not wake this one
    (https://docs.python.org/3/library/signal.html#signals-and-threads): threads inherit that they wait.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    parser = argparse.ArgumentParser(prog="fake-driver", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_ in (
        ("serve", "serve a DRA driver for one or more nodes"),
        ("device-plugin", "serve a device plugin for one or more nodes"),
    ):
        command = commands.add_parser(name, help=help_, description=help_)
        command.add_argument("--config", required=True, type=Path, help="configuration file (YAML or JSON)")
    options = parser.parse_args(arguments)
    run = _serve if options.command == "serve" else _device_plugin
    try:
        run(options.config)
    except (ConfigError, StartError) as error:
        print(f"fake-driver: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


def _serve(path: Path) -> None:
    from fake_driver.config import load_config
    from fake_driver.control.operations import operations
    from fake_driver.control.server import ControlServer
    from fake_driver.driver import ControlError, Driver

    config = load_config(path)
    _log_to(config.log_file)
    driver = Driver(config, path)
    control = ControlServer(config.control, operations(driver), (ControlError, StartError))
    try:
        control.start()
        driver.start()
        _say_ready(control, driver=config.driver, nodes=[node.name for node in config.nodes])
        _wait(driver.stopping)
    finally:
        driver.stop()
        control.stop()


def _device_plugin(path: Path) -> None:
    from fake_driver.control.server import ControlServer
    from fake_driver.deviceplugin.config import load_plugin_config
    from fake_driver.deviceplugin.plugin import DevicePlugins, operations

    config = load_plugin_config(path)
    _log_to(config.log_file)
    plugins = DevicePlugins(config)
    control = ControlServer(config.control, operations(plugins), (plugins.Refused,))
    try:
        control.start()
        plugins.start()
        _say_ready(control, resource=config.resource, nodes=[node.name for node in config.nodes])
        _wait(plugins.stopping)
    finally:
        plugins.stop()
        control.stop()


def _say_ready(control: ControlServer, **facts: Any) -> None:
    control.ready.set()
    if control.address:
        facts["control"] = "{}:{}".format(*control.address)
    print(json.dumps({"ready": True, **facts}), flush=True)  # noqa: T201


def _wait(stopping: threading.Event) -> None:
    """Wait for the end, by request or by a signal, which only this thread gets."""
    for number in _ENDING:
        signal.signal(number, lambda *_: stopping.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    stopping.wait()


def _log_to(path: Path | None) -> None:
    logging.basicConfig(
        filename=path, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


if __name__ == "__main__":
    sys.exit(main())
