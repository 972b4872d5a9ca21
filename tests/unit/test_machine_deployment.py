"""The manifest of a pool: Gardener's fields and defaults, what is refused and in which words, what a change does."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest
import yaml
from paths import ROOT

from resources.effects import Effect, effects
from resources.manifests import ManifestError, load_manifests
from resources.pool.manifest import MachineDeployment, MachineDeploymentSpec
from starter.commands.explaining import explain

POOL: dict[str, Any] = {
    "apiVersion": "machine.sapcloud.io/v1alpha1",
    "kind": "MachineDeployment",
    "metadata": {"name": "p"},
    "spec": {
        "selector": {"matchLabels": {"a": "1"}},
        "template": {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"class": {"name": "c1"}}},
    },
}


def pool(change: dict[str, Any] | None = None) -> MachineDeployment:
    manifest = copy.deepcopy(POOL)
    manifest["spec"] |= change or {}
    (loaded,) = load_manifests(yaml.safe_dump(manifest), "f.yaml").pools
    return loaded


def test_the_defaults_are_gardeners() -> None:
    spec = pool().spec
    assert (spec.replicas, spec.min_ready_seconds, spec.paused, spec.progress_deadline_seconds) == (0, 0, False, None)
    assert (spec.strategy.type, spec.revision_history_limit) == ("RollingUpdate", 10)
    assert spec.strategy.rolling is not None
    assert (spec.strategy.rolling.max_surge, spec.strategy.rolling.max_unavailable) == (1, 1)
    assert (spec.repair.max_concurrent, spec.repair.pause_above_unhealthy) == (1, "40%")
    # Seed 003.
    assert (spec.auto_preserve_failed_max, spec.machine_preserve_timeout) == (0, timedelta(hours=72))
    assert pool({"autoPreserveFailedMachineMax": 2}).spec.auto_preserve_failed_max == 2


def test_the_example_loads_without_a_warning() -> None:
    loaded = load_manifests((ROOT / "examples/pool/pool.yaml").read_text(), "pool.yaml")
    assert loaded.warnings == []
    assert [p.metadata.name for p in loaded.pools] == ["demo-pool"]
    dumped = loaded.pools[0].model_dump_json(by_alias=True)
    assert MachineDeployment.model_validate_json(dumped) == loaded.pools[0]


def rolling(**settings: Any) -> dict[str, Any]:
    return {"strategy": {"rollingUpdate": settings}}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("MCM U6", {"strategy": {"type": "Recreate"}}, r"spec.strategy.type: .*write RollingUpdate or OnDelete"),
    ("both", {"strategy": {"type": "OnDelete", "rollingUpdate": {"maxSurge": 1}}}, "strategy: rollingUpdate does not"),
    ("no number", rolling(maxSurge="two"), r"rollingUpdate.maxSurge: neither a count nor a percentage; write it like"),
    ("negative", rolling(maxSurge=-1), "rollingUpdate.maxSurge: neither"),
    ("a truth", rolling(maxUnavailable=True), "rollingUpdate.maxUnavailable: neither"),
    ("more than all", rolling(maxUnavailable="101%"), "101% is more than all replicas"),
    ("an empty canary", rolling(pauseAfter=0), "pauseAfter: without a new machine there is nothing to check"),
    ("negative replicas", {"replicas": -1}, "spec.replicas: must be at least 0"),
    ("a selector for others", {"selector": {"matchLabels": {"a": "2"}}}, "selector does not match template"),
    (
        "an expression for others",
        {"selector": {"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["2"]}]}},
        "selector does not match template",
    ),
    (
        "a deadline that cannot be met",
        {"minReadySeconds": 60, "progressDeadlineSeconds": 60},
        r"progressDeadlineSeconds \(60\) must be more than minReadySeconds \(60\)",
    ),
    ("a command", {"rollbackTo": {"revision": 1}}, "rollbackTo: a manifest describes a state.*hostler rollout undo"),
    (
        "one limit twice",
        {"autoPreserveFailedMax": 1, "autoPreserveFailedMachineMax": 2},
        "mean the same but differ; give one",
    ),
    (
        "a VM for all",
        {"template": {"metadata": {"labels": {"a": "1"}}, "spec": {"class": {"name": "c"}, "providerID": "aws:///1"}}},
        "template.spec.providerID: a pool creates its own VMs",
    ),
    ("no class", {"template": {"metadata": {"labels": {"a": "1"}}, "spec": {}}}, "template.spec.class: Field required"),
]


@pytest.mark.parametrize(("change", "words"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ManifestError, match=rf"f.yaml \(document 1\): MachineDeployment p: .*{words}"):
        pool(change)


def test_a_count_may_be_written_as_text() -> None:
    """Kubernetes' IntOrString, as some tools write it."""
    strategy = pool(rolling(maxSurge="2", maxUnavailable=" 20% ")).spec.strategy
    assert strategy.rolling is not None
    assert (strategy.rolling.max_surge, strategy.rolling.max_unavailable) == (2, "20%")


