"""What a KubeletConfig may say, and for which pools.

Sources: upstream's validateUserKubeletConfig; its cases are M-K01 to M-K19 of the conformance list. What the cluster
decides (how cgroups are driven, its DNS, swap) is not for a pool to say. An empty value of such a field says nothing.
Feature gates are the seed's own use, so they are taken; a setting refuses them, as upstream does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from planners.machine_config.kubelet_fields import faults
from planners.machine_config.objects import Obj, labels_of, name_of, spec_of
from planners.machine_config.picture import RenderOptions
from resources.machine_config.keys import ROLE_LABEL

LOG_LEVELS = (0, 10)
FAULTS_MOST = 5
_THE_CLUSTERS = {
    "cgroupDriver": "the operating system's image decides it",
    "clusterDNS": "it is of the whole cluster; set clusterDNSIP of the ControllerConfig",
    "clusterDomain": "it is of the whole cluster",
    "failSwapOn": "swap is of the operating system's image",
}
_CONTROL_PLANES = ("master", "control-plane", "arbiter")
_NODE_ROLES = tuple(f"node-role.kubernetes.io/{role}" for role in _CONTROL_PLANES)
_SPEC = ("autoSizingReserved", "kubeletConfig", "logLevel", "machineConfigPoolSelector")


def options_of(config: Obj) -> Mapping[str, Any]:
    """The kubelet's fields that a KubeletConfig sets, without those that say nothing: null, and empty values of what is
    the cluster's."""
    given = spec_of(config).get("kubeletConfig") or {}
    kept = {k: v for k, v in given.items() if v is not None and k not in ("apiVersion", "kind")}
    return {k: v for k, v in kept.items() if k not in _THE_CLUSTERS or v}


def problems(config: Obj, options: RenderOptions) -> list[str]:
    """Why it is refused whatever pool it selects; at most some."""
    found = list(_problems(config, options))
    return [*found[:FAULTS_MOST], *([f"and {len(found) - FAULTS_MOST} more"] if len(found) > FAULTS_MOST else [])]


def _problems(config: Obj, options: RenderOptions) -> Iterator[str]:
    spec = spec_of(config)
    for field in spec:
        if field not in _SPEC:
            more = "; write tlsMinVersion and tlsCipherSuites into kubeletConfig" if "tls" in field.lower() else ""
            yield f"spec.{field} is not supported{more}"
    level = spec.get("logLevel")
    if level is not None and not (isinstance(level, int) and LOG_LEVELS[0] <= level <= LOG_LEVELS[1]):
        yield f"KubeletConfig's LogLevel is not valid [{LOG_LEVELS[0]},{LOG_LEVELS[1]}]: {level}"
    given = spec.get("kubeletConfig")
    if given is not None and not isinstance(given, Mapping):
        yield "spec.kubeletConfig: a table of the kubelet's fields is needed"
        return
    wanted = options_of(config)
    for fault in faults(wanted):
        yield f"spec.kubeletConfig.{fault}"
    for field in _THE_CLUSTERS:
        if field in wanted:
            yield f"spec.kubeletConfig.{field} may not be set here: {_THE_CLUSTERS[field]}"
    swap = wanted.get("memorySwap")
    if isinstance(swap, Mapping) and swap.get("swapBehavior"):
        yield f"spec.kubeletConfig.memorySwap.swapBehavior may not be set here: {_THE_CLUSTERS['failSwapOn']}"
    if wanted.get("featureGates") and options.feature_gates == "refuse":
        yield "spec.kubeletConfig.featureGates may not be set here: machineConfigs.featureGates is set to refuse them"
    if spec.get("autoSizingReserved") is True and wanted.get("systemReserved"):
        yield "spec.kubeletConfig.systemReserved and spec.autoSizingReserved: true exclude each other; leave one out"


def problem_with(pool: Obj, config: Obj) -> str:
    """Why one pool's kubelets cannot have it; "" if they can. The path of static pods is the control plane's life."""
    given = spec_of(config).get("kubeletConfig") or {}
    if given.get("staticPodPath") is None:
        return ""
    if is_control_plane(pool):
        return (
            f"spec.kubeletConfig.staticPodPath may not be set for pool {name_of(pool)}, which is of the control plane"
        )
    return "spec.kubeletConfig.staticPodPath may not be set" if given["staticPodPath"] else ""


def is_control_plane(pool: Obj) -> bool:
    """Whether it is the control plane's pool, or one derived from it by its selectors (M-K13)."""
    if name_of(pool) in _CONTROL_PLANES or labels_of(pool).get(ROLE_LABEL) in _CONTROL_PLANES:
        return True
    return any(_derived(spec_of(pool).get(field) or {}) for field in ("machineConfigSelector", "nodeSelector"))


def _derived(selector: Mapping[str, Any]) -> bool:
    labels = selector.get("matchLabels") or {}
    if labels.get(ROLE_LABEL) in _CONTROL_PLANES or any(key in labels for key in _NODE_ROLES):
        return True
    for e in selector.get("matchExpressions") or ():
        of_them = e.get("key") in _NODE_ROLES and e.get("operator") in ("Exists", "In")
        named = e.get("key") == ROLE_LABEL and e.get("operator") == "In" and {*_CONTROL_PLANES} & {*e.get("values", ())}
        if of_them or named:
            return True
    return False
