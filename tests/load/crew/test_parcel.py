from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
import yaml

from harness.errors import UsageError
from load.crew.parcel import Parcel
from load.generator.orders import read_orders
from load.model import Orders
from tests.load.generator.running import kubeconfig, orders


@pytest.fixture
def ordered(tmp_path: Path) -> Orders:
    (tmp_path / "ca.pem").write_bytes(b"an authority")
    for name in ("sender", "observer"):
        kubeconfig(
            tmp_path,
            "https://192.0.2.1:6443",
            name=name,
            cluster={"certificate-authority": "ca.pem"},
            user={"token": f"token-of-{name}"},
        )
    made = orders(tmp_path, "http://127.0.0.1:1")
    return made.model_copy(
        update={"sender_kubeconfig": tmp_path / "sender", "observer_kubeconfig": tmp_path / "observer"}
    )


def test_a_parcel_needs_no_other_file_and_keeps_the_orders(ordered: Orders, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    sent = Parcel.of("01-main", ordered).model_dump_json()

    path = Parcel.model_validate_json(sent).unpack(there)

    unpacked = read_orders(path)
    assert unpacked.digest() == ordered.digest()
    assert {stat.S_IMODE(each.stat().st_mode) for each in there.iterdir()} == {0o600}
    config = yaml.safe_load(unpacked.sender_kubeconfig.read_text())
    (cluster,) = config["clusters"]
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"an authority"
    assert "certificate-authority" not in cluster["cluster"]
    assert config["users"][0]["user"] == {"token": "token-of-sender"}
    assert "token-of-observer" in unpacked.observer_kubeconfig.read_text()


def test_a_parcel_shows_no_token(ordered: Orders) -> None:
    assert "token-of" not in repr(Parcel.of("01-main", ordered))


def test_a_kubeconfig_that_is_not_there_is_named(ordered: Orders, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").unlink()

    with pytest.raises(UsageError, match=r"sender: can't be given to workers: .*ca\.pem"):
        Parcel.of("01-main", ordered)