def test_a_name_leaves_room_for_its_machines() -> None:
    long = copy.deepcopy(POOL)
    long["metadata"]["name"] = "p" * 52
    with pytest.raises(ManifestError, match=r"52 characters.* at most 51"):
        load_manifests(yaml.safe_dump(long), "f.yaml")


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ({"key": "a", "operator": "In", "values": ["1"]}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "z", "operator": "DoesNotExist"}, True),
        ({"key": "a", "operator": "DoesNotExist"}, False),
        ({"key": "z", "operator": "Exists"}, False),
    ],
)
def test_selector_expressions(expression: dict[str, Any], matches: bool) -> None:
    change = {"selector": {"matchExpressions": [expression]}}
    if matches:
        assert pool(change).spec.selector
    else:
        with pytest.raises(ManifestError, match="selector does not match"):
            pool(change)


TEMPLATE_HOT = (
    "metadata.labels metadata.annotations spec.nodeTemplate.metadata.labels spec.nodeTemplate.metadata.annotations "
    "spec.nodeTemplate.spec.taints[].key spec.nodeTemplate.spec.taints[].value spec.nodeTemplate.spec.taints[].effect "
    "spec.providerID spec.creationTimeout spec.healthTimeout spec.disableHealthTimeout spec.drainTimeout "
    "spec.machinePreserveTimeout spec.nodeConditions "
    "spec.lifecycleHooks.preDrain[].name spec.lifecycleHooks.preDrain[].owner "
    "spec.lifecycleHooks.preTerminate[].name spec.lifecycleHooks.preTerminate[].owner"
)
STEERS = (
    "replicas selector.matchLabels selector.matchExpressions[].key selector.matchExpressions[].operator "
    "selector.matchExpressions[].values strategy.type strategy.rollingUpdate.maxSurge "
    "strategy.rollingUpdate.maxUnavailable strategy.rollingUpdate.pauseAfter minReadySeconds revisionHistoryLimit "
    "paused progressDeadlineSeconds repair.maxConcurrent repair.pauseAboveUnhealthy autoPreserveFailedMax "
    "machinePreserveTimeout hibernated approval.required approval.timeout rollsAfter.pool rollsAfter.class "
    "maintenance.windows[].days maintenance.windows[].begin maintenance.windows[].end maintenance.windows[].timezone"
)
EFFECTS = {
    **{f"template.{p}": Effect.HOT for p in TEMPLATE_HOT.split()},
    **{f"template.spec.class.{p}": Effect.HASH for p in ("name", "kind", "apiGroup")},
    **dict.fromkeys(STEERS.split(), Effect.POOL),
}


def test_every_field_and_what_its_change_does() -> None:
    """Design pools.md: the class makes the revision; everything else in the template is a hot update."""
    assert dict(effects(MachineDeploymentSpec)) == EFFECTS


def test_explain_says_it() -> None:
    for path, effect in EFFECTS.items():
        assert explain(f"pool.spec.{path.replace('[]', '')}").field.effects == (effect,)
    assert explain("machinedeployment.spec.template").field.effects == (Effect.HOT, Effect.HASH)
    assert explain("mcd.spec").field.effects == ()
