from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from clusters.interface import Profile
from clusters.local.state import ClusterState, tidy
from clusters.records import is_of, new_id
from harness.errors import UsageError


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def of(name: str, **more: object) -> ClusterState:
    values = {"id": "0a1b2c", "kubernetes": "v1.37.2", "profile": Profile.GA, "nodes": ("node-1",), "slot": 3}
    return ClusterState.model_validate({**values, "name": name, **more})


def test_what_is_saved_is_loaded(root: Path) -> None:
    saved = of("c", ready=True, kept=True, driver="d", seconds=9.5, phases={"a": 1.5})
    saved.save()
    assert ClusterState.load("c") == saved
    assert (root / "clusters" / "c" / "cluster.json").stat().st_mode & 0o777 == 0o600
    assert root.joinpath("clusters", "c").stat().st_mode & 0o777 == 0o700


def test_all_clusters_come_by_name(root: Path) -> None:
    assert ClusterState.every() == []
    for name in ("b", "a"):
        of(name).save()
    (root / "clusters" / "half").mkdir()
    assert [each.name for each in ClusterState.every()] == ["a", "b"]


def test_an_unknown_name_lists_those_that_are_there(root: Path) -> None:
    with pytest.raises(UsageError) as raised:
        ClusterState.load("x")
    assert str(raised.value) == "no local cluster is named 'x'; there are: none"
    of("a").save()
    of("b").save()
    with pytest.raises(UsageError, match=r"there are: a, b$"):
        ClusterState.load("x")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"slot": "many"}, "slot: Input should be a valid integer"),
        ({"profile": "beta"}, "profile: Input should be 'ga' or 'alpha'"),
        ({"id": None}, "id: Input should be a valid string"),
    ],
)
def test_a_corrupt_state_file_is_named_with_its_key(
    root: Path, change: dict[str, object], complaint: str
) -> None:
    of("c").save()
    path = root / "clusters" / "c" / "cluster.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UsageError) as raised:
        ClusterState.load("c")
    assert str(raised.value).startswith(f"{path}: {complaint}")


def test_a_key_of_a_later_harness_is_ignored(root: Path) -> None:
    of("c", gates={"DRAFoo": True}).save()
    path = root / "clusters" / "c" / "cluster.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "colour": "red"}))
    assert ClusterState.load("c") == of("c", gates={"DRAFoo": True})
    assert ClusterState.every() == [of("c", gates={"DRAFoo": True})]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_a_state_file_that_is_no_json_is_named(root: Path, content: bytes) -> None:
    of("c").save()
    path = root / "clusters" / "c" / "cluster.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        ClusterState.load("c")
    assert str(raised.value).startswith(f"{path}: the file: Invalid JSON")


def test_what_can_not_be_read_does_not_keep_the_others_from_being_listed(root: Path) -> None:
    for name in ("a", "b", "c"):
        of(name).save()
    (root / "clusters" / "a" / "cluster.json").write_text("{")
    path = root / "clusters" / "b" / "cluster.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "slot": "many"}))
    assert ClusterState.every() == [of("c")]
    with pytest.raises(UsageError, match=r"there are: c$"):
        ClusterState.load("x")


def test_a_cluster_that_goes_while_all_are_read_is_left_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of("a").save()
    of("b").save()
    read_bytes = Path.read_bytes

    def and_b_goes(path: Path) -> bytes:
        (root / "clusters" / "b" / "cluster.json").unlink(missing_ok=True)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", and_b_goes)
    assert [each.name for each in ClusterState.every()] == ["a"]


def test_the_handle_of_a_cluster(root: Path) -> None:
    handle = of("c", nodes=("node-1", "node-2"), seconds=2.5).cluster()
    directory = root / "clusters" / "c"
    assert (handle.name, handle.provider, handle.id, handle.seconds) == ("c", "local", "0a1b2c", 2.5)
    assert handle.directory == directory
    assert handle.kubeconfig == directory / "admin.kubeconfig"
    assert handle.driver_kubeconfig == directory / "driver-client.kubeconfig"
    node = handle.nodes[1]
    assert node.name == "node-2"
    assert node.kubelet_dir == directory / "node-2" / "lib" / "kubelet"
    assert node.kubelet_dir_in_node == "/var/lib/kubelet"
    assert node.cdi_dir == directory / "node-2" / "cdi"


