"""Where a promise is written down: KEPs, documentation, upstream source and fixes, practitioners' posts."""

from __future__ import annotations

import pydantic

UPSTREAM_TAG = "v1.37.2"
"""The Kubernetes release whose source was read for the catalogue."""

_ENHANCEMENTS = "https://github.com/kubernetes/enhancements"
_KUBERNETES = "https://github.com/kubernetes/kubernetes"
_DOCS = "https://kubernetes.io/docs"

KEPS = {
    3695: "sig-node/3695-pod-resources-for-dra",
    4381: "sig-node/4381-dra-structured-parameters",
    4680: "sig-node/4680-add-resource-health-to-pod-status",
    4815: "sig-scheduling/4815-dra-partitionable-devices",
    4816: "sig-scheduling/4816-dra-prioritized-list",
    4817: "sig-node/4817-resource-claim-device-status",
    5004: "sig-scheduling/5004-dra-extended-resource",
    5007: "sig-scheduling/5007-device-attach-before-pod-scheduled",
    5018: "sig-auth/5018-dra-adminaccess",
    5055: "sig-scheduling/5055-dra-device-taints-and-tolerations",
    5075: "sig-scheduling/5075-dra-consumable-capacity",
    5304: "sig-node/5304-dra-attributes-downward-api",
    5491: "sig-scheduling/5491-dra-list-types-for-attributes",
    5517: "sig-scheduling/5517-dra-node-allocatable-resources",
    5677: "sig-scheduling/5677-dra-resource-availability-visibility",
    5729: "sig-scheduling/5729-resourceclaim-support-for-workloads",
    5945: "",
    5963: "sig-scheduling/5963-device-compatibility-groups",
    6072: "sig-node/6072-dra-standard-numanode",
    6080: "sig-scheduling/6080-dra-derived-attributes",
}
"""KEP number to its directory; empty where it has moved, and the tracking issue is the stable address."""

POSTS = {
    "S1": "DRA in Kubernetes 1.37 for GPU operators",
    "S2": "DRA versus the device plugin at Kubernetes 1.34",
    "S3": "a preview of DRA in Kubernetes 1.36",
}
"""The practitioners' posts, by subject."""


class Source(pydantic.BaseModel):
    """One place that backs a requirement; exactly one of kep, docs, source, pull, issue and post is set."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    kep: int | None = None
    """KEP number."""
    docs: str | None = None
    """Page of kubernetes.io/docs, as its path."""
    source: str | None = None
    """File or folder of kubernetes/kubernetes at `UPSTREAM_TAG`."""
    pull: int | None = None
    """Pull request of kubernetes/kubernetes that fixed or set the behaviour."""
    issue: int | None = None
    """Issue of kubernetes/kubernetes."""
    post: str | None = None
    """Practitioners' post: S1, S2 or S3."""
    section: str = ""
    """The part of it that matters."""

    @pydantic.model_validator(mode="after")
    def _one_place(self) -> Source:
        places = {"kep": self.kep, "docs": self.docs, "source": self.source}
        places |= {"pull": self.pull, "issue": self.issue, "post": self.post}
        if sum(place is not None for place in places.values()) != 1:
            raise ValueError(f"expected exactly one of {', '.join(places)}")
        if self.kep is not None and self.kep not in KEPS:
            raise ValueError(f"KEP {self.kep} is unknown; expected one of {', '.join(map(str, KEPS))}")
        if self.post is not None and self.post not in POSTS:
            raise ValueError(f"post {self.post!r} is unknown; expected one of {', '.join(POSTS)}")
        return self

    @property
    def url(self) -> str | None:
        """Its public address; None for a practitioners' post."""
        if self.kep is not None:
            directory = KEPS[self.kep]
            where = f"tree/master/keps/{directory}" if directory else f"issues/{self.kep}"
            return f"{_ENHANCEMENTS}/{where}"
        if self.docs is not None:
            return f"{_DOCS}/{self.docs}/"
        if self.source is not None:
            return f"{_KUBERNETES}/blob/{UPSTREAM_TAG}/{self.source}"
        if self.pull is not None:
            return f"{_KUBERNETES}/pull/{self.pull}"
        return f"{_KUBERNETES}/issues/{self.issue}" if self.issue is not None else None

    def __str__(self) -> str:
        if self.kep is not None:
            name = f"KEP-{self.kep}"
        elif self.docs is not None:
            name = f"docs {self.docs}"
        elif self.source is not None:
            name = f"{UPSTREAM_TAG} source {self.source}"
        elif self.post is not None:
            name = f"post {self.post} ({POSTS[self.post]})"
        else:
            name = f"k/k#{self.pull or self.issue}"
        return f"{name}, {self.section}" if self.section else name
