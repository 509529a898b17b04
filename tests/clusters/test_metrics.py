"""Reading metrics of components, as far as that can be told without a cluster."""

from __future__ import annotations

from typing import cast

import pytest

from clusters import metrics
from clusters.metrics import Sample
from harness.errors import EnvironmentBlocked
from harness.kube import ApiError, KubeClient
from tests.support.api_server import serve
from tests.support.paper import paper_cluster

CLUSTER = paper_cluster()

SAMPLES = [
    Sample("a_total", {"result": "ok", "node": "1"}, 2.0),
    Sample("a_total", {"result": "ok", "node": "2"}, 3.0),
    Sample("a_total", {"result": "error", "node": "1"}, 5.0),
    Sample("b_total", {"result": "ok"}, 7.0),
    Sample("a_total_created", {"result": "ok"}, 1e9),
]


@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        (["a_total"], {}, 10.0),
        (["a_total"], {"result": "ok"}, 5.0),
        (["a_total"], {"result": "ok", "node": "2"}, 3.0),
        (["a_total", "b_total"], {"result": "ok"}, 12.0),
        (["a_total", "b_total"], {"node": "1"}, 7.0),
        (["a"], {}, 0.0),
        (["a_total"], {"result": "o"}, 0.0),
        (["a_total"], {"colour": "red"}, 0.0),
        ([], {}, 0.0),
    ],
)
def test_a_total_is_over_names_and_labels(names: list[str], labels: dict[str, str], expected: float) -> None:
    assert metrics.total(SAMPLES, *names, **labels) == expected


class Text:
    """A client of a cluster whose API server has some metrics."""

    def metrics(self) -> str:
        return (
            "# HELP a_total Things.\n# TYPE a_total counter\n"
            'a_total{result="ok",node="1"} 2\na_total{result="error"} 5e+00\n'
            "# TYPE b gauge\nb 0.5\n"
        )


def test_samples_have_names_labels_and_values() -> None:
    assert metrics.read(CLUSTER, cast("KubeClient", Text()), metrics.APISERVER) == [
        Sample("a_total", {"result": "ok", "node": "1"}, 2.0),
        Sample("a_total", {"result": "error"}, 5.0),
        Sample("b", {}, 0.5),
    ]


def test_only_samples_that_are_asked_for_are_read() -> None:
    client = cast("KubeClient", Text())
    assert metrics.read(CLUSTER, client, metrics.APISERVER, prefixes=["b", "c_"]) == [Sample("b", {}, 0.5)]


@pytest.mark.parametrize("status", [403, 503])
def test_a_refusal_is_no_metrics(status: int) -> None:
    """It would look like a component that has counted nothing."""
    with serve({"GET /metrics": status}) as address:
        cluster = paper_cluster(endpoints={metrics.SCHEDULER: address})
        with pytest.raises(ApiError) as raised:
            metrics.read(cluster, cast("KubeClient", Text()), metrics.SCHEDULER)
    assert raised.value.status == status
    with serve({"GET /metrics": "a_total 1\n"}) as address:
        cluster = paper_cluster(endpoints={metrics.SCHEDULER: address})
        assert metrics.read(cluster, cast("KubeClient", Text()), metrics.SCHEDULER) == [
            Sample("a_total", {}, 1.0)
        ]


def test_metrics_that_nobody_serves_block() -> None:
    with pytest.raises(EnvironmentBlocked) as raised:
        metrics.read(CLUSTER, cast("KubeClient", Text()), metrics.SCHEDULER)
    assert str(raised.value) == "the cluster doesn't say where kube-scheduler serves its metrics"
