"""A cluster of ours as a stranger sees it: a kubeconfig, the rights of `rbac`, other people's objects."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.components import BuildSource
from clusters.existing.presence import Presence, namespace_of
from clusters.interface import ClusterSpec, Profile, SilentProgress
from clusters.local.pki import CertificateAuthority
from clusters.local.provider import LocalProvider
from harness import events, journal
from harness.kube import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
    KubeClient,
    Object,
    Resource,
)
from harness.labels import RUN
from harness.waiting import NotYet, wait_until
from suites.naming import Names
from tests.support.commands import Command

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

_OF_KIND = {
    "ServiceAccount": SERVICE_ACCOUNTS,
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS,
}
_CONFIG_MAPS = Resource("v1", "configmaps", namespaced=True)
_NOISE = {"events", "leases", "componentstatuses"}
QUOTA_CHECK = "quota/test_claims.py::test_admin_access_is_charged"
UNCOUNTED_CHECK = "quota/test_claims.py::test_a_quota_is_counted_before_it_is_relied_on"


class Stranger:
    """Somebody's cluster: its admin's client, and kubeconfigs of users that were let in."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.admin = KubeClient.from_kubeconfig(kubeconfig)
        self._document: Any = yaml.safe_load(kubeconfig.read_text())
        self._folder = folder
        printed = [sys.executable, "-m", "cli.main", "rbac"]
        manifest = subprocess.run(printed, capture_output=True, text=True, check=True).stdout
        for obj in yaml.safe_load_all(manifest):
            self.admin.create(_OF_KIND[obj["kind"]], obj, obj["metadata"].get("namespace"))
        metadata = {"name": "nobody"}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        self.admin.create(SERVICE_ACCOUNTS, account, "default")

    def kubeconfig(self, user: str = "dra-harness", *, token: str = "", ca: Path | None = None) -> Path:
        """A kubeconfig of a service account, or of whoever has the token."""
        document = json.loads(json.dumps(self._document))
        document["users"] = [{"name": "user", "user": {"token": token or self._token(user)}}]
        document["contexts"][0]["context"]["user"] = "user"
        if ca:
            document["clusters"][0]["cluster"]["certificate-authority"] = str(ca)
        path = self._folder / f"{secrets.token_hex(4)}.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    def _token(self, user: str) -> str:
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = SERVICE_ACCOUNTS.path("default", user, "token")
        answer = json.loads(self.admin.request("POST", path, body=request))
        return str(answer["status"]["token"])

    def objects(self) -> dict[str, Object]:
        """Everything on the cluster that can be listed, by kind, namespace and name."""
        groups = json.loads(self.admin.request("GET", "/apis"))["groups"]
        paths = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
        found = {}
        for path in paths:
            for kind in json.loads(self.admin.request("GET", path))["resources"]:
                if "list" in kind["verbs"] and kind["name"] not in _NOISE:
                    for obj in json.loads(self.admin.request("GET", f"{path}/{kind['name']}"))["items"] or ():
                        metadata = obj["metadata"]
                        metadata.pop("managedFields", None)
                        if kind["name"] == "nodes":  # heartbeats
                            del obj["status"], metadata["resourceVersion"]
                        key = f"{path}/{kind['name']}/{metadata.get('namespace', '')}/{metadata['name']}"
                        found[key] = obj
        return found

    def wait_as_before(self, before: dict[str, Object]) -> None:
        """Wait until what is there is what was there: namespaces take a moment to go."""

        def same() -> bool:
            after = self.objects()
            different = sorted(key for key in before.keys() | after if before.get(key) != after.get(key))
            if different:
                raise NotYet(different)
            return True

        wait_until(same, 60, "the cluster to be as before")

    def plant(self, resource: Resource, name: str, namespace: str | None = None, **fields: Any) -> Object:
        """Create an object of somebody else's."""
        metadata = {"name": name, "labels": fields.pop("labels", {"team": "theirs"})}
        manifest = {"apiVersion": resource.api_version, "metadata": metadata, **fields}
        made = self.admin.create(resource, manifest, namespace)
        if resource is NAMESPACES:  # the controllers put something into each
            wait_until(lambda: self.admin.find(SERVICE_ACCOUNTS, "default", name), 60, "a service account")
            wait_until(lambda: self.admin.find(_CONFIG_MAPS, "kube-root-ca.crt", name), 60, "a certificate")
        return made

    def wait_status(self, resource: Resource, name: str, namespace: str | None, key: str) -> None:
        """Wait until a controller has written something into an object's status."""

        def written() -> bool:
            found = self.admin.get(resource, name, namespace)
            if not found.get("status", {}).get(key):
                raise NotYet(found.get("status"))
            return True

        wait_until(written, 60, f"status.{key} of {name}")

    def remove(self, resource: Resource, name: str) -> None:
        """Delete an object, and wait until it is gone."""
        self.admin.delete(resource, name)
        wait_until(lambda: self.admin.find(resource, name) is None, 60, f"{name} to be gone")


