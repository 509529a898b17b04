"""A cluster from downloaded programs: those of the build cache, served with the layout of the releases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from clusters.components import CONTROL_PLANE, NODE, BuildSource, locations
from clusters.components.programs import KUBERNETES_MODULE
from clusters.local.provider import LocalProvider
from clusters.local.state import ClusterState
from harness.kube import NODES, KubeClient
from load import fingerprint
from tests.support.commands import Command
from tests.support.releases import Releases, publish_programs, serving

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

VERSION = "v1.37.2"
KUBERNETES = [each for each in (*CONTROL_PLANE, *NODE) if each.module == KUBERNETES_MODULE]
OTHERS = [each for each in (*CONTROL_PLANE, *NODE) if each.module != KUBERNETES_MODULE]


@pytest.fixture
def server() -> Iterator[Releases]:
    built = BuildSource().ensure(KUBERNETES, VERSION)
    with serving() as releases:
        publish_programs(releases, VERSION, dict(built))
        yield releases


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that has everything but Kubernetes."""
    path = tmp_path / "cache"
    for program in BuildSource().ensure(OTHERS, "").values():
        target = path / locations.BUILT / program.parent.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(program.parent)
    monkeypatch.setenv("DRA_HARNESS_CACHE", str(path))
    return path


def test_a_cluster_from_downloaded_programs(
    server: Releases, cache: Path, state_dir: Path, dra_harness: Command
) -> None:
    """With a connection that is cut, as `auto` chooses. Its components restart from the same programs, and
    a run after it finds them in the cache and says where they came from."""
    path = f"release/{VERSION}/bin/linux/{locations.architecture()}/kubelet"
    server.cuts[path] = [30 * 1024**2]

    up = dra_harness("up", "dl-one", "--nodes", "1", "--download-url", server.url)
    try:
        assert up.returncode == 0, up.stderr
        found = ClusterState.load("dl-one")
        folders = {found.programs[program.name].parent for program in KUBERNETES}
        cluster = found.cluster()
        kube = KubeClient.from_kubeconfig(cluster.kubeconfig)
        (node,) = kube.list(NODES)
        provider = LocalProvider(BuildSource())
        provider.restart("dl-one", "kube-scheduler", {"DRAConsumableCapacity": False})
        running = {each.component: each.pid for each in provider.status("dl-one")}
        programs = {name: psutil.Process(pid).exe() for name, pid in running.items() if pid}
        facts = fingerprint.take(cluster, kube, shape={}, run_id="none", seed=0).facts
    finally:
        down = dra_harness("down", "dl-one")
    asked = len(server.requests)
    run = dra_harness("run", "ER-01", "--nodes", "1", "--run-id", "dl-run", "--download-url", server.url)

    assert server.asked(path) == ["", f"bytes={30 * 1024**2}-"]
    (folder,) = folders
    assert folder.is_relative_to(cache / "downloads")
    assert programs["kube-scheduler"] == str(folder / "kube-scheduler")
    assert programs["kube-apiserver"] == str(folder / "kube-apiserver")
    assert node["status"]["nodeInfo"]["kubeletVersion"] == VERSION
    assert (cluster.origin, facts["kubernetes.programs"]) == ("download", "download")
    assert (down.returncode, run.returncode) == (0, 0), down.stderr + run.stderr
    assert len(server.requests) == asked
    document = json.loads((state_dir.parent / "results" / "dl-run" / "run.json").read_text())
    assert [each["programs"] for each in document["environment"]["clusters"]] == ["download"]
