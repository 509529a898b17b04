"""Pods for checks: made from the harness's own image, which reports what a container was given."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.components.image import pod_container
from harness.errors import EnvironmentBlocked, RequirementFailed
from harness.kube import EVENTS, NAMESPACES, PODS, RESOURCE_CLAIMS, ApiError, KubeClient, Object
from harness.waiting import NotYet, wait_until
from suites.expect import field

RUN_SECONDS = 150.0
"""How long a pod may take to run: far more than it needs, so that only a broken promise reaches it. A kubelet
that is refused the claim of a pod that the Node authorizer has not seen yet tries again after 60 to 90 s by
default; see `clusters/local/node.py`."""
_GONE_SECONDS = 60.0
_NO_IMAGE = frozenset({"ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff"})
"""Why a container waits whose image the kubelet doesn't have: pkg/kubelet/images/types.go."""


@dataclass(frozen=True)
class Container:
    """One container of a pod."""

    name: str = "main"
    resources: Mapping[str, int | str] = dataclasses.field(default_factory=dict)
    """Limits, which are requests too, as old pods have it."""
    args: Sequence[str] = ()
    """Arguments of the pod program, such as `--exit 1`; without any it reports and waits."""
    sidecar: bool = False
    """Only for init containers: restartPolicy Always."""
    claims: Sequence[str] = ()
    """Claims that it uses: each the pod's name for one, or `<claim>/<request>` for one request of it."""

    def manifest(self) -> Object:
        """The container as the API takes it."""
        amounts = {name: str(amount) for name, amount in self.resources.items()}
        resources: Object = {"limits": amounts} if amounts else {}
        if self.claims:
            resources["claims"] = [_claim_reference(each) for each in self.claims]
        manifest: Object = {
            "name": self.name,
            **pod_container(),
            "resources": resources,
        }
        if self.args:
            manifest["args"] = list(self.args)
        if self.sidecar:
            manifest["restartPolicy"] = "Always"
        return manifest


def _claim_reference(text: str) -> Object:
    claim, _, request = text.partition("/")
    return {"name": claim, "request": request} if request else {"name": claim}


def pod_manifest(
    name: str,
    containers: Sequence[Container],
    *,
    init: Sequence[Container] = (),
    node: str = "",
    **spec: Any,
) -> Object:
    """A pod of our image. `node` restricts where the scheduler may put it; `spec` adds or replaces fields."""
    base: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container.manifest() for container in containers],
    }
    if init:
        base["initContainers"] = [container.manifest() for container in init]
    if node:
        base["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**base, **spec},
    }


def require_image(pod: Object) -> None:
    """See that a pod's node has the image of its containers: a cluster that lacks it has broken no promise.

    Raises:
        EnvironmentBlocked: it doesn't, naming image and node.
    """
    status = pod["status"]
    for each in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = each.get("state", {}).get("waiting", {})
        if waiting.get("reason") in _NO_IMAGE:
            node = pod["spec"].get("nodeName", "")
            raise EnvironmentBlocked(f"node {node} has no image {each['image']}: {waiting['reason']}")


