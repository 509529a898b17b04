"""What a worker gets for one trial: its orders, and the credentials of the generator's two users."""

from __future__ import annotations

import base64
from pathlib import Path

import pydantic
import yaml

from harness.errors import UsageError
from harness.files import write_atomically
from load.model import Orders

_ORDERS = "orders.json"
_SENDER = "sender.kubeconfig"
_OBSERVER = "observer.kubeconfig"


class Parcel(pydantic.BaseModel):
    """All that a worker needs for one trial. Nothing in it gives the rights of the set-up or of an admin."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    trial: str
    orders: Orders
    sender: str = pydantic.Field(repr=False)
    """Kubeconfig of the generator's user: pods of the run's namespaces, and nothing else."""
    observer: str = pydantic.Field(repr=False)
    """Kubeconfig of the user of its watches, who may only read."""

    @classmethod
    def of(cls, trial: str, orders: Orders) -> Parcel:
        """The parcel of a trial, with the kubeconfigs that its orders name."""
        return cls(
            trial=trial,
            orders=orders,
            sender=_portable(orders.sender_kubeconfig),
            observer=_portable(orders.observer_kubeconfig),
        )

    def unpack(self, folder: Path) -> Path:
        """Write its files, 0600 each, into a folder of the caller's; returns the orders' path."""
        write_atomically(folder / _SENDER, self.sender)
        write_atomically(folder / _OBSERVER, self.observer)
        credentials = {"sender_kubeconfig": Path(_SENDER), "observer_kubeconfig": Path(_OBSERVER)}
        path = folder / _ORDERS
        write_atomically(path, self.orders.model_copy(update=credentials).model_dump_json())
        return path


def _portable(kubeconfig: Path) -> str:
    """A kubeconfig's text with the files that it names in it."""
    try:
        config = yaml.safe_load(kubeconfig.read_text())
        for entry, kind in ((config["clusters"], "cluster"), (config["users"], "user")):
            for each in entry:
                each[kind] = _embedded(each[kind], kubeconfig.parent)
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        raise UsageError(f"{kubeconfig}: can't be given to workers: {error}") from error
    return yaml.safe_dump(config, sort_keys=False)


def _embedded(section: dict[str, str], folder: Path) -> dict[str, str]:
    made = dict(section)
    for key in ("certificate-authority", "client-certificate", "client-key"):
        if path := made.pop(key, None):
            made.setdefault(f"{key}-data", base64.b64encode((folder / path).read_bytes()).decode())
    return made
