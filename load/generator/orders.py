"""Reads `orders.json`."""

from __future__ import annotations

from pathlib import Path

import pydantic

from harness.errors import UsageError
from load.model import Orders


def read_orders(path: Path) -> Orders:
    """The orders of a run; kubeconfigs with a relative path lie beside them.

    Raises:
        UsageError: the file can't be read, or a key is missing or has a value that can't be.
    """
    try:
        orders = Orders.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"{path}: {key}: {first['msg']}") from error
    if not orders.segments and not orders.bursts:
        raise UsageError(f"{path}: segments: expected at least one segment or burst")
    folder = path.resolve().parent
    return orders.model_copy(
        update={
            "sender_kubeconfig": folder / orders.sender_kubeconfig,
            "observer_kubeconfig": folder / orders.observer_kubeconfig,
        }
    )
