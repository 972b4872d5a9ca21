"""The fields of a KubeletConfiguration (kubelet.config.k8s.io/v1beta1, Kubernetes 1.36) and their types.

A kubelet does not start with a value of a wrong type, and it starts without a field that it does not know; both would
reach every node of a pool, one after the other. So both are refused before anything is rendered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from resources.spelling import did_you_mean

_DURATION = re.compile(r"0|-?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)(([0-9]+(\.[0-9]*)?)(ns|us|µs|ms|s|m|h))*")

_FIELDS = {
    "a whole number": """containerLogMaxFiles containerLogMaxWorkers eventBurst eventRecordQPS evictionMaxPodGracePeriod
        healthzPort imageGCHighThresholdPercent imageGCLowThresholdPercent iptablesDropBit iptablesMasqueradeBit
        kubeAPIBurst kubeAPIQPS maxOpenFiles maxParallelImagePulls maxPods nodeLeaseDurationSeconds nodeStatusMaxImages
        oomScoreAdj podPidsLimit podsPerCore port readOnlyPort registryBurst registryPullQPS""",
    "a number": "memoryThrottlingFactor",
    "true or false": """cgroupsPerQOS cpuCFSQuota enableContentionProfiling enableControllerAttachDetach
        enableDebugFlagsHandler enableDebuggingHandlers enableProfilingHandler enableServer enableSystemLogHandler
        enableSystemLogQuery failCgroupV1 failSwapOn kernelMemcgNotification localStorageCapacityIsolation
        makeIPTablesUtilChains mergeDefaultEvictionSettings protectKernelDefaults registerNode rotateCertificates
        runOnce seccompDefault serializeImagePulls serverTLSBootstrap singleProcessOOMKill""",
    "a duration, such as 10s": """containerLogMonitorInterval cpuCFSQuotaPeriod cpuManagerReconcilePeriod
        evictionPressureTransitionPeriod fileCheckFrequency httpCheckFrequency imageMaximumGCAge imageMinimumGCAge
        nodeStatusReportFrequency nodeStatusUpdateFrequency runtimeRequestTimeout shutdownGracePeriod
        shutdownGracePeriodCriticalPods streamingConnectionIdleTimeout syncFrequency volumeStatsAggPeriod""",
    "text": """address cgroupDriver cgroupRoot clusterDomain configMapAndSecretChangeDetectionStrategy
        containerLogMaxSize containerRuntimeEndpoint contentType cpuManagerPolicy hairpinMode healthzBindAddress
        imagePullCredentialsVerificationPolicy imageServiceEndpoint kubeReservedCgroup kubeletCgroups
        memoryManagerPolicy podCIDR podLogsDir providerID reservedSystemCPUs resolvConf showHiddenMetricsForVersion
        staticPodPath staticPodURL systemCgroups systemReservedCgroup tlsCertFile tlsMinVersion tlsPrivateKeyFile
        topologyManagerPolicy topologyManagerScope volumePluginDir""",
    "a list of texts": """allowedUnsafeSysctls clusterDNS enforceNodeAllocatable preloadedImagesVerificationAllowlist
        tlsCipherSuites""",
    "a table of texts (numbers in quotes)": """cpuManagerPolicyOptions evictionHard evictionMinimumReclaim evictionSoft
        evictionSoftGracePeriod kubeReserved qosReserved systemReserved topologyManagerPolicyOptions""",
    "a table of true and false": "featureGates",
    "a table": """authentication authorization crashLoopBackOff logging memorySwap staticPodURLHeader tracing
        userNamespaces""",
    "a list of tables": "registerWithTaints reservedMemory shutdownGracePeriodByPodPriority",
}
_TYPE = {field: words for words, fields in _FIELDS.items() for field in fields.split()}


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _all(value: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, list) and all(isinstance(v, kind) for v in value)


def _table(value: Any, kind: type) -> bool:
    return isinstance(value, Mapping) and all(isinstance(v, kind) for v in value.values())


_IS: dict[str, Callable[[Any], bool]] = {
    "a whole number": _is_int,
    "a number": lambda v: _is_int(v) or isinstance(v, float),
    "true or false": lambda v: isinstance(v, bool),
    "a duration, such as 10s": lambda v: isinstance(v, str) and (v == "" or bool(_DURATION.fullmatch(v))),
    "text": lambda v: isinstance(v, str),
    "a list of texts": lambda v: _all(v, str),
    "a table of texts (numbers in quotes)": lambda v: _table(v, str),
    "a table of true and false": lambda v: _table(v, bool),
    "a table": lambda v: isinstance(v, Mapping),
    "a list of tables": lambda v: _all(v, dict),
}
_BOUNDS = {
    **dict.fromkeys(("imageGCHighThresholdPercent", "imageGCLowThresholdPercent"), (0, 100)),
    **dict.fromkeys(("iptablesDropBit", "iptablesMasqueradeBit"), (0, 31)),
    **dict.fromkeys(("healthzPort", "port", "readOnlyPort"), (0, 65535)),
    "oomScoreAdj": (-1000, 1000),
    **dict.fromkeys(
        (
            *("eventBurst", "eventRecordQPS", "evictionMaxPodGracePeriod", "kubeAPIBurst", "maxOpenFiles", "maxPods"),
            *("podsPerCore", "registryBurst", "registryPullQPS"),
        ),
        (0, 2**31 - 1),
    ),
}


def faults(given: Mapping[str, Any]) -> Iterator[str]:
    """What a kubelet would not understand. Null is no value."""
    for field, value in given.items():
        if field in ("apiVersion", "kind") or value is None:
            continue
        if field not in _TYPE:
            yield f"{field}: a kubelet has no such field{did_you_mean(str(field), _TYPE)}"
        elif not _IS[_TYPE[field]](value):
            yield f"{field}: {_TYPE[field]} is needed"
        elif field in _BOUNDS and not _BOUNDS[field][0] <= value <= _BOUNDS[field][1]:
            yield f"{field}: {value} is not between {_BOUNDS[field][0]} and {_BOUNDS[field][1]}"
