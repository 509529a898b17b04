"""Connections to the API server, in a process that is gevent's as the generator's is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.load.generator.apiserver import serving
from tests.load.generator.certificates import Authority
from tests.load.generator.running import kubeconfig

_WARM_THEN_SEND = """
from gevent import monkey
monkey.patch_all()
import sys
from pathlib import Path
import gevent
from load.generator.access import read_kubeconfig
from load.generator.exchange import head
from load.generator.wire import Wire
access = read_kubeconfig(Path(sys.argv[1]))
wire = Wire(access, size=4)
wire.warm(4)
gevent.sleep(0.2)
for _ in range(2):
    sent = [gevent.spawn(wire.send, head(access, "GET", "/api/v1/pods"), "GET") for _ in range(4)]
    gevent.joinall(sent)
    print(sorted({job.value.status for job in sent}))
wire.close()
"""


@pytest.mark.parametrize("tls", [False, True])
def test_connections_that_were_opened_ahead_are_those_that_are_used(tmp_path: Path, tls: bool) -> None:
    """Under TLS 1.3 a server says something once the handshake is over: no reason to begin another one."""
    authority = Authority()
    mine = authority.issue("me")
    files = {"ca.crt": authority.certificate, "me.crt": mine.certificate, "me.key": mine.key}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    with serving(authority.server(tmp_path) if tls else None) as server:
        url = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}"
        config = kubeconfig(tmp_path, url, cluster={"certificate-authority": "ca.crt"}, user=user)
        command = [sys.executable, "-c", _WARM_THEN_SEND, str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)

        assert done.stdout == "[200]\n[200]\n"
        assert server.accepted == 4
