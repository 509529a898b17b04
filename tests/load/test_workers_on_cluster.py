"""A run with workers of its own against a real cluster with simulated nodes, beside one without."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml

from clusters import driver_chart, leftovers, processes
from clusters.components import BuildSource
from clusters.interface import Cluster, ClusterSpec, SilentProgress
from clusters.local.provider import LocalProvider
from harness.kube import NAMESPACES, PODS, SERVICE_ACCOUNTS, KubeClient, Object, Resource
from harness.waiting import wait_until
from load.crew.key import ensure_key
from load.generator.arguments import free_port
from load.model import Cause, Stage
from load.result import LoadResult, Verdict, read
from tests.support.ports import two_free_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

CHART = Path(__file__).parents[2] / "load" / "deploy" / "chart"

PROFILE = """
name: small
title: Pods with a claim each
asks: Do several workers count what one does?
reports: The ledger.
limits: open
pods: [{name: plain-claim, via: template}]
criteria: [{measure: bound.p99, at_most: 30}]
sizes:
  S: {simulated_nodes: 20, rate: 5, warm_up: 2, seconds: 10, hold: 1, drain: 30}
  M: {simulated_nodes: 20, rate: 5, warm_up: 2, seconds: 10, hold: 1, drain: 30}
"""


@dataclass(frozen=True)
class Site:
    """A cluster, and where everything about runs on it is."""

    cluster: Cluster
    root: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "NO_COLOR": "1", "TMPDIR": str(self.root / "tmp")}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "cli.main", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def load(self, run_id: str, *options: str) -> subprocess.Popen[str]:
        arguments = [str(self.root / "small.yaml"), "--seed", "7", "--cluster", self.cluster.name]
        return self.start("load", *arguments, "--run-id", run_id, *options)

    def crew(self, run_id: str, *options: str) -> tuple[subprocess.Popen[str], list[subprocess.Popen[str]]]:
        """The run and its two workers."""
        port = str(two_free_ports())
        run = self.load(run_id, "--expect-workers", "2", "--bind-port", port, *options)
        key = self.root / "state" / "load-workers.key"
        wait_until(key.exists, 60, "the key")
        names = ("alpha", "beta")
        return run, [self.start("load-worker", "--port", port, "--name", name) for name in names]

    def wait_for_load(self, run_id: str, run: subprocess.Popen[str]) -> None:
        """Wait until the run's load goes on."""
        progress = self.root / "results" / run_id / "trials" / "01-main" / "progress.ndjson"

        def going_on() -> bool:
            assert run.poll() is None, ended(run)
            return progress.exists() and progress.read_text().count("\n") > 4

        wait_until(going_on, 120, "the load")

    def result(self, run_id: str) -> LoadResult:
        return read(self.root / "results" / run_id)

    def left(self, run_id: str) -> list[str]:
        return leftovers.remaining(KubeClient.from_kubeconfig(self.cluster.kubeconfig), run_id)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("workers")
    (root / "tmp").mkdir()
    (root / "small.yaml").write_text(PROFILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRA_HARNESS_STATE", str(root / "state"))
        patch.setenv("DRA_HARNESS_RESULTS", str(root / "results"))
        provider = LocalProvider(BuildSource())
        spec = ClusterSpec(name="dist-workers", nodes=1, simulated_nodes=20, ephemeral=True)
        cluster = provider.up(spec, SilentProgress())
        yield Site(cluster, root)
        provider.down("dist-workers")


def ended(process: subprocess.Popen[str], within: float = 200) -> tuple[int, str]:
    out, _ = process.communicate(timeout=within)
    print(out)  # noqa: T201 - pytest shows it with a failure
    return process.returncode, out


def mistrust(result: LoadResult) -> list[str]:
    """Reasons against the numbers, but that the machine was busy, which says nothing of the workers."""
    busy = ("send-lateness", "host-cpu")
    return [each.message for each in result.checks if not each.ok and each.name not in busy]


def test_two_workers_count_what_one_process_does(site: Site) -> None:
    assert ended(site.load("alone"))[0] in (0, 3)
    before = set((site.root / "tmp").iterdir())  # a killed worker's, from another test
    run, workers = site.crew("crew")
    code = ended(run)[0]
    outcomes = [ended(worker, 60) for worker in workers]

    (alone,), (crew,) = site.result("alone").trials, site.result("crew").trials
    result = site.result("crew")
    assert mistrust(result) == []
    assert code == result.verdict.exit_code
    assert [code for code, _ in outcomes] == [0, 0]
    assert (alone.generator.workers, crew.generator.workers) == (1, 2)
    assert crew.intended == alone.intended > 30, "the same seed makes the same arrivals"
    assert crew.causes == {Cause.COMPLETED: crew.intended}
    assert all(line.balanced for line in crew.books if line.binding)
    bound = crew.stage(Stage.BOUND)
    assert bound is not None
    everywhere = [crew.stage(Stage.BOUND, window=window) for window in ("measured", "warm-up")]
    assert sum(each.count for each in everywhere if each) == crew.intended
    assert crew.generator.cpu_share is None, "other machines' CPU is no share of this one's"
    assert site.left("crew") == []
    left = [*(site.root / "results").rglob("crew/**/*.kubeconfig"), *(site.root / "tmp").iterdir()]
    assert set(left) <= before, "credentials end with the run"


def test_a_worker_that_dies_makes_the_run_invalid(site: Site) -> None:
    run, workers = site.crew("died", "--seconds", "15")
    try:
        site.wait_for_load("died", run)
        (generator,) = psutil.Process(workers[0].pid).children()
        workers[0].kill()
        generator.kill()
        code, _ = ended(run)
    finally:
        for process in (run, *workers):
            process.kill()
            process.communicate()

    result = site.result("died")
    (trial,) = result.trials
    assert (code, result.verdict) == (3, Verdict.INVALID)
    assert any(re.search(r"worker alpha was lost \d+ s after the start", why) for why in result.reasons)
    assert sum(trial.causes.values()) == trial.intended
    assert trial.causes[Cause.LOST_WITH_WORKER] > 30
    assert site.left("died") == []


def test_a_run_that_is_killed_ends_its_generators_everywhere(site: Site) -> None:
    before = set((site.root / "tmp").iterdir())
    run, workers = site.crew("killed", "--seconds", "60")
    try:
        site.wait_for_load("killed", run)
        run.kill()
        outcomes = [ended(worker, 60) for worker in workers]
        component = "generator/01-main"
        wait_until(lambda: not processes.find(site.cluster.id, component), 60, "Locust's master to end")
    finally:
        for process in (run, *workers):
            process.kill()
            process.communicate()

    assert [code for code, _ in outcomes] == [3, 3]
    assert all("is gone: it closed the connection" in out for _, out in outcomes)
    assert set((site.root / "tmp").iterdir()) <= before
    kube = KubeClient.from_kubeconfig(site.cluster.kubeconfig)
    wait_until(lambda: not _churned(kube), 60, "the workers' pods to be gone")


def _churned(kube: KubeClient) -> list[str]:
    """Pods that generators made."""
    return [pod["metadata"]["name"] for pod in kube.list(PODS, labels="dra-harness.dev/worker")]


def test_a_stop_in_locusts_web_ui_ends_the_run(site: Site) -> None:
    port = free_port()
    run = site.load("stopped", "--seconds", "60", "--web", str(port))
    try:
        site.wait_for_load("stopped", run)
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/stop", data=b"")):
            pass
        code, said = ended(run)
    finally:
        run.kill()
        run.communicate()

    result = site.result("stopped")
    assert (code, result.verdict, result.interrupted) == (3, Verdict.INVALID, True)
    assert result.reasons[0] == "the run was interrupted: not all of it was done"
    assert "the test was stopped in Locust's web UI" in result.reasons
    assert f"Locust's web UI, while there is load: http://127.0.0.1:{port}" in said
    (trial,) = result.trials
    assert sum(trial.causes.values()) == trial.intended > 0
    assert site.left("stopped") == []


def test_what_the_chart_tells_its_pods_makes_a_run(site: Site) -> None:
    """Master and workers as processes, with the chart's arguments, and this machine's paths and addresses.

    A stranger to the cluster is not told where the control plane's metrics are, and says so.
    """
    port, key, place = two_free_ports(), site.root / "pods.key", site.root / "small.yaml"
    values = {"profile": str(place), "port": port, "options": ["--run-id=pods", "--seed=7"]}
    ensure_key(key)
    here = {
        "/var/run/dra-load/cluster/kubeconfig": str(site.cluster.kubeconfig),
        "/var/run/dra-load/key/key": str(key),
        "$(POD_IP)": "127.0.0.1",
        "--master=churn-master": "--master=127.0.0.1",
    }
    told = {}
    for each in rendered(values):
        if each["kind"] == "Job":
            (container,) = each["spec"]["template"]["spec"]["containers"]
            words = container["args"]
            for there, value in here.items():
                words = [word.replace(there, value) for word in words]
            told[container["name"]] = words

    processes = [site.start(*told["master"]), site.start(*told["worker"]), site.start(*told["worker"])]
    (code, _), *workers = [ended(process) for process in processes]

    result = site.result("pods")
    assert [code for code, _ in workers] == [0, 0]
    assert code == result.verdict.exit_code
    assert mistrust(result) == []
    (trial,) = result.trials
    assert trial.causes == {Cause.COMPLETED: trial.intended}
    assert trial.generator.workers == 2
    assert site.left("pods") == []


def rendered(values: Mapping[str, object]) -> list[Object]:
    """The chart's objects."""
    done = subprocess.run(
        [driver_chart.helm(), "template", "churn", CHART, "--namespace", "dra-load", "--values", "-"],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=True,
    )
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def test_a_real_api_server_takes_the_chart_for_pods_under_its_strictest_standard(site: Site) -> None:
    kube = KubeClient.from_kubeconfig(site.cluster.kubeconfig)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": "dra-load", "labels": labels}
    kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    wait_until(lambda: kube.find(SERVICE_ACCOUNTS, "default", "dra-load"), 30, "the pods' account")
    objects = rendered({})
    assert len(objects) == 5
    for each in objects:
        plural = {"NetworkPolicy": "networkpolicies"}.get(each["kind"], f"{each['kind'].lower()}s")
        _take(kube, Resource(each["apiVersion"], plural, namespaced=True), each)
        if each["kind"] == "Job":  # the standard judges pods
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
            _take(kube, PODS, pod | {"spec": each["spec"]["template"]["spec"]})


def _take(kube: KubeClient, resource: Resource, content: Object) -> None:
    """What the API server would store is asked for only: strictly, and as a dry run."""
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    kube.request("POST", resource.path("dra-load"), body=content, query=query)
