"""What a KubeletConfig may say, and how its fields are merged into a kubelet.conf.

M-K… are the cases of upstream's tests; where the seed says otherwise the row says so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_configs.objects import OPTIONS, file, kubelet_config, pool

from planners.machine_config.ignition import content_of
from planners.machine_config.kubelet_merge import KubeletError, ignition_of, merged, read_conf
from planners.machine_config.kubelet_rules import is_control_plane, problem_with, problems
from planners.machine_config.picture import RenderOptions
from resources.machine_config.keys import ROLE_LABEL

# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"cgroupDriver": "systemd"},
            "spec.kubeletConfig.cgroupDriver may not be set here: the operating system's image",
        ),
        ({"clusterDNS": ["10.0.0.1"]}, "spec.kubeletConfig.clusterDNS may not be set here: it is of the whole cluster"),
        ({"clusterDomain": "x"}, "spec.kubeletConfig.clusterDomain may not be set here"),
        ({"failSwapOn": True}, "spec.kubeletConfig.failSwapOn may not be set here"),
        ({"memorySwap": {"swapBehavior": "NoSwap"}}, "spec.kubeletConfig.memorySwap.swapBehavior may not be set here"),
        ({"maxPod": 1}, "spec.kubeletConfig.maxPod: a kubelet has no such field; did you mean maxPods"),
        ({"maxPods": "100"}, "spec.kubeletConfig.maxPods: a whole number is needed"),
        ({"maxPods": -1}, "spec.kubeletConfig.maxPods: -1 is not between 0 and"),
        ({"imageGCHighThresholdPercent": 101}, "imageGCHighThresholdPercent: 101 is not between 0 and 100"),
        ({"serializeImagePulls": "no"}, "serializeImagePulls: true or false is needed"),
        ({"nodeStatusUpdateFrequency": 10}, "nodeStatusUpdateFrequency: a duration, such as 10s is needed"),
        ({"nodeStatusUpdateFrequency": "10"}, "nodeStatusUpdateFrequency: a duration, such as 10s is needed"),
        ({"systemReserved": {"cpu": 1}}, "systemReserved: a table of texts (numbers in quotes) is needed"),
        ({"featureGates": {"A": "true"}}, "featureGates: a table of true and false is needed"),
        ({"registerWithTaints": ["a"]}, "registerWithTaints: a list of tables is needed"),
    ],
)
def test_fields_that_are_refused(fields: Any, words: str) -> None:  # M-K01
    [found] = problems(kubelet_config("a", **fields), OPTIONS)
    assert found.startswith(words) or words in found


@pytest.mark.parametrize(
    "fields",
    [
        {
            "cgroupDriver": "",
            "clusterDNS": [],
            "clusterDomain": "",
            "failSwapOn": False,
            "memorySwap": {"swapBehavior": ""},
        },
        {"maxPods": None, "systemCgroups": None},
        {
            "nodeStatusUpdateFrequency": "1h2m3.5s",
            "memoryThrottlingFactor": 0.9,
            "evictionHard": {"memory.available": "5%"},
        },
        {"featureGates": {"NodeSwap": True}},  # M-K01 refuses them; the seed's CRD is for them
    ],
)
def test_fields_that_are_taken(fields: Any) -> None:
    assert problems(kubelet_config("a", **fields), OPTIONS) == []


def test_feature_gates_are_refused_where_the_settings_say_so() -> None:
    strict = RenderOptions(feature_gates="refuse")
    [found] = problems(kubelet_config("a", featureGates={"A": True}), strict)
    assert "machineConfigs.featureGates is set to refuse them" in found
    assert problems(kubelet_config("a", featureGates={}), strict) == []


@pytest.mark.parametrize(("level", "fine"), [(0, 1), (2, 1), (10, 1), (None, 1), (-1, 0), (11, 0), ("2", 0)])
def test_log_levels(level: Any, fine: int) -> None:  # M-K03
    found = problems(kubelet_config("a", spec={"logLevel": level}), OPTIONS)
    assert found == ([] if fine else [f"KubeletConfig's LogLevel is not valid [0,10]: {level}"])


def test_the_spec_itself() -> None:
    [tls] = problems(kubelet_config("a", spec={"tlsSecurityProfile": {"type": "Old"}}), OPTIONS)
    assert tls == "spec.tlsSecurityProfile is not supported; write tlsMinVersion and tlsCipherSuites into kubeletConfig"
    [both] = problems(kubelet_config("a", spec={"autoSizingReserved": True}, systemReserved={"cpu": "1"}), OPTIONS)
    assert "exclude each other" in both
    many = problems(kubelet_config("a", **{f"x{n}": 1 for n in range(9)}), OPTIONS)
    assert many[-1] == "and 4 more"


ROLE = "node-role.kubernetes.io/master"
CUSTOM = [
    {"machineConfigSelector": {"matchLabels": {ROLE_LABEL: "master"}}},
    {"machineConfigSelector": {"matchExpressions": [{"key": ROLE_LABEL, "operator": "In", "values": ["x", "master"]}]}},
    {"nodeSelector": {"matchExpressions": [{"key": ROLE, "operator": "Exists"}]}},
    {"nodeSelector": {"matchLabels": {ROLE: ""}}},
]


@pytest.mark.parametrize("the_pool", [pool("master"), pool("arbiter"), *(pool("x", **spec) for spec in CUSTOM)])
def test_the_control_planes_pools(the_pool: Any) -> None:  # M-K13, M-K15
    assert is_control_plane(the_pool)
    for path in ("/x", ""):
        assert "is of the control plane" in problem_with(the_pool, kubelet_config("a", staticPodPath=path))
    assert problem_with(the_pool, kubelet_config("a", maxPods=1)) == ""


@pytest.mark.parametrize("the_pool", [pool(), pool("infra", "worker", "infra")])
def test_other_pools_have_no_static_pods(the_pool: Any) -> None:  # M-K13, M-K15
    assert not is_control_plane(the_pool)
    assert problem_with(the_pool, kubelet_config("a", staticPodPath="")) == ""
    assert "staticPodPath may not be set" in problem_with(the_pool, kubelet_config("a", staticPodPath="/x"))


# -- how fields are merged --------------------------------------------------------------------------------------------

BASE = {
    "maxPods": 250,
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%"},
    "enforceNodeAllocatable": ["pods", "system-reserved"],
    "systemCgroups": "/system.slice",
    "systemReservedCgroup": "/system.slice",
    "protectKernelDefaults": True,
}


@pytest.mark.parametrize(
    ("wanted", "changed"),
    [
        ({"maxPods": 0, "protectKernelDefaults": False}, {"maxPods": 0, "protectKernelDefaults": False}),
        ({"maxPods": None}, {}),
        (
            {"evictionHard": {"memory.available": "1Gi"}},
            {"evictionHard": {**BASE["evictionHard"], "memory.available": "1Gi"}},
        ),  # type: ignore[dict-item]
        ({"evictionHard": {}}, {}),
        ({"allowedUnsafeSysctls": ["a"]}, {"allowedUnsafeSysctls": ["a"]}),
        ({"enforceNodeAllocatable": ["pods"]}, {"enforceNodeAllocatable": ["pods"], "systemReservedCgroup": ""}),
        (  # M-K17
            {"systemReservedCgroup": "", "enforceNodeAllocatable": ["pods"], "maxPods": 100},
            {"systemReservedCgroup": "", "enforceNodeAllocatable": ["pods"], "maxPods": 100},
        ),
        (
            {"reservedSystemCPUs": "0-3"},
            {"reservedSystemCPUs": "0-3", "systemReservedCgroup": "", "enforceNodeAllocatable": ["pods"]},
        ),
        (
            {"systemCgroups": "/x.slice", "systemReservedCgroup": "/x.slice"},
            {"systemCgroups": "/x.slice", "systemReservedCgroup": "/x.slice"},
        ),
    ],
)
def test_what_is_written_counts(wanted: Any, changed: Any) -> None:
    assert merged(BASE, wanted) == {**BASE, **changed}


def test_cgroups_that_exclude_each_other() -> None:  # M-K19
    with pytest.raises(KubeletError) as caught:
        merged(BASE, {"systemCgroups": "/foo.slice"})
    assert str(caught.value) == "systemReservedCgroup (/system.slice) must match systemCgroups (/foo.slice)"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab"), lambda c: st.dictionaries(st.sampled_from("xyz"), c)
)
TABLES = st.dictionaries(st.sampled_from("xyz"), JSON)


@given(TABLES, TABLES)
def test_merging_twice_is_merging_once(base: Any, wanted: Any) -> None:
    once = merged(base, wanted)
    assert merged(once, wanted) == once
    assert merged(base, {}) == base
    assert once.keys() <= base.keys() | wanted.keys()


def test_what_stands_beside_the_kubelet_conf() -> None:
    found = ignition_of({"b": 1, "a": "x"}, log_level=5, auto_sizing=True)
    texts = {f["path"]: (content_of(f["contents"]) or b"").decode() for f in found["storage"]["files"]}
    assert texts == {
        "/etc/kubernetes/kubelet.conf": "a: x\nb: 1\n",
        "/etc/node-sizing-enabled.env": "NODE_SIZING_ENABLED=true\n",
        "/etc/systemd/system/kubelet.service.d/20-logging.conf": '[Service]\nEnvironment="KUBELET_LOG_LEVEL=5"\n',
    }
    assert read_conf(found) == {"a": "x", "b": 1}
    assert len(ignition_of({})["storage"]["files"]) == 1


TEXTS = st.sampled_from(["1e3", "y", "on", "0o7", "12:30", "1", "~", "", "=", "<<", "a: b", "500m", "é"]) | st.text(
    "1e.:-y "
)


@given(st.dictionaries(TEXTS, TEXTS | st.integers(-9, 9) | st.booleans() | st.lists(TEXTS), min_size=1))
def test_what_is_written_is_read_back(conf: Any) -> None:
    """A kubelet reads 1e3, y and 0o7 as other things than text, which PyYAML writes without quotes."""
    assert read_conf(ignition_of(conf)) == conf


@pytest.mark.parametrize("text", ["a: [", "- a", "a: 1%0A---%0Ab: 2", ""])
def test_a_kubelet_conf_that_cannot_be_read(text: str) -> None:
    with pytest.raises(KubeletError, match=r"^/etc/kubernetes/kubelet.conf (cannot be read|is not one table)"):
        read_conf({"storage": {"files": [file("/etc/kubernetes/kubelet.conf", text)]}})
