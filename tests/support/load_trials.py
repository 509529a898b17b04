"""Profiles' plans, trials, shapes of pods and claims, on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clusters.interface import ClusterSpec
from load.profiles.loader import find_profile
from load.profiles.plan import Plan, make_plan
from load.profiles.schema import PodShape, Via
from load.profiles.trial import Trial
from load.request import LoadRequest, Size

Object = dict[str, Any]


def plan(name: str, size: Size = Size.S, **asked: Any) -> Plan:
    request = LoadRequest(
        profile=name, run_dir=Path("none"), seed=1, spec=ClusterSpec(name="x"), size=size, **asked
    )
    return make_plan(find_profile(name), request)


def trial(*shapes: PodShape, rate: float = 10.0, hold: float = 2.0, seconds: float = 60.0) -> Trial:
    return Trial("main", shapes, rate=rate, warm_up=5.0, seconds=seconds, hold=hold, drain=60.0)


def shape(name: str, **fields: Any) -> PodShape:
    return PodShape.model_validate({"name": name, "via": Via.TEMPLATE, **fields})


def claim(uid: str, pool: str, *, tolerates: bool = False, device: str = "gpu-0") -> Object:
    exactly: Object = {"tolerations": [{"operator": "Exists"}]} if tolerates else {}
    results = [{"driver": "d", "pool": pool, "device": device}]
    return {
        "metadata": {"uid": uid, "name": uid, "namespace": "ns"},
        "spec": {"devices": {"requests": [{"name": "device", "exactly": exactly}]}},
        "status": {"allocation": {"devices": {"results": results}}},
    }
