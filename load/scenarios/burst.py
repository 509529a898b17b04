"""A burst: is there one claim for each reference of a pod, and does its status name it once and for all?"""

from __future__ import annotations

import json
import threading
from typing import Literal

from harness.kube import PODS, Object
from load.profiles.trial import Trial
from load.scenarios.follow import Follower
from load.scenarios.interface import Clock, Done, Findings, Scenario, ScenarioSpec
from load.scenarios.quiet import BaseScenario
from load.scenarios.readings import accepted, figure


class BurstWatch(ScenarioSpec):
    """Counts claims and changes of pods' claim statuses."""

    kind: Literal["burst"]

    def make(self) -> Scenario:
        """One run's."""
        return _BurstWatching()


class Flaps:
    """Counts pods whose status named claims and then named others, or none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._named: dict[str, str] = {}
        self.flaps = 0

    def handle(self, kind: str, obj: Object, at: float) -> None:
        """One watch event of a pod."""
        uid = obj["metadata"]["uid"]
        status = obj.get("status", {})
        named = [
            (entry["name"], entry.get("resourceClaimName"))
            for entry in status.get("resourceClaimStatuses", ())
        ]
        special = status.get("extendedResourceClaimStatus", {}).get("resourceClaimName")
        said = json.dumps([sorted(named), special]) if named or special else ""
        with self._lock:
            if kind == "DELETED":
                self._named.pop(uid, None)
                return
            before = self._named.get(uid, "")
            self.flaps += bool(before) and said != before
            if said:
                self._named[uid] = said


class _BurstWatching(BaseScenario):
    def __init__(self) -> None:
        self._flaps = Flaps()
        self._follower: Follower | None = None

    def before(self, trial: Trial) -> None:
        self._flaps = Flaps()
        namespaces = self.ground.namespaces.values()
        self._follower = Follower(self.ground.observer, PODS, list(namespaces), self._flaps.handle)
        self._follower.start()

    def act(self, trial: Trial, clock: Clock) -> None:
        """Nothing to do: the follower counts."""

    def judge(self, done: Done) -> Findings:
        assert self._follower is not None, "before() comes before judge()"
        self._follower.stop()
        report = done.report
        per_pod = {shape.claims_per_pod for shape in done.trial.pods}
        findings = Findings()
        findings.figures["status-flaps"] = figure(self._flaps.flaps)
        findings.figures["claims-seen"] = figure(report.claims_seen)
        if len(per_pod) == 1:
            wanted = accepted(report) * per_pod.pop()
            findings.figures["claims-missing"] = figure(wanted - report.claims_seen)
            findings.figures["claims-off"] = figure(abs(wanted - report.claims_seen))
        if self._follower.cuts:
            findings.faults.append(f"changes of a status may have been missed: {self._follower.cuts[0]}")
        return findings

    def clean(self) -> None:
        if self._follower:
            self._follower.stop()
