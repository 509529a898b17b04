"""What the kubelets of all our clusters have in common."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

KUBELET_DIR = "/var/lib/kubelet"
"""A kubelet's own directory, as its node sees it."""

FREQUENCIES: Mapping[str, Any] = MappingProxyType(
    {
        # Default 10 s: device plugins would show in the node's status only that late.
        "nodeStatusUpdateFrequency": "2s",
        # Default 5 m. If the node controller's attempt to lift the not-ready taint fails, it tries again
        # only at the next write (pkg/controller/nodelifecycle, doNodeProcessingPassWorker).
        "nodeStatusReportFrequency": "10s",
        # Default 1 m. A kubelet that is ahead of the Node authorizer's view of a new pod is refused the
        # pod's claim; SyncPod reports no error for that, so it tries again only at the next regular sync,
        # 1 to 1.5 times this later (pkg/kubelet/kuberuntime/kuberuntime_manager.go, pod_workers.go).
        "syncFrequency": "5s",
    }
)
"""How often a kubelet does what it does regularly, as keys of KubeletConfiguration."""
