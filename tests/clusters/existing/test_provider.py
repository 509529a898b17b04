"""The provider against a server of canned answers: its handle, its files, what keeps it from a cluster."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from clusters import driver_host, processes
from clusters.existing import provider as provider_module
from clusters.existing.presence import LEASE_SECONDS
from clusters.existing.provider import ExistingProvider, folders, forget_killed, killed, sweep
from clusters.interface import ClusterSpec, Profile, SilentProgress
from clusters.local.pki import CertificateAuthority
from clusters.profiles import feature_gates
from harness.errors import EnvironmentBlocked, UsageError
from harness.waiting import wait_until
from tests.support.api_server import serve


def node(name: str, *, ready: bool = True, **metadata: Any) -> dict[str, Any]:
    conditions = [{"type": "MemoryPressure", "status": "True"}]
    conditions += [{"type": "Ready", "status": str(ready)}]
    return {"metadata": {"name": name, **metadata}, "status": {"conditions": conditions}}


NODES = [
    node("b"),
    node("a"),
    node("ill", ready=False),
    node("sim-1", labels={"dra-harness.dev/simulated": "true"}),
    node("kwok-1", annotations={"kwok.x-k8s.io/node": "fake"}),
]
METRICS = (
    "# TYPE kubernetes_feature_enabled gauge\n"
    'kubernetes_feature_enabled{name="DRAExtendedResource",stage=""} 1\n'
    'kubernetes_feature_enabled{name="DRAListTypeAttributes",stage="ALPHA"} 0\n'
    "# TYPE other gauge\nother 5\n"
)
ANSWERS: dict[str, Any] = {
    "POST /apis/authentication.k8s.io/v1/selfsubjectreviews": {"status": {"userInfo": {"username": "jane"}}},
    "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {"status": {"allowed": True}},
    "GET /version": {"gitVersion": "v1.36.1-gke.7"},
    "GET /metrics": METRICS,
    "GET /api/v1/nodes": {"items": NODES},
    "GET /apis/resource.k8s.io": {
        "versions": [{"version": "v1beta2"}, {"version": "v1"}],
        "preferredVersion": {"version": "v1"},
    },
    "GET /apis/resource.k8s.io/v1/resourceslices": {
        "items": [{"spec": {"driver": name}} for name in ("gpu.example.com", "nic", "gpu.example.com")]
    },
}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def kubeconfig(folder: Path, server: str, **cluster: str) -> Path:
    path = folder / "config"
    document = {
        "current-context": "Team A/prod",
        "contexts": [{"name": "Team A/prod", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": "t0ken-of-jane"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def server() -> Iterator[str]:
    with serve(ANSWERS) as address:
        yield address


def test_the_handle_says_what_is_there(tmp_path: Path, server: str) -> None:
    with ExistingProvider(kubeconfig(tmp_path, server), None, "run-1") as provider:
        assert provider.cluster_name == "team-a-prod"
        cluster = provider.attach("team-a-prod")
        facts = provider.facts()
    assert (cluster.provider, cluster.kubernetes, cluster.profile) == (
        "existing",
        "v1.36.1-gke.7",
        Profile.GA,
    )
    assert (cluster.nodes, cluster.nodes_elsewhere, cluster.simulated_nodes) == ((), ("a", "b"), 2)
    assert cluster.gates == {"DRAExtendedResource": True, "DRAListTypeAttributes": False}
    assert cluster.kubeconfig == cluster.driver_kubeconfig == folders() / "run-1" / "kubeconfig"
    assert (facts.user, facts.api_versions, facts.nodes_not_ready) == ("jane", ("v1", "v1beta2"), ("ill",))
    assert facts.drivers == {"gpu.example.com": 2, "nic": 1}


def test_every_gate_on_is_profile_alpha(tmp_path: Path) -> None:
    gates = feature_gates(Profile.ALPHA, "v1.36.1")
    text = "".join(f'kubernetes_feature_enabled{{name="{gate}",stage="ALPHA"}} 1\n' for gate in gates)
    with serve({**ANSWERS, "GET /metrics": text}) as address:
        path = kubeconfig(tmp_path, address)
        with ExistingProvider(path, None, "r") as provider:
            assert provider.attach("team-a-prod").profile is Profile.ALPHA


def test_what_the_user_may_not_see_is_unknown(tmp_path: Path) -> None:
    refused = dict.fromkeys(("GET /metrics", "GET /apis/resource.k8s.io/v1/resourceslices"), 403)
    with serve({**ANSWERS, **refused}) as address:
        path = kubeconfig(tmp_path, address)
        with ExistingProvider(path, None, "r") as provider:
            facts = provider.facts()
            assert (facts.gates, facts.drivers, facts.profile) == (None, None, Profile.GA)
            assert provider.attach("team-a-prod").gates == {}


def test_the_copy_is_private_and_goes(tmp_path: Path, server: str, state: Path) -> None:
    path = kubeconfig(tmp_path, server)
    with ExistingProvider(path, None, "run-1") as provider:
        assert stat.S_IMODE(provider.kubeconfig.stat().st_mode) == 0o600
        assert stat.S_IMODE(provider.kubeconfig.parent.stat().st_mode) == 0o700
        path.unlink()  # the run goes on
        assert provider.attach("team-a-prod").nodes_elsewhere == ("a", "b")
        with pytest.raises(UsageError, match="a run of this id uses it"):
            ExistingProvider(kubeconfig(tmp_path, server), None, "run-1").__enter__()
        assert provider.kubeconfig.exists()
    assert not state.exists()


KILLED = """
import os, subprocess, sys
from pathlib import Path
from clusters import processes
from clusters.existing.provider import ExistingProvider
with ExistingProvider(Path(sys.argv[1]), None, sys.argv[2]) as provider:
    cluster = provider.attach("team-a-prod")
    log = Path(sys.argv[1] + ".log")
    processes.spawn(["sleep", "600"], cluster_id=cluster.id, component="checks", log=log)
    print(cluster.id, flush=True)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), 9)
    sys.stdin.read()