class Workloads:
    """Creates pods in one namespace and watches what becomes of them."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace

    def create(self, manifest: Object) -> Object:
        """Create a pod."""
        return self.kube.create(PODS, manifest, self.namespace)

    def run(self, manifest: Object, deadline: float = RUN_SECONDS) -> Object:
        """Create a pod and wait until all its containers run."""
        self.create(manifest)
        return self.wait_running(manifest["metadata"]["name"], deadline)

    def get(self, name: str) -> Object:
        """A pod as it is now."""
        return self.kube.get(PODS, name, self.namespace)

    def wait_running(self, name: str, deadline: float = RUN_SECONDS) -> Object:
        """Wait until the pod is Running and every container is started."""

        def running() -> Object:
            pod = self.get(name)
            require_image(pod)
            status = pod["status"]
            if status.get("phase") == "Failed":
                raise RequirementFailed(f"pod {name} runs", self._describe(pod), pod)
            states = status.get("containerStatuses", [])
            if status.get("phase") != "Running" or not all(each.get("started") for each in states):
                raise NotYet(lambda: self._describe(pod))
            return pod

        return wait_until(running, deadline, f"pod {name} to run")

    def wait_phase(self, name: str, phase: str, deadline: float = RUN_SECONDS) -> Object:
        """Wait for a pod phase such as Succeeded or Failed."""

        def reached() -> Object:
            pod = self.get(name)
            require_image(pod)
            if pod["status"].get("phase") != phase:
                raise NotYet(lambda: self._describe(pod))
            return pod

        return wait_until(reached, deadline, f"pod {name} to be {phase}")

    def wait_unschedulable(self, name: str, *texts: str, deadline: float = RUN_SECONDS) -> str:
        """Wait until the scheduler says that it can't place the pod, for one of the given reasons.

        A negative is shown by its reason: the pod was looked at and refused, not just not yet placed.
        Returns the scheduler's message.
        """

        def refused() -> str:
            pod = self.get(name)
            if node := pod["spec"].get("nodeName"):
                raise RequirementFailed(f"pod {name} stays Pending", f"it was placed on {node}", pod)
            condition = _condition(pod, "PodScheduled")
            message: str = condition.get("message", "")
            if condition.get("status") != "False" or not any(text in message for text in texts):
                raise NotYet(lambda: self._describe(pod))
            return message

        reasons = " or ".join(repr(text) for text in texts)
        return wait_until(refused, deadline, f"pod {name} to be unschedulable, saying {reasons}")

    def wait_event(self, name: str, *texts: str, deadline: float = RUN_SECONDS) -> str:
        """Wait for an event on the pod whose message has one of the texts; returns the message."""

        def seen() -> str:
            messages = self.events(name)
            for message in messages:
                if any(text in message for text in texts):
                    return message
            raise NotYet(messages)

        return wait_until(seen, deadline, f"an event on pod {name} saying {' or '.join(map(repr, texts))}")

    def events(self, name: str) -> list[str]:
        """The messages of a pod's events, each with its reason."""
        found = self.kube.list(EVENTS, self.namespace, fields=f"involvedObject.name={name}")
        return [f"{event.get('reason')}: {event.get('message')}" for event in found]

    def report(self, name: str, container: str = "main") -> Object:
        """What a container was given: its environment, devices and files, as its program saw them."""

        def reported() -> Object:
            try:
                text = self.kube.logs(self.namespace, name, container)
            except ApiError as error:
                raise NotYet(error.message) from error
            first = text.partition("\n")[0]
            if not first.endswith("}"):
                raise NotYet(f"log: {text!r}")
            value: Object = json.loads(first)
            return value

        return wait_until(reported, 20, f"the report of {name}/{container}")

    def claims(self, pod: str = "") -> list[Object]:
        """The ResourceClaims of the namespace, or those that a pod owns."""
        claims = self.kube.list(RESOURCE_CLAIMS, self.namespace)
        return [claim for claim in claims if not pod or pod in owner_names(claim)]

    def special_claim(self, pod_name: str) -> Object:
        """The one claim that the pod's status names for its extended resources.

        Raises:
            RequirementFailed: the status names none, or one that isn't there.
        """
        pod = self.get(pod_name)
        name = field(pod, "status", "extendedResourceClaimStatus", "resourceClaimName")
        claim = self.kube.find(RESOURCE_CLAIMS, name, self.namespace)
        if claim is None:
            raise RequirementFailed(f"the claim {name} of pod {pod_name}'s status exists", "it doesn't", pod)
        return claim

    def delete(self, name: str, *, deadline: float = _GONE_SECONDS) -> None:
        """Delete a pod and wait until it is gone."""
        self.kube.delete(PODS, name, self.namespace)
        self.wait_gone(name, deadline)

    def wait_gone(self, name: str, deadline: float = _GONE_SECONDS) -> None:
        """Wait until the pod object is gone."""

        def gone() -> bool:
            pod = self.kube.find(PODS, name, self.namespace)
            if pod:
                raise NotYet(lambda: self._describe(pod))
            return True

        wait_until(gone, deadline, f"pod {name} to be gone")

    def wait_no_claims(self, deadline: float = _GONE_SECONDS) -> None:
        """Wait until the namespace has no ResourceClaim."""

        def none() -> bool:
            claims = [claim["metadata"] for claim in self.claims()]
            if claims:
                raise NotYet([(each["name"], each.get("finalizers")) for each in claims])
            return True

        wait_until(none, deadline, f"no claim in {self.namespace}")

    def clear(self) -> None:
        """Delete the namespace and wait until its pods are gone, so that drivers can go after them.

        The namespace goes first: nothing can be made in it from then on, such as by a controller.
        """
        self.kube.delete(NAMESPACES, self.namespace)
        for pod in self.kube.list(PODS, self.namespace):
            self.kube.delete(PODS, pod["metadata"]["name"], self.namespace, grace_seconds=1)
        wait_until(
            lambda: not self.kube.list(PODS, self.namespace),
            _GONE_SECONDS,
            f"all pods of {self.namespace} to be gone",
        )

    def _describe(self, pod: Object) -> str:
        status = pod["status"]
        scheduled = _condition(pod, "PodScheduled").get("message", "")
        statuses = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        waiting = [
            f"{each['name']}: {each['state']}" for each in statuses if "running" not in each.get("state", {})
        ]
        events = self.events(pod["metadata"]["name"])[-3:]
        return f"phase {status.get('phase')}; {scheduled} {waiting or ''} events: {events}"


def owner_names(obj: Object) -> list[str]:
    """The names of an object's owners."""
    return [owner["name"] for owner in obj["metadata"].get("ownerReferences", ())]


def _condition(pod: Object, kind: str) -> Object:
    conditions = pod["status"].get("conditions", ())
    return next((condition for condition in conditions if condition["type"] == kind), {})
