"""Logs of static pods, from the files that the kubelet writes."""

from __future__ import annotations

import os

from clusters.kind import logs
from tests.clusters.kind.conftest import MakeState


def test_all_containers_of_a_static_pod_oldest_first_without_cri_marks(make_state: MakeState) -> None:
    state = make_state()
    pod = f"kube-system_kube-scheduler-{state.control_plane}"
    for age, folder, text in ((2, "aa", "first"), (1, "bb", "second")):
        path = state.directory / "pod-logs" / f"{pod}_{folder}" / "kube-scheduler" / "0.log"
        path.parent.mkdir(parents=True)
        path.write_text(f"2026-01-01T00:00:00.1Z stderr F {text} line\n")
        os.utime(path, (1000 - age, 1000 - age))
    other = state.directory / "pod-logs" / f"kube-system_etcd-{state.control_plane}_cc" / "etcd" / "0.log"
    other.parent.mkdir(parents=True)
    other.write_text("2026-01-01T00:00:00.1Z stderr F other\n")

    assert logs.write(state, "kube-scheduler").read_text() == "first line\nsecond line\n"


def test_a_log_that_goes_while_it_is_read_is_left_out(make_state: MakeState) -> None:
    state = make_state()
    folder = state.directory / "pod-logs" / f"kube-system_etcd-{state.control_plane}_aa" / "etcd"
    folder.mkdir(parents=True)
    (folder / "0.log").symlink_to("removed")
    (folder / "1.log").write_text("2026-01-01T00:00:00.1Z stderr F left\n")

    assert logs.write(state, "etcd").read_text() == "left\n"