def _plant_look_alikes(stranger: Stranger, token: str) -> None:
    """Objects that are named as ours are, without our label or with one that is almost ours."""
    selector = [{"cel": {"expression": "device.driver == 'theirs'"}}]
    taint = {"key": "check.dra-harness.dev/broken", "effect": "None"}
    for labels, suffix in (({}, "gpu"), ({f"{RUN}s": "x"}, "a"), ({"run": "x"}, "b")):
        stranger.plant(DEVICE_CLASSES, f"t{token}-{suffix}", labels=labels, spec={"selectors": selector})
    stranger.plant(NAMESPACES, f"t{token}")
    stranger.plant(NAMESPACES, f"dra-harness-{token}")
    stranger.plant(RESOURCE_QUOTAS, "quota", f"t{token}", spec={"hard": {"pods": "3"}})
    request = [{"name": "device", "exactly": {"deviceClassName": f"t{token}-gpu"}}]
    stranger.plant(RESOURCE_CLAIMS, "claim", f"t{token}", spec={"devices": {"requests": request}})
    rule = {"deviceSelector": {"driver": f"gpu-{token}.dra-harness.dev"}, "taint": taint}
    stranger.plant(DEVICE_TAINT_RULES, f"t{token}-limits", spec=rule)
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    slice_ = {"driver": f"gpu-{token}.dra-harness.dev", "allNodes": True, "pool": pool}
    stranger.plant(RESOURCE_SLICES, f"t{token}-slice-0", spec={**slice_, "devices": [{"name": "gpu-0"}]})
    # What the controllers write to them belongs to the cluster as it was.
    stranger.wait_status(RESOURCE_QUOTAS, "quota", f"t{token}", "used")
    stranger.wait_status(DEVICE_TAINT_RULES, f"t{token}-limits", None, "conditions")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stranger]:
    """A cluster with every DRA gate on, and with objects that look like those of a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRA_HARNESS_STATE", str(tmp_path_factory.mktemp("theirs")))
        provider = LocalProvider(BuildSource())
        spec = ClusterSpec("stranger", profile=Profile.ALPHA, nodes=1, ephemeral=True)
        cluster = provider.up(spec, SilentProgress())
        try:
            made = Stranger(cluster.kubeconfig, tmp_path_factory.mktemp("kubeconfigs"))
            _plant_look_alikes(made, "1a2b3c4d")
            yield made
        finally:
            provider.down("stranger")


def test_the_preflight_says_what_there_is(stranger: Stranger, state_dir: Path, dra_harness: Command) -> None:
    before = stranger.objects()
    done = dra_harness("preflight", "--kubeconfig", str(stranger.kubeconfig()), "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {row["subject"]: row for row in json.loads(done.stdout)}
    assert rows["server"]["found"].startswith("v1.37.2 at https://127.0.0.1:")
    assert rows["user"]["found"] == "system:serviceaccount:default:dra-harness"
    assert rows["gates"]["found"].startswith("profile alpha; on: DRAAdminAccess, ")
    assert "v1" in rows["resource.k8s.io"]["found"].split(", ")
    assert rows["nodes"]["found"] == "1 Ready"
    assert "gpu-1a2b3c4d.dra-harness.dev (1 slices)" in rows["drivers"]["found"]
    assert rows["rights"]["state"] == "ok"
    assert rows["area quota"]["found"].startswith(
        "5 of 10 requirements with checks can be looked at; QTA-02 and"
    )
    assert rows["area extended-resource"]["state"] == "blocked"
    assert "needs a driver whose faults can be switched" in rows["area extended-resource"]["found"]

    refused = dra_harness("preflight", "--kubeconfig", str(stranger.kubeconfig("nobody")))
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "the user lacks a right (403): nodes is forbidden" in refused.stderr
    assert stranger.objects() == before
    assert not state_dir.exists()


def test_a_run_leaves_the_cluster_as_it_was(
    stranger: Stranger, state_dir: Path, tmp_path: Path, dra_harness: Command
) -> None:
    """With exactly the rights of `rbac`, beside another run; it creates what `--dry-run` said."""
    before = stranger.objects()
    where = ("--kubeconfig", str(stranger.kubeconfig()), "--run-id", "main", "-n", "2")

    shown = dra_harness("run", *where, "--dry-run", "-o", "json")

    assert shown.returncode == 0, shown.stderr
    assert stranger.objects() == before
    assert not (tmp_path / "results").exists()
    done, other = _side_by_side(dra_harness, where, ("QTA-01", "TNT-12", *where[:2], "--run-id", "other"))
    assert other.returncode == 0, other.stdout + other.stderr
    stranger.wait_as_before(before)
    assert not state_dir.exists()
    log = journal.read(tmp_path / "results" / "main")
    finished = [event for event in log if isinstance(event, events.CheckFinished)]
    results = {event.check: str(event.result) for event in finished if event.result != "pass"}
    assert set(results.values()) <= {"blocked", "expected-fail"}, done.stdout
    ran = [event for event in finished if event.result != "blocked"]
    assert {name for event in ran for name in event.requirements} >= {"QTA-01", "QTA-08", "TNT-12", "LST-01"}
    assert done.returncode == 3  # what needs a driver is blocked
    said = {_key(row) for row in json.loads(shown.stdout) if row["check"] != "the run itself"}
    made = {f"{event.check} {_without_number(obj)}" for event in ran for obj in event.created}
    assert made == said
    blocked = [event for event in finished if event.result == "blocked"]
    assert all(event.message.startswith("needs a driver whose faults") for event in blocked)
    assert not any(event.created for event in blocked)


def _side_by_side(dra_harness: Command, *runs: Sequence[str]) -> tuple[subprocess.CompletedProcess[str], ...]:
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(lambda arguments: dra_harness("run", *arguments), runs))


def _key(row: dict[str, str]) -> str:
    obj = "/".join(part for part in (row["kind"], row["namespace"], row["name"]) if part)
    return f"{row['check']} {_without_number(obj)}"


def _without_number(obj: str) -> str:
    return re.sub(r"(?<=recount-)(\d+|<n>)$", "", obj)


def test_what_a_killed_run_left_is_cleaned_and_what_lives_is_not(
    stranger: Stranger, state_dir: Path, tmp_path: Path, dra_harness: Command
) -> None:
    before = stranger.objects()
    kubeconfig = stranger.kubeconfig()
    command = [sys.executable, "-m", "cli.main", "run", "--run-id", "killed", "-n", "2"]
    command += ["--kubeconfig", str(kubeconfig)]
    with subprocess.Popen(
        command, cwd=tmp_path, env=_environment(tmp_path, state_dir), stdout=subprocess.DEVNULL
    ) as run:
        labels = f"{RUN}=killed"
        wait_until(lambda: stranger.admin.list(DEVICE_CLASSES, labels=labels), 60, "a class of the run")
        run.send_signal(signal.SIGKILL)
    assert stranger.admin.list(NAMESPACES, labels=labels)

    with Presence(stranger.admin, "alive"):
        living = stranger.plant(DEVICE_CLASSES, "of-a-living-run", labels={RUN: "alive"}, spec={})
        cleaned = dra_harness("clean", "--kubeconfig", str(kubeconfig), "-o", "json")
        assert stranger.admin.get(DEVICE_CLASSES, "of-a-living-run") == living
        stranger.admin.delete(DEVICE_CLASSES, "of-a-living-run")

    assert cleaned.returncode == 0, cleaned.stderr
    rows = json.loads(cleaned.stdout)
    assert {"run": "alive", "object": "", "state": "alive, left alone"} in rows
    removed = {row["object"] for row in rows if row["run"] == "killed" and row["state"] == "removed"}
    assert f"namespaces/{namespace_of('killed')}" in removed
    assert cleaned.stderr.startswith("not looked at, since the user may not list them: flowschemas, ")
    stranger.wait_as_before(before)
    assert not state_dir.exists()
    again = dra_harness("clean", "--kubeconfig", str(kubeconfig), "-o", "json")
    assert (again.returncode, json.loads(again.stdout)) == (0, [])


def _environment(tmp_path: Path, state_dir: Path) -> dict[str, str]:
    places = {"DRA_HARNESS_RESULTS": str(tmp_path / "results"), "DRA_HARNESS_STATE": str(state_dir)}
    return {**os.environ, **places, "PYTHONPATH": str(Path(__file__).parents[1])}


def test_objects_of_the_same_names_are_left_alone(
    stranger: Stranger, tmp_path: Path, state_dir: Path, dra_harness: Command
) -> None:
    """Somebody has objects of the names that two checks will take: both are blocked, nothing is touched."""
    device_class = Names("names", QUOTA_CHECK).name("gpu")
    namespace = Names("names", UNCOUNTED_CHECK).name()
    stranger.plant(DEVICE_CLASSES, device_class, spec={})
    stranger.plant(NAMESPACES, namespace)
    before = stranger.objects()

    done = dra_harness(
        *("run", "QTA-08", "QTA-10", "-n", "1", "--run-id", "names"),
        *("--kubeconfig", str(stranger.kubeconfig())),
    )

    assert done.returncode == 3, done.stdout + done.stderr
    stranger.wait_as_before(before)
    log = journal.read(tmp_path / "results" / "names")
    finished = {event.check: event for event in log if isinstance(event, events.CheckFinished)}
    for check, name in {QUOTA_CHECK: device_class, UNCOUNTED_CHECK: namespace}.items():
        assert finished[check].result == "blocked"
        assert finished[check].message.startswith("somebody else's object is in the way: ")
        assert f'"{name}" already exists' in finished[check].message
    stranger.remove(DEVICE_CLASSES, device_class)
    stranger.remove(NAMESPACES, namespace)


def test_what_keeps_a_run_from_a_cluster_is_one_line(
    stranger: Stranger, tmp_path: Path, state_dir: Path, dra_harness: Command
) -> None:
    own = namespace_of("taken")
    stranger.plant(NAMESPACES, own)
    before = stranger.objects()
    good = str(stranger.kubeconfig())
    foreign = CertificateAuthority.create(tmp_path / "pki").certificate
    cases = {
        (3, "the credentials are expired or refused (401)"): [str(stranger.kubeconfig(token="none"))],
        (3, "TLS fails: "): [str(stranger.kubeconfig(ca=foreign))],
        (3, "the user lacks a right (403): nodes is forbidden"): [str(stranger.kubeconfig("nobody"))],
        (3, f"namespace {own} is in the way: there is one without the label {RUN}"): [good],
        (2, "contexts: none is named 'x'; there are: "): [good, "--context", "x"],
    }
    for (code, message), arguments in cases.items():
        done = dra_harness("run", "QTA-08", "--run-id", "taken", "--kubeconfig", *arguments)
        assert (done.returncode, done.stdout) == (code, ""), done.stdout + done.stderr
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("error: ")
        assert not state_dir.exists()
        assert not (tmp_path / "results").exists()
    stranger.wait_as_before(before)
    stranger.remove(NAMESPACES, own)
