"""Pinning of Kubernetes versions. `go` is a small executable that answers as the real one does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clusters.components import locations, lock
from clusters.components.toolchain import Toolchain
from harness.errors import HarnessError, UsageError

PUBLISHED = {
    "Go": "1.26.0",
    "GoDebug": [{"Key": "default", "Value": "go1.26"}],
    "Replace": [
        {"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
        {"Old": {"Path": "example.com/fork"}, "New": {"Path": "example.com/other", "Version": "v1.2.3"}},
        {"Old": {"Path": "k8s.io/kubelet"}, "New": {"Path": "./staging/src/k8s.io/kubelet"}},
    ],
}

EXPECTED = """\
module dra-harness.local/components/kubernetes

go 1.26.0

godebug default=go1.26

require k8s.io/kubernetes v1.38.0-rc.1

replace (
\tk8s.io/api => k8s.io/api v0.38.0-rc.1
\tk8s.io/kubelet => k8s.io/kubelet v0.38.0-rc.1
)

tool (
\tk8s.io/kubernetes/cmd/kube-apiserver
\tk8s.io/kubernetes/cmd/kube-controller-manager
\tk8s.io/kubernetes/cmd/kube-scheduler
\tk8s.io/kubernetes/cmd/kubelet
\tk8s.io/kubernetes/cmd/kubeadm
\tk8s.io/kubernetes/cmd/kubectl
\tk8s.io/kubernetes/cmd/kube-proxy
)
"""


def go_that(tmp_path: Path, script: str) -> Toolchain:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    return Toolchain(go, "1.26.8", "linux/amd64")


def test_go_mod_points_the_staging_modules_at_their_releases() -> None:
    assert lock.go_mod("v1.38.0-rc.1", PUBLISHED) == EXPECTED


def test_go_mod_without_godebug_has_no_such_line() -> None:
    old = {key: value for key, value in PUBLISHED.items() if key != "GoDebug"}
    assert lock.go_mod("v1.38.0-rc.1", old) == EXPECTED.replace("godebug default=go1.26\n\n", "")


@pytest.mark.parametrize(
    "version", ["v9.9.9", "1.37", "v1.37", "1.37.2", "", "latest", "v1.37.2-rc", "v1.37.2\n"]
)
def test_what_is_no_version_is_refused_with_what_versions_look_like(version: str) -> None:
    with pytest.raises(UsageError) as raised:
        lock.check(version)
    message = str(raised.value)
    assert message.startswith(f"Kubernetes version {version!r}: expected a version such as v1.37.2 or ")
    assert message.endswith("locked in this release: v1.36.3, v1.37.0, v1.37.2")


@pytest.mark.parametrize("version", ["v1.34.4", "v1.37.2", "v1.38.0-alpha.1", "v1.38.0-rc.0"])
def test_versions_are_accepted(version: str) -> None:
    lock.check(version)


def test_locked_versions_are_held_to_one_version_of_every_staging_module() -> None:
    for version in lock.locked():
        directory = lock.directory_of(version, Path("/nowhere"))
        text = (directory / "go.mod").read_text()
        replaced = dict(re.findall(r"^\t(k8s\.io/\S+) => \1 (\S+)$", text, re.MULTILINE))
        assert set(replaced.values()) == {version.replace("v1.", "v0.")}
        assert f"\tk8s.io/kubernetes {version} // indirect\n" in text
        checksums = (directory / "go.sum").read_text()
        assert re.search(rf"^k8s\.io/kubernetes {version} h1:\S+=$", checksums, re.MULTILINE)


def test_a_version_that_is_not_locked_here_is_kept_in_the_cache(tmp_path: Path) -> None:
    assert lock.directory_of("v1.35.1", tmp_path) == tmp_path / "modules" / "kubernetes" / "v1.35.1"
    assert lock.directory_of("v1.37.2", tmp_path) == locations.MODULES / "kubernetes" / "v1.37.2"


def test_published_reads_what_go_prints_after_its_own_remarks(tmp_path: Path) -> None:
    go = go_that(tmp_path, """echo 'go: finding' >&2; printf '{"Time": "%s"}' "$*" """)
    assert lock.published("v1.37.2", go) == {"Time": "list -m -json k8s.io/kubernetes@v1.37.2"}


def test_a_version_that_the_proxy_lacks_is_a_usage_error(tmp_path: Path) -> None:
    go = go_that(tmp_path, "echo 'go: k8s.io/kubernetes@v1.99.0: reading x: 404 Not Found' >&2; exit 1")
    with pytest.raises(
        UsageError, match=r"'v1\.99\.0': the Go module proxy does not have all of it"
    ) as raised:
        lock.published("v1.99.0", go)
    assert "v1.36.3, v1.37.0, v1.37.2" in str(raised.value)
    assert "404 Not Found" in str(raised.value)


def test_no_network_is_not_the_users_fault(tmp_path: Path) -> None:
    go = go_that(tmp_path, "echo 'go: Get x: dial tcp: lookup x: no such host' >&2; exit 1")
    with pytest.raises(HarnessError, match=r"Kubernetes v1\.35\.0: no network to download it") as raised:
        lock.published("v1.35.0", go)
    assert not isinstance(raised.value, UsageError)


def test_command_line_reports_a_bad_version_and_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert lock.main(["v9.9.9"]) == 2
    assert "Kubernetes version 'v9.9.9'" in capsys.readouterr().err
    assert not (locations.MODULES / "kubernetes" / "v9.9.9").exists()
