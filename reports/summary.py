"""`run.json`: one object that programs read, with the checksums of everything beside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from harness import events
from reports.interface import Reporter
from reports.run import Cluster, Requirement, Run
from reports.text import VERDICTS, links

FILE_NAME = "run.json"
API_VERSION = "dra-harness/v1"


class SummaryReporter(Reporter):
    """The run as one typed, versioned object.

    Evidence stays in `events.ndjson`, one of the artifacts. Within an API version keys are only added.
    """

    def write(self, run: Run, run_dir: Path) -> list[Path]:
        """Write `run.json`, with the sha256 of every other regular file under `run_dir`."""
        path = run_dir / FILE_NAME
        document = {**describe(run), "artifacts": _checksums(run_dir, leave_out=path)}
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        return [path]


def describe(run: Run) -> dict[str, Any]:
    """The run as JSON, without the artifacts."""
    started = run.started
    return {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "id": started.run_id,
        "startedAt": started.at.isoformat(),
        "finishedAt": run.finished.at.isoformat() if run.finished else None,
        "seconds": run.seconds,
        "verdict": {
            "result": VERDICTS[run.exit_code],
            "exitCode": run.exit_code.value,
            "reasons": run.reasons(),
        },
        "suite": {
            "version": started.suite_version,
            "commit": started.suite_commit,
            "dirty": started.suite_dirty,
            "catalogueDigest": started.catalogue_digest,
            "command": started.command,
            "seed": started.seed,
            "areas": started.areas,
        },
        "environment": {"clusters": [_cluster(cluster) for cluster in run.clusters]},
        "counts": {"requirements": dict(run.requirement_counts), "checks": dict(run.check_counts)},
        "requirements": [_requirement(item) for item in run.requirements],
        "checks": [_check(check) for check in run.checks],
        "unfinished": list(run.unfinished),
        "faults": [fault.message for fault in run.faults],
    }


def _cluster(cluster: Cluster) -> dict[str, Any]:
    ready = cluster.ready
    return {
        "name": ready.name,
        "provider": ready.provider,
        "kubernetes": ready.kubernetes,
        "profile": ready.profile,
        "nodes": ready.nodes,
        "driver": ready.driver,
        "programs": ready.programs,
        "upSeconds": ready.seconds,
        "phaseSeconds": ready.phases,
        "downSeconds": cluster.gone.seconds if cluster.gone else None,
    }


def _requirement(requirement: Requirement) -> dict[str, Any]:
    plan = requirement.plan
    return {
        "id": plan.requirement,
        "level": plan.level,
        "owner": plan.owner,
        "area": plan.area,
        "text": plan.text,
        "source": plan.source,
        "result": str(requirement.status),
        "reason": plan.reason,
        "seconds": requirement.seconds,
        "checks": list(dict.fromkeys([*plan.checks, *(check.check for check in requirement.checks)])),
    }


def _check(check: events.CheckFinished) -> dict[str, Any]:
    return {
        "id": check.check,
        "requirements": check.requirements,
        "result": str(check.result),
        "seconds": check.seconds,
        "message": check.message,
        "issues": links(check.message),
        "artifacts": check.artifacts,
    }


def _checksums(run_dir: Path, *, leave_out: Path) -> dict[str, str]:
    files = sorted(path for path in run_dir.rglob("*") if path.is_file() and not path.is_symlink())
    return {
        path.relative_to(run_dir).as_posix(): f"sha256:{_sha256(path)}" for path in files if path != leave_out
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
