"""The chart for load from pods, as the real Helm renders it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from cli.main import app
from clusters import driver_chart
from load.profiles.loader import find_profile
from load.request import LimitSet

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]  # Helm may have to be built

CHART = Path(__file__).parents[2] / "load" / "deploy" / "chart"
Objects = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def helm() -> Path:
    return driver_chart.helm()


def template(helm: Path, **values: Any) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [helm, "template", "churn", CHART, "--namespace", "dra-load", "--values", "-"]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)


def render(helm: Path, **values: Any) -> Objects:
    done = template(helm, **values)
    assert done.returncode == 0, done.stderr
    documents = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def pod(objects: Objects, component: str) -> dict[str, Any]:
    spec: dict[str, Any] = objects["Job", f"churn-{component}"]["spec"]["template"]["spec"]
    return spec


def arguments(objects: Objects, component: str) -> list[str]:
    given: list[str] = pod(objects, component)["containers"][0]["args"]
    return given


def test_helm_finds_nothing_to_complain_about(helm: Path) -> None:
    done = subprocess.run([helm, "lint", "--strict", CHART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("component", ["master", "worker"])
def test_pods_have_no_privilege_and_no_token(helm: Path, component: str) -> None:
    spec = pod(render(helm), component)

    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"]["limits"].keys() == {"memory"}, "a worker that is throttled sends late"


def test_workers_have_the_key_and_no_credentials_of_the_cluster(helm: Path) -> None:
    rendered = render(helm)
    secrets = {
        component: {
            volume["secret"]["secretName"]
            for volume in pod(rendered, component)["volumes"]
            if "secret" in volume
        }
        for component in ("master", "worker")
    }
    assert secrets == {"master": {"dra-load-key", "dra-load-cluster"}, "worker": {"dra-load-key"}}
    assert not any(kind == "Secret" for kind, _ in rendered)


def test_only_workers_reach_the_master_and_nobody_the_workers(helm: Path) -> None:
    rendered = render(helm)
    labels = rendered["Job", "churn-worker"]["spec"]["template"]["metadata"]["labels"]
    rules = rendered["NetworkPolicy", "churn-master"]["spec"]["ingress"]

    assert rendered["NetworkPolicy", "churn-worker"]["spec"]["ingress"] == []
    ((rule),) = rules
    ((peer),) = rule["from"]
    wanted = peer["podSelector"]["matchLabels"]
    assert wanted.items() <= labels.items()
    assert wanted["app.kubernetes.io/component"] == "worker"
    ports = pod(rendered, "master")["containers"][0]["ports"]
    assert {port["port"] for port in rule["ports"]} == {port["name"] for port in ports}


def test_master_and_workers_agree_on_ports_number_and_address(helm: Path) -> None:
    rendered = render(helm, workers=3, port=6000)
    master, worker = arguments(rendered, "master"), arguments(rendered, "worker")
    service = rendered["Service", "churn-master"]

    assert {"--expect-workers=3", "--bind-port=6000", "--bind=$(POD_IP)"} <= set(master)
    assert {"--master=churn-master", "--port=6000"} <= set(worker)
    assert [port["port"] for port in service["spec"]["ports"]] == [6000, 6001]
    job = rendered["Job", "churn-worker"]["spec"]
    assert (job["parallelism"], job["completions"]) == (3, 3)
    selector = service["spec"]["selector"]
    assert (
        selector.items() <= rendered["Job", "churn-master"]["spec"]["template"]["metadata"]["labels"].items()
    )


@pytest.mark.parametrize("component", ["master", "worker"])
def test_the_program_has_every_option_that_it_is_given(helm: Path, component: str) -> None:
    name, *rest = arguments(render(helm, web=True, options=["--seconds=30"]), component)
    program = get_command(app)
    assert isinstance(program, TyperGroup)
    known = {option for parameter in program.commands[name].params for option in parameter.opts}

    given = {word.partition("=")[0] for word in rest if word.startswith("-")}

    assert given
    assert given <= known


@pytest.mark.parametrize("options", [[], ["--size=M"]])
def test_its_own_values_ask_for_limits_that_nobody_has_to_set(helm: Path, options: list[str]) -> None:
    """Components of the cluster under test can't be restarted from there; the profile would be `open`."""
    own = yaml.safe_load((CHART / "values.yaml").read_text())
    assert find_profile(own["profile"]).limits is not LimitSet.DEFAULT

    assert "--limits=default" in arguments(render(helm, options=options), "master")
    assert "--limits=tuned" in arguments(render(helm, options=options, limits="tuned"), "master")


def test_further_ways_out_close_all_others(helm: Path) -> None:
    server = {"to": [{"ipBlock": {"cidr": "192.0.2.10/32"}}], "ports": [{"port": 6443}]}
    rendered = render(helm, networkPolicy={"egress": [server]})

    for component in ("master", "worker"):
        spec = rendered["NetworkPolicy", f"churn-{component}"]["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert server in spec["egress"]


@pytest.mark.parametrize(
    ("values", "words"),
    [({"workers": 0}, "workers"), ({"worker": {"x": 1}}, "x"), ({"y": 1}, "y"), ({"limits": "x"}, "limits")],
)
def test_a_value_that_cannot_be_is_named(helm: Path, values: dict[str, Any], words: str) -> None:
    done = template(helm, **values)

    assert done.returncode != 0
    assert re.search(rf"\b{words}\b", done.stderr)
