"""Resource quotas of one namespace, and claims that are charged to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clusters import driver_host
from harness.errors import RequirementFailed
from harness.kube import RESOURCE_CLAIMS, RESOURCE_QUOTAS, ApiError, KubeClient, Object
from harness.waiting import NotYet, wait_until
from suites.claims import claim_manifest, request
from suites.drivers import DeviceClass, Drivers
from suites.naming import Names

CLAIM_COUNT = "count/resourceclaims.resource.k8s.io"

_BEYOND_ANY_QUOTA = 1_000_000


def by_class(device_class: DeviceClass) -> str:
    """The quota entry for claims of the class's devices."""
    return f"{device_class.name}.deviceclass.resource.k8s.io/devices"


def by_explicit_name(device_class: DeviceClass) -> str:
    """The quota entry for the class's explicit extended resource name."""
    return f"requests.{device_class.extended_resource}"


def by_implicit_name(device_class: DeviceClass) -> str:
    """The quota entry for the class's implicit extended resource name."""
    return f"requests.deviceclass.resource.kubernetes.io/{device_class.name}"


def class_without_devices(
    drivers: Drivers, names: Names, suffix: str = "gpu", *, named: bool = True
) -> DeviceClass:
    """A class whose driver doesn't exist: quota charges what is asked for, whether or not there is any."""
    resource = names.extended_resource(suffix) if named else ""
    manifest = driver_host.device_class(names.name(suffix), names.driver("absent"), resource)
    drivers.create_class(manifest)
    return DeviceClass(names.name(suffix), resource)


def refusal(create: Callable[[], object], *texts: str) -> str:
    """Do what the quota has to refuse; returns the API server's words, which have all the texts.

    Raises:
        RequirementFailed: it is accepted, or refused for another reason.
    """
    expected = " ".join(("refused with 'exceeded quota'", *map(repr, texts)))
    try:
        made = create()
    except ApiError as error:
        if error.status == 403 and all(text in error.message for text in ("exceeded quota", *texts)):
            return error.message
        raise RequirementFailed(expected, str(error)) from error
    raise RequirementFailed(expected, "accepted", made)


def wait_refused(create: Callable[[], object], *texts: str, deadline: float = 60.0) -> str:
    """Wait until quota refuses a dry run; returns the API server's words, which have all the texts.

    That a quota was counted is not enough: admission reads quotas, classes and claims from caches of its own.
    """

    def refused() -> str:
        try:
            return refusal(create, *texts)
        except RequirementFailed as error:
            raise NotYet(error.observed) from error

    return wait_until(refused, deadline, "quota to refuse a dry run")


class Quotas:
    """Makes quotas in one namespace and reads what is charged to them."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._recounts = 0

    def create(self, hard: Mapping[str, int], name: str = "quota") -> None:
        """Create a quota and return once the quota controller has counted it.

        Nothing is charged before, nor for a moment after: see `wait_enforced` and `wait_refused`.
        """
        manifest = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": name},
            "spec": {"hard": {entry: str(limit) for entry, limit in hard.items()}},
        }
        self._kube.create(RESOURCE_QUOTAS, manifest, self._namespace)
        self._wait_counted(name)

    def change(self, hard: Mapping[str, int], name: str = "quota") -> None:
        """Change limits of a quota; they are in force once admission has seen them."""
        limits = {entry: str(limit) for entry, limit in hard.items()}
        self._kube.patch(RESOURCE_QUOTAS, name, {"spec": {"hard": limits}}, self._namespace)

    def _wait_counted(self, name: str) -> None:
        def counted() -> bool:
            quota = self._kube.get(RESOURCE_QUOTAS, name, self._namespace)
            hard = quota["spec"]["hard"]
            if quota["status"].get("hard") != hard or set(quota["status"].get("used", {})) != set(hard):
                raise NotYet(quota["status"])
            return True

        wait_until(counted, 30, f"the status of quota {name}")

    def used(self, name: str = "quota") -> dict[str, int]:
        """What is charged to each entry of a quota."""
        quota = self._kube.get(RESOURCE_QUOTAS, name, self._namespace)
        return {entry: int(amount) for entry, amount in quota["status"]["used"].items()}

    def wait_used(self, expected: Mapping[str, int], name: str = "quota") -> None:
        """Wait until a quota's use is as expected: what is deleted is given back with a delay."""

        def reached() -> bool:
            used = self.used(name)
            if used != expected:
                raise NotYet(used)
            return True

        wait_until(reached, 30, f"{dict(expected)} used of quota {name}")

    def recount(self, name: str = "quota") -> dict[str, int]:
        """What the quota controller finds when it counts from nothing: the use of a new quota of the same."""
        self._recounts += 1
        again = f"{name}-recount-{self._recounts}"
        hard = self._kube.get(RESOURCE_QUOTAS, name, self._namespace)["spec"]["hard"]
        self.create({entry: int(limit) for entry, limit in hard.items()}, again)
        used = self.used(again)
        self._kube.delete(RESOURCE_QUOTAS, again, self._namespace)
        return used

    def claim(
        self, name: str, *requests: Object, dry_run: bool = False, metadata: Mapping[str, Any] | None = None
    ) -> Object:
        """Create a claim."""
        manifest = claim_manifest(name, requests, **(metadata or {}))
        return self._kube.create(RESOURCE_CLAIMS, manifest, self._namespace, dry_run=dry_run)

    def wait_enforced(self, device_class: DeviceClass, *entries: str) -> None:
        """Return once the API server charges claims of a class to these entries.

        Until it has seen quota and class it charges nothing, or not the class's extended resource names.
        """
        beyond = request("all", device_class, count=_BEYOND_ANY_QUOTA)
        wait_refused(lambda: self.claim("probe", beyond, dry_run=True), *(f"{entry}=" for entry in entries))