"""


def test_what_a_killed_run_left_is_swept_and_what_lives_is_not(
    tmp_path: Path, server: str, state: Path
) -> None:
    path = kubeconfig(tmp_path, server)

    def start(name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", KILLED, str(path), name]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with start("alive") as alive:
        assert alive.stdout
        living = alive.stdout.readline().strip()
        with start("killed") as killed:
            assert killed.stdout
            dead = killed.stdout.readline().strip()
        wait_until(lambda: processes.find(dead), 20, "the killed run's process", interval=0.01)
        assert (folders() / "killed" / "kubeconfig").exists()

        sweep()

        assert not processes.find(dead)
        assert sorted(folders().iterdir()) == [folders() / "alive"]
        assert processes.find(living)
        processes.kill(living, "checks")
        alive.communicate()
    assert not state.exists()


def killed_run(name: str) -> None:
    """What a run leaves that was killed on this machine."""
    folder = folders() / name
    folder.mkdir(parents=True)
    (folder / "mark").write_text("a-mark-that-nobody-has")


def test_who_was_killed_is_known_until_that_is_forgotten_or_a_lease_has_run_out(
    tmp_path: Path, server: str, state: Path
) -> None:
    path = kubeconfig(tmp_path, server)
    for name in ("old", "again", "cleaned"):
        killed_run(name)
    with ExistingProvider(path, None, "any"):
        assert sorted(killed()) == ["again", "cleaned", "old"]
    with ExistingProvider(path, None, "again"):
        assert sorted(killed()) == ["cleaned", "old"]
        long_ago = time.time() - LEASE_SECONDS - 1
        os.utime(state / "killed-runs" / "old", (long_ago, long_ago))
        assert killed() == ["cleaned"]
        forget_killed(["cleaned", "unheard-of"])
    assert killed() == []
    with ExistingProvider(path, None, "any"):
        pass
    assert not state.exists()


def test_a_state_directory_that_cannot_be_written_is_named(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("DRA_HARNESS_STATE", str(file / "state"))
    with pytest.raises(UsageError, match=f"^{file}/state/existing/r: can't be written: Not a directory"):
        ExistingProvider(kubeconfig(tmp_path, server), None, "r").__enter__()


def test_a_full_state_directory_is_named_and_left_as_it_was(
    tmp_path: Path, server: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(provider_module, "write_atomically", full)
    with pytest.raises(UsageError, match=f"^{state}/existing/r: can't be written: No space left on device"):
        ExistingProvider(kubeconfig(tmp_path, server), None, "r").__enter__()
    assert not state.exists()


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"POST /apis/authentication.k8s.io/v1/selfsubjectreviews": 401}, "the credentials are expired or"),
        (
            {
                "POST /apis/authentication.k8s.io/v1/selfsubjectreviews": {
                    "status": {"userInfo": {"username": "system:anonymous"}}
                }
            },
            "the kubeconfig has no credentials",
        ),
        (
            {"GET /api/v1/nodes": 403},
            "the user lacks a right (403): refused with 403; see `dra-harness rbac`",
        ),
        ({"GET /api/v1/nodes": 500}, "GET /api/v1/nodes: 500"),
        (
            {"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {"status": {"allowed": False}}},
            "jane may not create namespaces, delete namespaces, ",
        ),
        ({"GET /apis/resource.k8s.io": 404}, "resource.k8s.io/v1 is not served: nothing to check"),
        ({"GET /version": {"gitVersion": "v1.33.9"}}, "the server is v1.33.9; supported are v1.34 to v1.37"),
        ({"GET /version": {"gitVersion": "v1.38.0-rc.1"}}, "the server is v1.38.0-rc.1; supported are"),
        ({"GET /version": {"gitVersion": "v2.35.0"}}, "the server is v2.35.0; supported are"),
        ({"GET /version": {"gitVersion": "vX"}}, "the server is vX; supported are"),
        (
            {
                "GET /version": {"gitVersion": "v1.27.3"},
                "POST /apis/authentication.k8s.io/v1/selfsubjectreviews": 404,
            },
            "the server is v1.27.3; supported are",
        ),
        ({"GET /version": "<html>\nSign in\n</html>"}, ": what answers there is no Kubernetes API server"),
        ({"GET /version": []}, ": what answers there is no Kubernetes API server"),
        ({"GET /version": (502, "<html>\nBad\n  gateway\n</html>")}, "<html> Bad gateway </html>"),
        (
            {"POST /apis/authentication.k8s.io/v1/selfsubjectreviews": {}},
            ": what answers there is no Kubernetes API server",
        ),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_clear_error(
    tmp_path: Path, state: Path, answers: dict[str, Any], message: str
) -> None:
    with serve({**ANSWERS, **answers}) as address:
        blocked = refusal(kubeconfig(tmp_path, address))
    assert message in blocked
    assert "\n" not in blocked
    assert "t0ken" not in blocked
    assert not state.exists()


def refusal(path: Path) -> str:
    with pytest.raises(EnvironmentBlocked) as blocked, ExistingProvider(path, None, "r") as provider:
        provider.attach(provider.cluster_name)
    return str(blocked.value)


def test_a_server_that_is_not_there(tmp_path: Path, state: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"https://127.0.0.1:{taken.getsockname()[1]}"
        said = refusal(kubeconfig(tmp_path, address))
    assert said.startswith(f"{address}: can't be reached: ")
    assert "refused" in said
    assert not state.exists()


def test_a_server_that_somebody_else_vouches_for(tmp_path: Path) -> None:
    certificate, key = CertificateAuthority.create(tmp_path / "theirs").issue(
        "server", "server", hosts=["127.0.0.1"]
    )
    ours = CertificateAuthority.create(tmp_path / "ours").certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection, pytest.raises(OSError, match="alert"):
                context.wrap_socket(connection, server_side=True)

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"https://127.0.0.1:{listening.getsockname()[1]}"
        said = refusal(kubeconfig(tmp_path, address, **{"certificate-authority": str(ours)}))
        thread.join()
    assert said.startswith(f"{address}: TLS fails: ")
    assert "certificate verify failed" in said


def test_a_credential_that_is_none_names_the_users_file(tmp_path: Path, state: Path) -> None:
    path = kubeconfig(tmp_path, "https://127.0.0.1:1", **{"certificate-authority": "nowhere.crt"})
    refused = pytest.raises(UsageError, match=f"^{path}: not a usable kubeconfig: .*nowhere.crt")
    with refused, ExistingProvider(path, None, "r") as provider:
        provider.attach(provider.cluster_name)
    assert not state.exists()


def test_it_makes_and_removes_nothing(tmp_path: Path, server: str) -> None:
    with ExistingProvider(kubeconfig(tmp_path, server), None, "r") as provider:
        cluster = provider.attach("team-a-prod")
        with pytest.raises(UsageError):
            provider.up(ClusterSpec("x"), SilentProgress())
        with pytest.raises(UsageError):
            provider.down("team-a-prod", force=True)
        with pytest.raises(UsageError, match="of cluster 'team-a-prod', not 'x'"):
            provider.attach("x")
        with pytest.raises(EnvironmentBlocked, match="can't be restarted from here"):
            provider.restart("team-a-prod", "kube-scheduler")
        assert (provider.list(), provider.status("team-a-prod")) == ((), ())
        with pytest.raises(EnvironmentBlocked, match="needs a driver whose faults can be switched"):
            driver_host.prepare_driver(cluster, "d", "r")
        with pytest.raises(EnvironmentBlocked, match="needs a driver whose faults can be switched"):
            driver_host.prepare_device_plugin(cluster, "example.com/gpu", "r", {"a": 1})
        assert [each.name for each in provider.kubeconfig.parent.iterdir() if each.is_dir()] == []
