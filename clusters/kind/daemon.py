"""A Docker daemon of our own, for machines where none runs and nothing like systemd could start one."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from clusters import processes
from clusters.kind import docker, network
from clusters.local.node import has_cap_sys_resource
from harness.errors import EnvironmentBlocked, UsageError
from harness.waiting import NotYet, WaitTimeout, wait_until

WRAPPER = Path(__file__).parent / "files" / "runc-without-sys-resource"
PACKAGES = {
    "docker": "docker.io",
    "dockerd": "docker.io",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
}
"""Program on PATH -> the Debian package that has it."""

RUNTIME = "without-sys-resource"
"""Of containers, where root lacks CAP_SYS_RESOURCE."""
_ANSWER_SECONDS = 10.0
_started: list[subprocess.Popen[bytes]] = []
"""Daemons that outlive what started them: forgotten while they run, they would be warned of."""
_START_SECONDS = 30.0
_STOP_SECONDS = 30.0


def arguments(directory: Path, addresses: network.Addresses, *, restricted: bool) -> list[str]:
    """The daemon's command line.

    Args:
        directory: its sockets and data; nothing outside is used.
        addresses: what its networks get.
        restricted: root here lacks CAP_SYS_RESOURCE, so containers get a runtime that doesn't ask for it.
    """
    runtime = ["--add-runtime", f"{RUNTIME}={WRAPPER}", "--default-runtime", RUNTIME] if restricted else []
    return [
        "dockerd",
        "--host",
        f"unix://{directory / 'docker.sock'}",
        "--data-root",
        str(directory / "data"),
        "--exec-root",
        str(directory / "exec"),
        "--pidfile",
        str(directory / docker.PID_FILE),
        "--exec-opt",
        "native.cgroupdriver=cgroupfs",
        "--bip",
        addresses.bridge,
        "--default-address-pool",
        addresses.pool,
        *runtime,
    ]


def up() -> None:
    """Start the daemon and wait until it serves; nothing happens if it runs.

    Raises:
        UsageError: naming the program that is missing, or that this isn't root, or that another daemon runs:
            both would have the same chains of iptables. Or there are no free addresses, see `network.choose`.
        EnvironmentBlocked: it ended or didn't serve in time; the end of its log is in the message.
    """
    if docker.own_pid() is not None:
        return
    _require_startable()
    directory = docker.directory()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if docker.pid_file().exists():  # of a daemon that was killed
        network.remove(directory)
        docker.pid_file().unlink()  # with the number of another process in it, dockerd refuses
    addresses = network.choose(directory)
    log = directory / "dockerd.log"
    with log.open("wb") as output:
        popen = subprocess.Popen(
            arguments(directory, addresses, restricted=not has_cap_sys_resource()),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    _started.append(popen)

    def serving() -> bool:
        if popen.poll() is not None:
            raise EnvironmentBlocked(f"dockerd ended:\n{processes.tail(log)}")
        try:
            return bool(_ours(["version", "--format", "{{.Server.Version}}"]))
        except EnvironmentBlocked as error:
            raise NotYet(error) from error

    try:
        wait_until(serving, _START_SECONDS, "dockerd to serve", interval=0.1)
    except WaitTimeout as error:
        popen.terminate()
        raise EnvironmentBlocked(f"{error}\n{processes.tail(log)}") from error


def _require_startable() -> None:
    if others := other_daemons():
        raise UsageError(
            f"docker up: a Docker daemon runs already (process {others[0]}); nothing to do, use it"
        )
    if os.geteuid() != 0:
        raise UsageError("docker up: a Docker daemon needs root; use sudo")
    for program, package in PACKAGES.items():
        if shutil.which(program) is None:
            raise UsageError(f"docker up: {program} is not on PATH: apt-get install {package}")


def down() -> None:
    """Stop the daemon, with its containers, and remove its network from the machine; images stay on disk.

    Nothing happens where it was never started; while somebody else's daemon runs, the network is left alone.

    Raises:
        EnvironmentBlocked: it did not end in time.
    """
    if not docker.directory().exists():
        return
    running = docker.own_pid()
    if running is not None:
        with contextlib.suppress(EnvironmentBlocked):  # one that has ended meanwhile can't be killed
            if containers := _ours(["ps", "--quiet"]).split():
                _ours(["kill", *containers])
        with contextlib.suppress(ProcessLookupError):
            os.kill(running, signal.SIGTERM)
        try:
            wait_until(lambda: docker.own_pid() is None, _STOP_SECONDS, "dockerd to end", interval=0.1)
        except WaitTimeout as error:
            raise EnvironmentBlocked(str(error)) from error
    docker.own_socket().unlink(missing_ok=True)
    if not other_daemons():
        network.remove(docker.directory())


def purge() -> None:
    """Stop the daemon and remove its images too."""
    down()
    _unmount(docker.directory())
    shutil.rmtree(docker.directory(), ignore_errors=True)


def _unmount(directory: Path) -> None:
    """Unmount what a killed daemon has left mounted in its folder: that can't be removed otherwise."""
    targets = [Path(line.split()[1]) for line in Path("/proc/self/mounts").read_text().splitlines()]
    for target in reversed(targets):
        if target.is_relative_to(directory):
            subprocess.run(["umount", "--lazy", target], check=False)


def other_daemons() -> list[int]:
    """Docker daemons that are not ours."""
    ours = docker.own_pid()
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            # Of one that has ended and was not reaped the name is still there, but no program.
            if entry.name.isdigit() and (entry / "exe").readlink().name == "dockerd":
                found.append(int(entry.name))
    return [number for number in found if number != ours]


def _ours(arguments: Sequence[str]) -> str:
    """Ask our daemon: DOCKER_HOST may name another one, with somebody else's containers."""
    return docker.run(arguments, timeout=_ANSWER_SECONDS, host=docker.own_host())
