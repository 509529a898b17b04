"""Where the harness keeps things; each place can be moved by an environment variable."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

APP = "dra-harness"


def state_root() -> Path:
    """Clusters that are up: `DRA_HARNESS_STATE`, else the user's state directory."""
    return Path(os.environ.get("DRA_HARNESS_STATE") or platformdirs.user_state_path(APP)).absolute()


def cache_root() -> Path:
    """Built components: `DRA_HARNESS_CACHE`, else the user's cache directory."""
    return Path(os.environ.get("DRA_HARNESS_CACHE") or platformdirs.user_cache_path(APP)).absolute()


def machine_root() -> Path:
    """What clusters of all users of the machine share: `DRA_HARNESS_MACHINE`, else a folder below /run."""
    return Path(os.environ.get("DRA_HARNESS_MACHINE") or f"/run/{APP}").absolute()


def results_root() -> Path:
    """Results of runs: `DRA_HARNESS_RESULTS`, else `results/` where the command is run."""
    return Path(os.environ.get("DRA_HARNESS_RESULTS") or "results").absolute()


def download_url() -> str:
    """Server of released programs: `DRA_HARNESS_DOWNLOAD_URL`, else Kubernetes' own."""
    return os.environ.get("DRA_HARNESS_DOWNLOAD_URL") or "https://dl.k8s.io"


def component_source() -> str:
    """Where Kubernetes' programs come from unless the command says: `DRA_HARNESS_SOURCE`, else `auto`."""
    return os.environ.get("DRA_HARNESS_SOURCE") or "auto"


def pod_image() -> str:
    """Image of the pods of checks and loads: `DRA_HARNESS_POD_IMAGE`; empty for what our own nodes have."""
    return os.environ.get("DRA_HARNESS_POD_IMAGE") or ""
