"""Something that is done again and again beside something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def regularly(name: str, seconds: float, work: Callable[[], bool]) -> Iterator[None]:
    """Do `work` every so many seconds, in a thread, until it says False or the block ends.

    Args:
        name: of the thread.
        seconds: between two times, and before the first one.
        work: says whether to go on; what is under way when the block ends is waited for.
    """
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds) and work():
            pass

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
