from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from load.generator.arguments import locust_arguments
from load.generator.orders import read_orders
from tests.load.generator.running import orders


def written(folder: Path, **changed: Any) -> Path:
    path = folder / "orders.json"
    content = json.loads(orders(folder, "http://127.0.0.1:1").model_dump_json())
    path.write_text(json.dumps(content | changed))
    return path


def test_kubeconfigs_lie_beside_the_orders(tmp_path: Path) -> None:
    read = read_orders(written(tmp_path, observer_kubeconfig="/elsewhere/kubeconfig"))

    assert read.sender_kubeconfig == tmp_path / "kubeconfig"
    assert read.observer_kubeconfig == Path("/elsewhere/kubeconfig")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": "x"}, "seed: Input should be a valid integer"),
        ({"speed": 1}, "speed: Extra inputs are not permitted"),
        ({"kinds": []}, "kinds: List should have at least 1 item"),
        ({"segments": [{"seconds": 0, "start": 1, "end": 1}]}, "segments.0.seconds: Input should be greater"),
        ({"segments": []}, "segments: expected at least one segment or burst"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    path = written(tmp_path, **changed)

    with pytest.raises(UsageError) as raised:
        read_orders(path)
    assert str(raised.value).startswith(f"{path}: {message}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_orders(tmp_path / "orders.json")


def test_it_runs_headless_unless_the_web_ui_is_wanted(tmp_path: Path) -> None:
    path = written(tmp_path)

    assert "--headless" in locust_arguments([str(path)])
    web = locust_arguments([str(path), "--web", "8089"])
    assert "--headless" not in web
    assert web[web.index("--web-host") + 1] == "127.0.0.1"
    assert web[web.index("--web-port") + 1] == "8089"


def test_workers_of_this_machine_meet_on_loopback(tmp_path: Path) -> None:
    line = locust_arguments([str(written(tmp_path)), "--processes", "2"])

    assert line[line.index("--master-bind-host") + 1] == "127.0.0.1"
    assert line[line.index("--master-bind-port") + 1] == line[line.index("--master-port") + 1]


def test_other_options_are_locusts(tmp_path: Path) -> None:
    line = locust_arguments([str(written(tmp_path)), "--worker", "--master-host", "192.0.2.1"])

    assert line[-3:] == ["--worker", "--master-host", "192.0.2.1"]
