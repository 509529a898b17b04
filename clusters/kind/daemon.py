"""A Docker daemon of our own, for machines where none runs and nothing like systemd could start one."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence, Set
from pathlib import Path

from clusters import processes
from clusters.kind import docker
from clusters.local.node import has_cap_sys_resource
from harness.errors import EnvironmentBlocked, UsageError
from harness.waiting import NotYet, WaitTimeout, wait_until

WRAPPER = Path(__file__).parent / "files" / "runc-without-sys-resource"
PACKAGES = {"docker": "docker.io", "dockerd": "docker.io", "runc": "runc", "iptables": "iptables"}
"""Program on PATH -> the Debian package that has it."""

_RUNTIME = "without-sys-resource"
_BRIDGES = re.compile(r"docker0|br-[0-9a-f]{12}")
_BRIDGE_ADDRESS = "172.31.0.1/24"
_POOL = "base=172.30.0.0/16,size=24"
_ANSWER_SECONDS = 10.0
_started: list[subprocess.Popen[bytes]] = []
"""Daemons that outlive what started them: forgotten while they run, they would be warned of."""
_START_SECONDS = 30.0
_STOP_SECONDS = 30.0


def arguments(directory: Path, *, restricted: bool) -> list[str]:
    """The daemon's command line.

    Args:
        directory: its sockets and data; nothing outside is used.
        restricted: root here lacks CAP_SYS_RESOURCE, so containers get a runtime that doesn't ask for it.
    """
    runtime = ["--add-runtime", f"{_RUNTIME}={WRAPPER}", "--default-runtime", _RUNTIME] if restricted else []
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
        _BRIDGE_ADDRESS,
        "--default-address-pool",
        _POOL,
        *runtime,
    ]


def up() -> None:
    """Start the daemon and wait until it serves; nothing happens if it runs.

    Raises:
        UsageError: naming the program that is missing, or that this isn't root, or that another daemon runs:
            both would have the same chains of iptables.
        EnvironmentBlocked: it ended or didn't serve in time; the end of its log is in the message.
    """
    if docker.own_pid() is not None:
        return
    if others := other_daemons():
        raise UsageError(
            f"docker up: a Docker daemon runs already (process {others[0]}); nothing to do, use it"
        )
    if os.geteuid() != 0:
        raise UsageError("docker up: a Docker daemon needs root; use sudo")
    for program, package in PACKAGES.items():
        if shutil.which(program) is None:
            raise UsageError(f"docker up: {program} is not on PATH: apt-get install {package}")
    directory = docker.directory()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    docker.pid_file().unlink(missing_ok=True)  # with the number of another process in it, dockerd refuses
    log = directory / "dockerd.log"
    with log.open("wb") as output:
        popen = subprocess.Popen(
            arguments(directory, restricted=not has_cap_sys_resource()),
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
        _remove_network()


def purge() -> None:
    """Stop the daemon and remove its images too."""
    down()
    shutil.rmtree(docker.directory(), ignore_errors=True)


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


def _remove_network() -> None:
    """Take away what dockerd leaves: its bridges, and the iptables rules and chains that it made."""
    addresses = subprocess.run(
        ["ip", "-o", "-4", "address"], capture_output=True, text=True, check=True
    ).stdout
    bridges = bridges_in(addresses)
    for name in bridges:
        subprocess.run(["ip", "link", "delete", name], check=False)
    for family in ("iptables", "ip6tables"):
        with contextlib.suppress(FileNotFoundError):
            _remove_chains(family, bridges)


def bridges_in(addresses: str) -> set[str]:
    """Our daemon's bridges, by what `ip -o -4 address` prints: Docker's names, and addresses of ours."""
    found = set()
    for line in addresses.splitlines():
        name = line.split()[1]
        if (" 172.30." in line or f" {_BRIDGE_ADDRESS} " in line) and _BRIDGES.fullmatch(name):
            found.add(name)
    return found


def _remove_chains(program: str, bridges: Set[str]) -> None:
    for table in ("filter", "nat"):
        listed = subprocess.run([program, "-t", table, "-S"], capture_output=True, text=True, check=False)
        lines = [line.split() for line in listed.stdout.splitlines()]
        for words in lines:
            if words[0] == "-A" and is_dockers(words, bridges):
                subprocess.run([program, "-t", table, "-D", *words[1:]], check=False)
        for words in lines:
            if words[0] == "-N" and words[1].startswith("DOCKER"):
                subprocess.run([program, "-t", table, "-F", words[1]], check=False)
        for words in lines:
            if words[0] == "-N" and words[1].startswith("DOCKER"):
                subprocess.run([program, "-t", table, "-X", words[1]], check=False)


def is_dockers(words: Sequence[str], bridges: Set[str]) -> bool:
    """Whether a rule of `iptables -S` is in a chain of Docker's, leads into one, or is about our bridges."""
    target = words[words.index("-j") + 1] if "-j" in words else ""
    return (
        words[1].startswith("DOCKER")
        or target.startswith("DOCKER")
        or any(word in bridges or word.startswith(("172.30.", "172.31.0.")) for word in words)
    )
