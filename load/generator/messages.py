"""What master and workers say to each other, over Locust's custom messages; in one process it is the same.

The order of things: each worker says JOIN until the master answers with ASSIGN or REFUSED; once all are
there the master sends ASSIGN, each answers READY once it is prepared, the master sends GO with the moment of
the start, workers send SNAPSHOT each second and REPORT at their end. STOP from the master ends the arrivals.
Moments in a message are on the worker's clock unless it says otherwise; the master knows the difference.
"""

from __future__ import annotations

import enum


class Topic(enum.StrEnum):
    """Names of the custom messages; their data is a dict of plain JSON values."""

    JOIN = "dra-join"
    """`name`, `version`, `orders`: what `roster.credentials` says."""
    REFUSED = "dra-refused"
    """`reason`: the worker is not wanted, and ends."""
    ASSIGN = "dra-assign"
    """`index`, `count`: which of how many workers the receiver is; `asked_at`: the master's clock."""
    READY = "dra-ready"
    """`error`: why the worker can't take part, or empty; `blocked`: whether that is no error of ours;
    `asked_at` as it came; `received_at`: when the assignment came; `replied_at`: when this was sent."""
    GO = "dra-go"
    """`started_at`: when the load starts."""
    SNAPSHOT = "dra-snapshot"
    """`json`: a Snapshot."""
    REPORT = "dra-report"
    """`json`: a WorkerReport; or `error`, where it came to none."""
    STOP = "dra-stop"
    """No data."""
