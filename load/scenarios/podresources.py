"""Asks a kubelet's pod resources API over and over: PRS-05."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from fake_driver.channels import unix_channel

_LIST = "/v1.PodResourcesLister/List"
_SOCKET = Path("pod-resources", "kubelet.sock")
_CALL_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
"""Between two calls; the kubelet takes 100 a second with a burst of 10: pkg/kubelet/apis/podresources."""


@dataclass
class Answers:
    """What became of the calls."""

    seconds: list[float] = field(default_factory=list)
    """Of those that succeeded."""
    failures: list[str] = field(default_factory=list)


class Prober(threading.Thread):
    """Calls `List` of one kubelet until it is told to stop; whatever is in the answer is not looked at.

    Args:
        kubelet_dir: the kubelet's folder, as it is on this machine.
    """

    def __init__(self, kubelet_dir: Path) -> None:
        super().__init__(name="pod-resources", daemon=True)
        self._socket = kubelet_dir / _SOCKET
        self._left = threading.Event()
        self.answers = Answers()

    def run(self) -> None:
        """Call."""
        with unix_channel(self._socket) as channel:
            ask: Any = channel.unary_unary(_LIST, bytes, bytes)
            while not self._left.wait(_PAUSE_SECONDS):
                began = time.perf_counter()
                try:
                    ask(b"", timeout=_CALL_SECONDS)
                except grpc.RpcError as error:
                    self.answers.failures.append(str(error))
                else:
                    self.answers.seconds.append(time.perf_counter() - began)

    def stop(self) -> Answers:
        """End, and say what became of the calls."""
        self._left.set()
        self.join(_CALL_SECONDS + 1)
        return self.answers
