from __future__ import annotations

from clusters.ready import _durations


def test_phases_become_durations() -> None:
    assert _durations({"a": 1.5, "b": 4.0, "c": 4.25}) == {"a": 1.5, "b": 2.5, "c": 0.25}
    assert _durations({}) == {}
