"""The commands about load, without a cluster."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cli import load_worker, main
from clusters.components import BuildSource
from clusters.interface import Cluster, ClusterProvider
from clusters.local.provider import LocalProvider
from harness.errors import UsageError
from load.crew.reception import Bind, Reception
from load.request import LimitSet, Listener, LoadRequest, Size
from load.result import LoadResult, Rates, Verdict
from tests.support.load_results import load_result, trial
from tests.support.ports import two_free_ports

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command by its entry point, in this process."""
    for name in ("STATE", "CACHE", "RESULTS", "MACHINE"):
        monkeypatch.setenv(f"DRA_HARNESS_{name}", str(tmp_path / name.lower()))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")

    def execute(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dra-harness", *map(str, arguments)])
        monkeypatch.setattr("signal.signal", lambda *_: None)
        with pytest.raises(SystemExit) as ended:
            main.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return execute


def write(folder: Path, name: str, rate: float, minutes: float, **changes: object) -> None:
    run_dir = folder / name
    run_dir.mkdir(parents=True)
    rates = Rates(offered=20, sent=20, accepted=20, bound=rate, released=rate)
    load_result(name, minutes=minutes, trials=[trial(rates=rates)], **changes).write(run_dir)  # type: ignore[arg-type]


@pytest.fixture
def sides(tmp_path: Path) -> Path:
    """Five runs before, five that lose a tenth, and five like the first."""
    for number in range(5):
        noise = 0.1 * number
        write(tmp_path, f"before-{number}", 20.0 + noise, 3 * number)
        write(tmp_path, f"slower-{number}", 18.0 + noise, 3 * number + 1)
        write(tmp_path, f"same-{number}", 20.05 + noise, 3 * number + 2)
    return tmp_path


def test_a_regression_is_exit_code_1(run: Run, sides: Path) -> None:
    code, out, err = run("compare", sides / "before-*", sides / "slower-*")
    assert (code, err) == (1, "")
    assert out.splitlines()[-1] == "REGRESSION"


def test_no_regression_is_exit_code_0(run: Run, sides: Path) -> None:
    code, out, _ = run("compare", sides / "before-*", sides / "same-*")
    assert code == 0
    assert out.splitlines()[-1] == "NO REGRESSION"


def test_single_runs_are_shown_but_are_no_pass(run: Run, sides: Path) -> None:
    code, out, _ = run("compare", sides / "before-0", sides / "slower-0")
    assert code == 3
    assert out.splitlines()[-1] == "TOO FEW RUNS"
    assert "-10.0 %" in out


@pytest.mark.parametrize(("output", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_a_comparison_for_programs(
    run: Run, sides: Path, output: str, parse: Callable[[str], dict[str, object]]
) -> None:
    code, out, _ = run("compare", sides / "before-*", sides / "slower-*", "-o", output)
    document = parse(out)
    assert (code, document["outcome"]) == (1, "regression")
    assert document["baseline"] == [f"before-{number}" for number in range(5)]


def test_a_comparison_is_saved_with_its_page(run: Run, sides: Path, tmp_path: Path) -> None:
    run("compare", sides / "before-*", sides / "slower-*", "--save", tmp_path / "out/deep")
    assert json.loads((tmp_path / "out/deep/comparison.json").read_text())["outcome"] == "regression"
    assert "regression" in (tmp_path / "out/deep/comparison.html").read_text()


def test_other_fingerprints_are_exit_code_3_unless_allowed(run: Run, sides: Path) -> None:
    facts = {"kubernetes.kube-apiserver": "v1.38.0", "gates.DRADeviceTaints": True}
    for number in range(5):
        write(sides, f"newer-{number}", 20.0 + number / 10, 3 * number + 2.5, facts=facts)
    refused = run("compare", sides / "before-*", sides / "newer-*", "--allow", "kubernetes")
    assert refused == (
        3,
        "",
        "error: the fingerprints differ: gates.DRADeviceTaints: None, True; "
        "--allow gates.DRADeviceTaints if that is meant\n",
    )
    code, out, _ = run("compare", sides / "before-*", sides / "newer-*", "--allow", "kubernetes,gates")
    assert code == 0
    assert "meant to differ: kubernetes.kube-apiserver: v1.37.2, v1.38.0" in out


@pytest.mark.parametrize("command", ["load", "compare"])
def test_both_explain_themselves(run: Run, command: str) -> None:
    code, out, err = run(command, "--help")
    assert (code, err) == (0, "")
    assert f"{command} [OPTIONS]" in out


@pytest.mark.parametrize("place", ["nowhere", "no-*"])
def test_no_runs_are_exit_code_2(run: Run, sides: Path, place: str) -> None:
    code, out, err = run("compare", sides / "before-*", sides / place)
    assert (code, out) == (2, "")
    assert err == f"error: {sides / place}: no load run there; expected folders with a load.json\n"


def test_a_report_is_made_again_from_the_result(run: Run, sides: Path) -> None:
    folder = sides / "before-0"
    code, out, err = run("report", folder)
    assert (code, err) == (0, "")
    assert out.split() == [str(folder / "junit.xml"), str(folder / "report.html")]


class Recorded:
    """Stands in for the runner, which needs a cluster: what is asked of it is what is tested here."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.request: LoadRequest | None = None
        self.described = ""
        self.crew: tuple[Bind, int] | None = None

    def __call__(
        self,
        request: LoadRequest,
        provider: ClusterProvider,
        listener: Listener,
        *,
        describe: Callable[[str], object],
        crew: Reception | None,
    ) -> LoadResult:
        self.request = request
        self.crew = (crew.bind, crew.expected) if crew else None
        self.described = str(describe("APF-01"))
        result = load_result(request.run_dir.name, verdict=self.verdict)
        request.run_dir.mkdir(parents=True)
        listener.said("a phase")
        result.write(request.run_dir)
        return result


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_load_run_ends_in_its_verdict_with_all_reports(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verdict: Verdict
) -> None:
    monkeypatch.setattr("load.runner.run", Recorded(verdict))
    code, out, err = run("load", "template-churn", "--run-id", "mine")
    assert (code, err) == ({"PASS": 0, "FAIL": 1, "INVALID": 3}[verdict], "a phase\n")
    assert out.splitlines()[-1].startswith(f"{verdict} template-churn S")
    made = {path.name for path in (tmp_path / "results/mine").iterdir()}
    assert made == {"load.json", "junit.xml", "report.html"}


def test_every_option_reaches_the_runner(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recorded = Recorded(Verdict.PASS)
    monkeypatch.setattr("load.runner.run", recorded)
    options = (
        "--size M --limits default --keep --kubernetes v1.36.3 --gates alpha --nodes 3 "
        "--simulated-nodes 50 --seconds 12.5 --rate 7 --arm a --arm b --processes 2 --web 8089 --seed 42 "
        "--run-id x"
    )
    run("load", "apf-starve", *options.split())
    asked = recorded.request
    assert asked
    assert (asked.profile, asked.size, asked.limits) == ("apf-starve", Size.M, LimitSet.DEFAULT)
    assert (asked.cluster, asked.keep, asked.nodes, asked.simulated_nodes) == (None, True, 3, 50)
    assert (asked.seconds, asked.rate, asked.arms) == (12.5, 7.0, ("a", "b"))
    assert (asked.processes, asked.web, asked.seed) == (2, 8089, 42)
    assert asked.run_dir == tmp_path / "results/x"
    assert (asked.spec.kubernetes, asked.spec.profile, asked.spec.ephemeral) == ("v1.36.3", "alpha", False)
    assert asked.command[:3] == ("dra-harness", "load", "apf-starve")
    assert "APF-01" in recorded.described


def test_a_cluster_that_is_named_reaches_the_runner(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(Verdict.PASS)
    monkeypatch.setattr("load.runner.run", recorded)
    monkeypatch.setattr("clusters.providers.having", lambda _: LocalProvider(BuildSource()))
    run("load", "ext-churn", "--cluster", "c", "--keep")
    assert recorded.request
    assert (recorded.request.cluster, recorded.request.keep) == ("c", True)


def test_what_is_not_asked_for_is_the_profiles_to_say(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(Verdict.PASS)
    monkeypatch.setattr("load.runner.run", recorded)
    run("load", "template-churn")
    asked = recorded.request
    assert asked
    assert (asked.size, asked.limits, asked.cluster, asked.nodes, asked.rate) == (
        Size.S,
        None,
        None,
        None,
        None,
    )
    assert (asked.processes, asked.web, asked.arms, asked.spec.ephemeral) == (1, None, (), True)


def test_a_refused_request_makes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> Cluster:
        raise UsageError("profile.yaml: rate: expected more than 0")

    monkeypatch.setattr("load.runner.run", refuse)
    assert run("load", "profile.yaml") == (2, "", "error: profile.yaml: rate: expected more than 0\n")
    assert not (tmp_path / "results").exists()


def test_a_taken_run_id_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "results/mine").mkdir(parents=True)
    code, _, err = run("load", "template-churn", "--run-id", "mine")
    assert (code, err) == (2, f"error: --run-id mine: {tmp_path}/results/mine exists\n")


@pytest.mark.parametrize(
    "arguments",
    [
        "load",
        "load x --size L",
        "load x --limits none",
        "load x --processes 0",
        "load x --web 0",
        "load x --seconds 0",
        "compare a",
        "compare a b c",
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, tmp_path: Path, arguments: str) -> None:
    code, _, err = run(*arguments.split())
    assert code == 2
    assert "Usage" in err
    assert not (tmp_path / "results").exists()


def test_workers_are_awaited_where_the_user_says(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorded = Recorded(Verdict.PASS)
    monkeypatch.setattr("load.runner.run", recorded)
    port, key = two_free_ports(), tmp_path / "key"
    options = f"--expect-workers 3 --workers-wait 7 --bind-port {port} --key {key}"

    code, _, err = run("load", "ext-churn", *options.split())

    assert code == 0
    assert recorded.request is not None
    assert (recorded.request.processes, recorded.request.workers_wait) == (3, 7)
    assert recorded.crew == (Bind("127.0.0.1", port), 3)
    assert f"workers: dra-harness load-worker --master 127.0.0.1 --port {port} --key {key}\n" in err
    assert "open at" not in err
    assert key.read_text().strip() not in err


def test_another_address_than_loopback_is_warned_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(load_worker, "Reception", lambda *_: None)  # nothing is to listen there
    said: list[str] = []

    load_worker.reception(1, "0.0.0.0", 5557, tmp_path / "key", said.append)

    start, warning = said
    assert start.startswith("workers: dra-harness load-worker --master THIS-MACHINE --port 5557 --key ")
    assert warning.startswith("ports 5557 and 5558 are open at 0.0.0.0: Locust's own traffic has neither")


def test_workers_and_processes_are_one_too_many(run: Run, tmp_path: Path) -> None:
    code, out, err = run("load", "ext-churn", "--expect-workers", "2", "--processes", "2")

    assert (code, out) == (2, "")
    assert err == "error: --processes with --expect-workers: expected one of them; workers run elsewhere\n"
    assert not (tmp_path / "results").exists()


def test_a_worker_without_a_key_is_told_where_to_get_it(run: Run, tmp_path: Path) -> None:
    code, out, err = run("load-worker", "--master", "192.0.2.1", "--wait", "1")

    assert (code, out) == (2, "")
    assert err == (
        f"error: --key {tmp_path / 'state' / 'load-workers.key'}: No such file or directory; "
        "copy it from where `load` runs\n"
    )


def test_a_web_port_that_is_taken_is_known_before_anything_is_made(run: Run, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, out, err = run("load", "ext-churn", "--web", str(port))

    assert (code, out, err) == (2, "", f"error: --web {port}: Address already in use\n")
    assert not (tmp_path / "results").exists()
