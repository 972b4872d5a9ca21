"""The labels that a kubelet may set on its own Node, after k8s.io/kubelet/pkg/apis/well_known_labels.go."""

from __future__ import annotations

OWN_PREFIXES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OWN_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)


def kubelet_may_set(key: str) -> bool:
    """Anything outside Kubernetes' own namespaces, and what is named here; never a role or a restriction."""
    namespace = key.partition("/")[0] if "/" in key else ""
    if not f".{namespace}".endswith((".kubernetes.io", ".k8s.io")):
        return True
    return key in _OWN_LABELS or any(namespace == p or namespace.endswith("." + p) for p in OWN_PREFIXES)