def test_marks_are_six_hex_digits_and_differ() -> None:
    made = {new_id() for _ in range(50)}
    assert len(made) == 50
    assert all(len(each) == 6 and int(each, 16) >= 0 for each in made)


def test_removing_takes_the_state_file_last(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = of("c")
    saved.save()
    (saved.directory / "node-1" / "run").mkdir(parents=True)
    (saved.directory / "admin.kubeconfig").write_text("x")
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (saved.directory / "link").symlink_to(outside)
    left: list[list[str]] = []
    rmtree = shutil.rmtree

    def watched(path: Path) -> None:
        left.append(sorted(each.name for each in saved.directory.iterdir()))
        rmtree(path)

    monkeypatch.setattr(shutil, "rmtree", watched)
    saved.remove()
    assert left[-1] == ["cluster.json"]
    assert not saved.directory.exists()
    assert (outside / "kept").exists()


def test_a_cluster_of_the_same_name_and_another_id_is_left_alone(root: Path) -> None:
    of("c", id="ffffff").save()
    (root / "clusters" / "c" / "admin.kubeconfig").write_text("x")
    of("c").remove()
    assert ClusterState.load("c") == of("c", id="ffffff")
    assert (root / "clusters" / "c" / "admin.kubeconfig").exists()
    of("c", id="ffffff").remove()
    assert not (root / "clusters" / "c").exists()


def test_removing_what_is_gone_is_fine(root: Path) -> None:
    of("c").remove()
    assert not root.exists()


def test_tidying_removes_what_a_killed_harness_left(root: Path) -> None:
    of("a").save()
    (root / "clusters" / "empty").mkdir()
    (root / "clusters" / "first-step").mkdir()
    (root / "clusters" / "first-step" / "cluster.json.tmp").write_text("{")
    (root / "clusters" / "a" / "cluster.json.tmp").write_text("{")
    tidy()
    assert [path.name for path in (root / "clusters").iterdir()] == ["a"]
    assert {path.name for path in (root / "clusters" / "a").iterdir()} == {"cluster.json", "cluster.json.tmp"}
    of("a").remove()
    tidy()
    assert not root.exists()
    tidy()
    assert not root.exists()


def test_tidying_leaves_a_users_own_files(root: Path) -> None:
    """The state directory is wherever the user said, so anything may be in it."""
    outside = root.parent / "outside"
    outside.mkdir()
    files = [
        root / "notes.txt",
        root / "clusters" / "notes.txt",
        root / "clusters" / "photos" / "a.jpg",
        root / "clusters" / "photos" / "cluster.json.bak",
        root / "clusters" / "deep" / "er" / "b.jpg",
        outside / "c.jpg",
    ]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    (root / "clusters" / "link").symlink_to(outside)
    (root / "clusters" / "empty").mkdir()
    tidy()
    assert [file for file in files if not file.exists()] == []
    assert (root / "clusters" / "link" / "c.jpg").exists()
    assert not (root / "clusters" / "empty").exists()


def test_a_name_is_free_until_there_is_a_record_that_can_be_read_or_not(root: Path) -> None:
    ClusterState.require_free("c")
    of("c").save()
    with pytest.raises(UsageError, match=r"^a local cluster named 'c' exists; choose another name"):
        ClusterState.require_free("c")
    of("c").path.write_text("{")
    with pytest.raises(UsageError, match=r"c/cluster\.json: the file: Invalid JSON"):
        ClusterState.require_free("c")


def test_who_is_an_orphan_is_decided_by_the_record_as_it_is_now(root: Path) -> None:
    """One that was listed may have become a cluster that stays, and its maker have ended, since then."""
    seen = of("c")
    for now, expected in ((seen, True), (of("c", kept=True), False), (of("c", id="ffffff"), False)):
        now.save()
        with seen.orphaned() as orphaned:
            assert orphaned is expected
    of("c").save()
    with seen.maker_lock(), seen.orphaned() as orphaned:
        assert not orphaned


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"id": "0a1b2c"}', True),
        ('{"id": "ffffff"}', False),
        (None, False),
        ("{", True),
        ("[]", True),
        ("{}", True),
    ],
)
def test_a_file_that_can_not_be_read_may_be_the_record(
    tmp_path: Path, content: str | None, expected: bool
) -> None:
    path = tmp_path / "cluster.json"
    if content is not None:
        path.write_text(content)
    assert is_of(path, "0a1b2c") is expected
    assert not is_of(path / "below", "0a1b2c")
