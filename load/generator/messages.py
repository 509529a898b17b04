"""What master and workers say to each other, over Locust's custom messages; in one process it is the same.

The order of things: the master sends ASSIGN to each worker, each answers READY once it is prepared, the
master sends GO with the moment of the start, workers send SNAPSHOT each second and REPORT at their end.
STOP from the master ends the arrivals.
"""

from __future__ import annotations

import enum


class Topic(enum.StrEnum):
    """Names of the custom messages; their data is a dict of plain JSON values."""

    ASSIGN = "dra-assign"
    """`index`, `count`: which of how many workers the receiver is."""
    READY = "dra-ready"
    """`error`: why the worker can't take part, or empty; `blocked`: whether that is no error of ours."""
    GO = "dra-go"
    """`started_at`: when the load starts; `sent_at`: the master's clock."""
    SNAPSHOT = "dra-snapshot"
    """`json`: a Snapshot."""
    REPORT = "dra-report"
    """`json`: a WorkerReport; or `error`, where it came to none."""
    STOP = "dra-stop"
    """No data."""
