"""Sums, means and quantiles of samples of metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence

from clusters import metrics
from clusters.metrics import Sample


def upper_edge(samples: Sequence[Sample], histogram: str, share: float, **labels: str) -> float | None:
    """The upper edge of the bucket that a quantile is in, over all series with the labels.

    None if there is nothing in the histogram, or if the quantile is beyond its last bucket.
    """
    at_most: dict[float, float] = {}
    for sample in samples:
        if sample.name == f"{histogram}_bucket" and labels.items() <= sample.labels.items():
            edge = float(sample.labels["le"])
            at_most[edge] = at_most.get(edge, 0.0) + sample.value
    wanted = share * at_most.get(math.inf, 0.0)
    if not wanted:
        return None
    edge = min(edge for edge, number in at_most.items() if number >= wanted)
    return None if math.isinf(edge) else edge


def count(samples: Sequence[Sample], *names: str, **labels: str) -> int:
    """The sum over all samples that have one of the names and all of the labels, as a whole number."""
    return round(metrics.total(samples, *names, **labels))


def mean(samples: Sequence[Sample], histogram: str, **labels: str) -> float | None:
    """The mean of a histogram over all series with the labels; None if there is nothing in it."""
    number = metrics.total(samples, f"{histogram}_count", **labels)
    return metrics.total(samples, f"{histogram}_sum", **labels) / number if number else None


def values(samples: Sequence[Sample], name: str, *labels: str) -> list[tuple[str, ...]]:
    """Every combination of values that some labels of a metric have, sorted."""
    return sorted(
        {tuple(sample.labels.get(label, "") for label in labels) for sample in samples if sample.name == name}
    )


def by(samples: Sequence[Sample], name: str, label: str) -> dict[str, int]:
    """The sum of a metric for each value of a label."""
    return {value: count(samples, name, **{label: value}) for (value,) in values(samples, name, label)}
