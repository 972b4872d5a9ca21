"""What a worker pool is made of, and what a change of each of its fields does (seeds 002 and 003)."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any, cast

import pytest
import yaml
from clouds.drivers import registered
from fakecloud import FAKE
from paths import ROOT

from planners.machine.hot_update import compare
from planners.worker_pool.expand import Expansion, ZonePlan, expand
from resources.base import EARLIEST
from resources.clouds import PROVIDERS, Provider
from resources.clouds.workers import Unfit
from resources.effects import Effect
from resources.fleet.state import FleetWait
from resources.manifests import ManifestError, WorkerPool, complaints, load_manifests
from resources.names import WORKER_POOL_ANNOTATION
from resources.pool.state import PoolState
from starter.commands.worker_pools import advice
from starter.sdk.apply.worker_pools import WorkerPoolPlanner, effect_of, field_effects, resolved
from starter.sdk.worker_pools import WorkerPoolFound, ZoneFound

EXAMPLES = ROOT / "examples" / "workerpool"
FILES = {"AWS": "aws.yaml", "Azure": "azure.yaml", "GCP": "gcp.yaml"}
Json = dict[str, Any]


def example(provider: str) -> Json:
    found: Json = yaml.safe_load((EXAMPLES / FILES[provider]).read_text())
    return found


def put(document: Json, path: str, value: Any) -> Json:
    """A copy with a value at `spec.` and the path; `[0]` is the first item of a list."""
    changed = copy.deepcopy(document)
    *steps, last = path.replace("[", ".[").split(".")
    here: Any = changed["spec"]
    for step in steps:
        key: Any = int(step[1:-1]) if step.startswith("[") else step
        if isinstance(here, dict) and key not in here:
            here[key] = {}
        here = here[key]
    here[int(last[1:-1]) if last.startswith("[") else last] = value
    return changed


def made(document: Json, **replicas: int) -> Expansion:
    (pool,) = resolved(load_manifests(yaml.safe_dump(document), "f.yaml"))
    return expand(pool, replicas)


# -- what is made ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", FILES)
def test_an_example_makes_what_apply_takes(provider: str) -> None:
    expansion = made(example(provider))
    assert len(expansion.zones) == 2
    assert expansion.warnings == ()
    for zone in expansion.zones:
        assert complaints(zone.deployment) == complaints(zone.machine_class) == []
        assert zone.deployment.spec.replicas == zone.replicas == zone.minimum == 1
        assert zone.maximum == 3
        assert zone.deployment.spec.auto_preserve_failed_max == 1  # seed 003: 2 over 2 zones
        assert zone.deployment.spec.template.spec.class_.name == zone.machine_class.metadata.name


async def test_a_zone_that_comes_back_begins_anew() -> None:
    """While its former pool still goes: neither its number nor what it had recorded of the worker pool counts."""
    (pool,) = resolved(load_manifests(yaml.safe_dump(put(example("AWS"), "maximum", 12)), "f.yaml"))
    (older,) = resolved(load_manifests(yaml.safe_dump(example("AWS")), "f.yaml"))
    former, there = expand(older, {"eu-west-1a": 3}).zones[0], expand(pool, {"eu-west-1b": 2}).zones[1]
    states = [
        PoolState(
            name=zone.name,
            spec=zone.deployment.spec.model_copy(update={"replicas": replicas}),
            annotations=zone.deployment.metadata.annotations,
            deleted=deleted,
        )
        for zone, replicas, deleted in ((former, 3, True), (there, 2, False))
    ]
    zones = tuple(ZoneFound(z.zone, state) for z, state in zip((former, there), states, strict=True))
    found = WorkerPoolFound("workers", "default", zones)
    assert found.manifest is not None
    assert found.manifest.spec.maximum == 12

    class Shelf:
        async def find(self, *_: Any, **__: Any) -> WorkerPoolFound:
            return found

    plan = await WorkerPoolPlanner(cast(Any, Shelf())).plan(("default", "workers"), pool)
    specs = [(z.replicas, z.deployment.spec) for z in plan.expansion.zones]
    assert [(n, "replicas" in spec.model_fields_set) for n, spec in specs] == [(1, True), (2, False)]
    assert specs[0][1].replicas == 1
    assert [plan.has(zone) is not None for zone in plan.expansion.zones] == [False, True]


def test_names_go_by_the_zone_not_by_its_place() -> None:
    one = example("AWS")
    turned = put(one, "zones", [*reversed(one["spec"]["zones"])])
    assert {z.name: z.machine_class.metadata.name for z in made(one).zones} == {
        z.name: z.machine_class.metadata.name for z in made(turned).zones
    }


GOLDEN = {
    "AWS": ["workers-eu-west-1a-be692", "workers-eu-west-1b-acf58"],
    "Azure": ["workers-azure-1-6c080", "workers-azure-2-35c8c"],
    "GCP": ["workers-gcp-europe-west1-b-8cb7b", "workers-gcp-europe-west1-c-a405a"],
}
"""Another name of a class rolls every worker pool at an upgrade of Hostler: these stay."""


@pytest.mark.parametrize("provider", FILES)
def test_the_names_of_classes_stay_from_release_to_release(provider: str) -> None:
    assert [zone.machine_class.metadata.name for zone in made(example(provider)).zones] == GOLDEN[provider]


def test_what_an_autoscaler_has_set_stays_within_minimum_and_maximum() -> None:
    kept, cut = made(example("AWS"), **{"eu-west-1a": 3, "eu-west-1b": 9}).zones
    assert [z.replicas for z in (kept, cut)] == [3, 3]
    assert "replicas" not in kept.deployment.spec.model_fields_set  # who changes it meanwhile is not overruled
    assert cut.deployment.spec.replicas == 3
    assert [z.replicas for z in made(example("AWS"), **{"eu-west-1a": 0}).zones] == [1, 1]


def test_shares_are_said() -> None:
    uneven = put(put(put(example("AWS"), "maximum", 5), "maxSurge", 1), "machineControllerManager", {})
    assert list(made(uneven).warnings) == [
        "maximum: 5 over 2 zones is eu-west-1a 3, eu-west-1b 2",
        "maxSurge: 1 over 2 zones is eu-west-1a 1, eu-west-1b 0",
        "maxSurge: eu-west-1b get 1 each: with maxSurge 0 and maxUnavailable 0 nothing could be replaced there; write "
        "maxSurge: 2 or more",
    ]


def test_hot_updates_of_all_zones_share_one_budget() -> None:
    document = example("AWS")
    document["metadata"]["annotations"] = {"hostler.io/update-concurrency": "5"}
    zones = made(document).zones
    key = "hostler.io/update-concurrency"
    assert [z.machine_class.metadata.annotations[key] for z in zones] == ["3", "2"]
    assert [z.deployment.metadata.annotations[key] for z in zones] == ["3", "2"]


def test_a_budget_of_fewer_machines_than_zones_goes_from_zone_to_zone() -> None:
    """No more machines are updated at a time than it says: with 2 over 3 zones, the third zone comes after the
    first."""
    document = put(example("AWS"), "zones", ["eu-west-1a", "eu-west-1b", "eu-west-1c"])
    document["spec"]["infrastructure"]["subnets"]["eu-west-1c"] = "subnet-0a1b2c3d4e5f60003"
    for limit, after in (("1", [None, 0, 1]), ("2", [None, None, 0]), ("3", [None, None, None])):
        document["metadata"]["annotations"] = {"hostler.io/update-concurrency": limit}
        expansion = made(document)
        names = [z.machine_class.metadata.name for z in expansion.zones]
        found = [z.machine_class.metadata.annotations.get("hostler.io/updates-after") for z in expansion.zones]
        assert found == [names[n] if n is not None else None for n in after]
        pools = [z.deployment.metadata.annotations.get("hostler.io/updates-after") for z in expansion.zones]
        assert pools == [expansion.zones[n].name if n is not None else None for n in after]
        assert any("from zone to zone" in line for line in expansion.warnings) == (limit != "3")


def test_zones_one_after_the_other() -> None:
    first, second = made(put(example("AWS"), "zoneStrategy", "Sequential")).zones
    assert first.deployment.spec.rolls_after is None
    after = second.deployment.spec.rolls_after
    assert after is not None
    assert (after.pool, after.class_) == (first.name, first.machine_class.metadata.name)
    assert all(z.deployment.spec.rolls_after is None for z in made(example("AWS")).zones)


def test_gates_are_handed_down() -> None:
    window = {"windows": [{"begin": "22:00", "end": "04:00", "timezone": "Europe/Berlin"}]}
    document = put(put(put(example("AWS"), "maintenance", window), "approval", {"required": True}), "pauseAfter", 1)
    for zone in made(document).zones:
        spec = zone.deployment.spec
        assert [w.begin for w in spec.maintenance.windows] == ["22:00"]
        assert spec.approval.required
        assert spec.strategy.rolling is not None
        assert spec.strategy.rolling.pause_after == 1


def test_labels_are_for_nodes_and_never_become_tags() -> None:
    """Seed 002: labels were passed as tags, which exhausts their number."""
    zone = made(put(example("AWS"), "labels", {"only": "nodes"})).zones[0]
    assert zone.deployment.spec.template.spec.node_template.metadata.labels["only"] == "nodes"
    assert "only" not in str(zone.machine_class.provider_spec)


# -- Azure without zones, and what does not fit ------------------------------------------------------------------------


def test_a_pool_without_zones_where_the_cloud_has_such() -> None:
    (zone,) = made(
        put(put(example("Azure"), "zones", []), "infrastructure.availabilitySet", "/subscriptions/s/set")
    ).zones
    assert zone.name == "workers-azure"
    assert zone.machine_class.provider_spec["properties"]["availabilitySet"] == {"id": "/subscriptions/s/set"}
    with pytest.raises(Unfit, match="zones: missing: there is a pool in each zone"):
        made(put(example("AWS"), "zones", []))


UNFIT = [
    (
        "AWS",
        "zones",
        ["eu-west-1z"],
        "zones: the infrastructure has no subnet in eu-west-1z; it has some in",
    ),
    ("AWS", "machine.image.version", "9", "machine.image: the infrastructure's machineImages have no flatcar 9; they "),
    (
        "AWS",
        "machine.architecture",
        "arm64",
        "machine.architecture: flatcar 4459.2.1 is not there for arm64; it",
    ),
    (
        "AWS",
        "providerConfig.dataVolumes",
        [{"name": "x"}],
        "providerConfig.dataVolumes: the worker has no data",
    ),
    ("Azure", "zones", ["westeurope-1"], "zones: westeurope-1 is no zone of this cloud: they are called 1, 2 and 3"),
    ("GCP", "volume.encrypted", False, "volume.encrypted: false: the cloud encrypts every disk; remove it, or write"),
]


@pytest.mark.parametrize(("provider", "path", "value", "words"), UNFIT)
def test_what_the_infrastructure_has_not_is_said(provider: str, path: str, value: Any, words: str) -> None:
    with pytest.raises(Unfit) as found:
        made(put(example(provider), path, value))
    assert str(found.value).startswith(words)


REFUSED = [
    ("minimum", 7, "spec: maximum (6) is less than minimum (7)"),
    ("updateStrategy", "AutoInPlaceUpdate", "spec.updateStrategy: machines are not updated in place by an agent"),
    ("providerConfig.volum", {}, "spec.providerConfig.volum: unknown field; did you mean volume or dataVolumes?"),
    ("infrastructure.subnets", {"us-1a": "s"}, "spec.infrastructure subnets: us-1a: no zone of the region eu-west-1"),
    ("volume.size", "50 apples", "spec.volume.size: not the size of a volume; write it like 50Gi"),
    ("taints", [{"key": "a b", "effect": "NoSchedule"}], 'spec.taints[0].key: Invalid value: "a b"'),
    ("provider", "Oracle", "provider 'Oracle' has no driver; there are drivers for AWS, Azure, GCP"),
]


@pytest.mark.parametrize(("path", "value", "words"), REFUSED)
def test_what_is_wrong_is_said_where_it_is_written(path: str, value: Any, words: str) -> None:
    with pytest.raises(ManifestError) as found:
        load_manifests(yaml.safe_dump(put(example("AWS"), path, value)), "f.yaml")
    assert f"f.yaml (document 1): WorkerPool workers: {words}" in str(found.value)


@pytest.mark.parametrize("name", ["autoPreserveFailedMax", "autoPreserveFailedMachineMax"])
@pytest.mark.parametrize("place", ["", "machineControllerManager."])
def test_either_name_in_either_place_is_the_number_of_slots(name: str, place: str) -> None:
    document = put(put(example("AWS"), "machineControllerManager", {}), f"{place}{name}", 4)
    assert [z.deployment.spec.auto_preserve_failed_max for z in made(document).zones] == [2, 2]
    other = put(document, "machineControllerManager.autoPreserveFailedMachineMax", 6)
    if place == "" or name == "autoPreserveFailedMax":
        with pytest.raises(ManifestError, match="mean the same but differ"):
            made(other)


# -- a Shoot -----------------------------------------------------------------------------------------------------------


def test_a_shoots_workers_are_taken_as_they_are() -> None:
    loaded = load_manifests((EXAMPLES / "shoot.yaml").read_text(), "shoot.yaml")
    assert loaded.warnings == []
    (pool,) = resolved(loaded)
    (zone,) = expand(pool).zones
    spec = zone.deployment.spec
    assert (zone.name, zone.minimum, zone.maximum) == ("shoot-w1-eu-west-1a", 1, 3)
    assert spec.template.spec.node_conditions == ["KernelDeadlock", "ReadonlyFilesystem"]
    assert [t.key for t in spec.template.spec.node_template.spec.taints] == ["dedicated"]
    assert [(w.begin, w.end, w.timezone) for w in spec.maintenance.windows] == [("22:00", "23:00", "+01:00")]
    assert zone.machine_class.provider_spec["blockDevices"][0]["ebs"]["iops"] == 3000
    assert zone.deployment.metadata.namespace == "garden-demo"


BLOCK = """
    - {name: w, minimum: 2, maximum: 4, maxSurge: 2, maxUnavailable: 0, zones: ZONES,
       machine: MACHINE, volume: {type: TYPE, size: 50Gi},
       machineControllerManager: {machineDrainTimeout: 2m, maxEvictRetries: 3},
       systemComponents: {allow: true}, cri: {name: containerd},
       providerConfig: {apiVersion: x.provider.extensions.gardener.cloud/v1alpha1, kind: WorkerConfig}}
"""


@pytest.mark.parametrize("provider", FILES)
def test_a_workers_block_of_each_cloud(provider: str) -> None:
    of = example(provider)["spec"]
    block = BLOCK.replace("ZONES", str(of["zones"])).replace("MACHINE", str(of["machine"]))
    shoot = f"""
kind: Shoot
metadata: {{name: s}}
spec:
  provider:
    type: {provider.lower()}
    workers: {block.replace("TYPE", of["volume"]["type"])}
---
kind: Infrastructure
metadata: {{name: s}}
provider: {provider}
spec: {of["infrastructure"]}
"""
    loaded = load_manifests(shoot, "s.yaml")
    assert [w.partition("WorkerPool w: ")[2].partition(":")[0] for w in loaded.warnings] == [
        "spec.machineControllerManager.maxEvictRetries",
        "spec.cri",
    ]
    (pool,) = resolved(loaded)
    zones = expand(pool).zones
    assert [z.zone for z in zones] == of["zones"]
    assert all(complaints(m) == [] for z in zones for m in (z.deployment, z.machine_class))


# -- the effect of each field ------------------------------------------------------------------------------------------


def table(provider: str) -> str:
    found: dict[Effect, list[str]] = {effect: [] for effect in Effect}
    for path, effect in field_effects(provider).items():
        found[effect].append(path)
    return "".join(f"{effect}\n" + "".join(f"  {p}\n" for p in paths) for effect, paths in found.items() if paths)


@pytest.mark.parametrize("provider", FILES)
def test_the_effect_of_every_field_is_listed(provider: str) -> None:
    """Golden: a field that changes its effect, or comes without one, is seen in review."""
    golden = ROOT / "tests" / "testdata" / "workerpool" / f"{provider.lower()}.txt"
    assert table(provider) == golden.read_text()


def does(before: ZonePlan, after: ZonePlan) -> Iterator[Effect]:
    """What a change does to a zone, by what is made of it."""
    old, new = before.machine_class, after.machine_class
    difference = compare(old.provider, old.provider_spec, new.provider_spec)
    if old.metadata.name != new.metadata.name:
        yield Effect.HASH
    if difference.hot and not difference.rolls:
        yield Effect.HOT
    if template(before) != template(after):
        yield Effect.HOT
    if rest(before) != rest(after):
        yield Effect.POOL


def template(zone: ZonePlan) -> Json:
    """What machines take without being replaced; the timeout of preservations counts for later ones only."""
    return zone.deployment.spec.template.model_dump(exclude={"spec": {"class_", "machine_preserve_timeout"}})


def rest(zone: ZonePlan) -> tuple[Json, Json]:
    of_class = zone.machine_class.model_dump(exclude={"provider_spec", "metadata"})
    return zone.deployment.spec.model_dump(exclude={"template"}), of_class


CHANGES: list[tuple[str, str, Any]] = [
    ("AWS", "machine.type", "m5.xlarge"),
    ("AWS", "machine.image.version", "4459.2.2"),
    ("AWS", "volume.size", "60Gi"),
    ("AWS", "volume.encrypted", False),
    ("AWS", "dataVolumes", [{"name": "d", "size": "10Gi"}]),
    ("AWS", "labels", {"a": "b"}),
    ("AWS", "annotations", {"a": "b"}),
    ("AWS", "taints", [{"key": "a", "effect": "NoSchedule"}]),
    ("AWS", "minimum", 4),
    ("AWS", "maxSurge", 4),
    ("AWS", "maxUnavailable", 2),
    ("AWS", "minReadySeconds", 9),
    ("AWS", "pauseAfter", 1),
    ("AWS", "updateStrategy", "OnDelete"),
    ("AWS", "repair", {"maxConcurrent": 2}),
    ("AWS", "paused", True),
    ("AWS", "hibernated", True),
    ("AWS", "maintenance", {"windows": [{"begin": "01:00", "end": "02:00"}]}),
    ("AWS", "approval", {"required": True}),
    ("AWS", "progressDeadlineSeconds", 900),
    ("AWS", "machineControllerManager.machineDrainTimeout", "3m"),
    ("AWS", "machineControllerManager.machineHealthTimeout", "3m"),
    ("AWS", "machineControllerManager.machineCreationTimeout", "3m"),
    ("AWS", "machineControllerManager.nodeConditions", ["X"]),
    ("AWS", "machineControllerManager.disableHealthTimeout", True),
    ("AWS", "machineControllerManager.autoPreserveFailedMachineMax", 4),
    ("AWS", "machineControllerManager.machinePreserveTimeout", "1h"),
    ("AWS", "providerConfig.vmTags", {"a": "b"}),
    ("AWS", "providerConfig.nicTags", {"a": "b"}),
    ("AWS", "providerConfig.diskTags", {"a": "b"}),
    ("AWS", "providerConfig.instanceMetadataOptions", {"httpTokens": "optional"}),
    ("AWS", "providerConfig.iamInstanceProfile", {"name": "other"}),
    ("AWS", "providerConfig.volume.iops", 4000),
    ("AWS", "providerConfig.cpuOptions", {"coreCount": 1, "threadsPerCore": 1}),
    ("AWS", "providerConfig.capacityReservation", {"capacityReservationPreference": "open"}),
    ("AWS", "providerConfig.placement", {"groupId": "pg-1"}),
    ("AWS", "providerConfig.instanceMarketOptions", {"marketType": "spot"}),
    ("AWS", "providerConfig.nodeTemplate", {"capacity": {"cpu": "2"}}),
    ("AWS", "infrastructure.securityGroupIDs", ["sg-0a1b2c3d4e5f60002"]),
    ("AWS", "infrastructure.keyName", "others"),
    ("AWS", "infrastructure.srcAndDstChecksEnabled", True),
    ("AWS", "infrastructure.userDataSecretRef.name", "other"),
    ("AWS", "infrastructure.credentialsSecretRef", {"name": "other"}),
    ("AWS", "infrastructure.subnets", {"eu-west-1a": "subnet-9", "eu-west-1b": "subnet-8"}),
    ("AWS", "infrastructure.machineImages[0].versions[0].regions[0].ami", "ami-9"),
    ("Azure", "machine.type", "Standard_D4s_v5"),
    ("Azure", "volume.type", "StandardSSD_LRS"),
    ("Azure", "dataVolumes", [{"name": "d", "size": "10Gi"}]),
    ("Azure", "providerConfig.vmTags", {"a": "b"}),
    ("Azure", "providerConfig.volume.caching", "None"),
    ("Azure", "providerConfig.diagnosticsProfile", {"enabled": True}),
    ("Azure", "providerConfig.capacityReservation.capacityReservationGroup", "/subscriptions/s/group"),
    ("Azure", "infrastructure.ipForwarding", False),
    ("Azure", "infrastructure.identityID", "/subscriptions/s/identity"),
    ("Azure", "infrastructure.sshPublicKey", "ssh-rsa A"),
    ("Azure", "infrastructure.subnets", {"1": "nodes-z1"}),
    ("GCP", "machine.type", "n2-standard-4"),
    ("GCP", "volume.type", "pd-ssd"),
    ("GCP", "dataVolumes", [{"name": "d", "size": "10Gi"}]),
    ("GCP", "providerConfig.vmTags", {"a": "b"}),
    ("GCP", "providerConfig.diskTags", {"a": "b"}),
    ("GCP", "providerConfig.gpu", {"acceleratorType": "nvidia-l4", "count": 1}),
    ("GCP", "providerConfig.bootVolume.provisionedIops", 4000),
    ("GCP", "providerConfig.minCpuPlatform", "Intel Ice Lake"),
    ("GCP", "providerConfig.serviceAccount", {"email": "a@b", "scopes": ["s"]}),
    ("GCP", "providerConfig.scheduling", {"provisioningModel": "SPOT"}),
    ("GCP", "infrastructure.networkTags", ["other"]),
    ("GCP", "infrastructure.metadata", {"a": "b"}),
    ("GCP", "infrastructure.canIpForward", False),
]


@pytest.mark.parametrize(("provider", "path", "value"), CHANGES, ids=lambda v: v if isinstance(v, str) else "")
def test_a_change_does_what_the_list_says(provider: str, path: str, value: Any) -> None:
    said = effect_of(path, field_effects(provider))
    before, after = made(example(provider)).zones[0], made(put(example(provider), path, value)).zones[0]
    expected = Effect.HASH if said is Effect.POST_START else said
    assert set(does(before, after)) == {expected}


def test_an_image_that_no_worker_asks_for_changes_nothing() -> None:
    changed = put(example("AWS"), "infrastructure.machineImages[0].versions[1].regions[0].ami", "ami-9")
    before, after = made(example("AWS")), made(changed)
    assert set(does(before.zones[0], after.zones[0])) == set()
    assert (
        before.zones[0].deployment.metadata.annotations[WORKER_POOL_ANNOTATION]
        != (after.zones[0].deployment.metadata.annotations[WORKER_POOL_ANNOTATION])
    )


# -- the shape of a plug -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", [*PROVIDERS.values(), FAKE], ids=lambda p: p.name)
def test_every_cloud_has_a_plug_of_one_shape(provider: Provider) -> None:
    plug = provider.workers
    assert plug is not None
    fields = {info.alias or name for name, info in plug.infrastructure.model_fields.items()}
    assert {"region", "credentialsSecretRef", "userDataSecretRef", "machineImages"} <= fields
    for function, names in (
        (plug.provider_spec, ["settings", "config", "infrastructure", "zone"]),
        (plug.zone_labels, ["infrastructure", "zone"]),
    ):
        parameters = inspect.signature(function, eval_str=True).parameters
        assert [*parameters] == names
        assert parameters["infrastructure"].annotation is plug.infrastructure
        assert function.__module__.endswith(".worker")


MADE_UP = """
kind: WorkerPool
metadata: {name: w}
spec:
  provider: Fake
  minimum: 1
  maximum: 2
  zones: [x]
  machine: {type: big, image: {name: os, version: "1"}}
  volume: {size: 20Gi}
  providerConfig: {labels: {a: b}}
  infrastructure:
    region: r
    networks: {x: net-1}
    userDataSecretRef: {name: s}
    machineImages: [{name: os, versions: [{version: "1", image: i-1}]}]
"""


def test_nothing_but_its_plug_names_a_cloud() -> None:
    with registered():
        (pool,) = resolved(load_manifests(MADE_UP, "f.yaml"))
        (zone,) = expand(pool).zones
        assert complaints(zone.machine_class) == []
        assert zone.machine_class.provider_spec["disks"] == [{"sizeGb": 20}]
        (retagged,) = expand(resolved(load_manifests(MADE_UP.replace("a: b", "a: c"), "f.yaml"))[0]).zones
        (replaced,) = expand(resolved(load_manifests(MADE_UP.replace("i-1", "i-2"), "f.yaml"))[0]).zones
        names = [z.machine_class.metadata.name for z in (zone, retagged, replaced)]
        assert names[0] == names[1] != names[2]


def test_a_cloud_without_worker_pools_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROVIDERS, FAKE.name, dataclasses.replace(FAKE, workers=None))
    with pytest.raises(ManifestError, match="provider Fake has no worker pools; apply a MachineDeployment"):
        load_manifests(MADE_UP, "f.yaml")


def test_the_record_is_the_worker_pool_as_it_was_applied() -> None:
    (pool,) = resolved(load_manifests((EXAMPLES / "aws.yaml").read_text(), "f"))
    kept = expand(pool).zones[0].deployment.metadata.annotations[WORKER_POOL_ANNOTATION]
    assert WorkerPool.model_validate_json(kept) == pool


def test_each_wait_of_its_zones_says_what_can_be_done() -> None:
    """Once for each reason, in a command for the first zone's pool."""
    spec = {"replicas": 1, "template": {"spec": {"class": {"name": "c1"}}}}
    waits = [FleetWait(reason="Frozen", message="since noon", since=EARLIEST)]
    states = [PoolState(name=f"w-{zone}", cluster="prod", spec=spec, waits=waits) for zone in "ab"]
    found = WorkerPoolFound("w", "prod", tuple(ZoneFound(s.name[-1], s) for s in states))
    assert advice(found) == [
        "  What can be done about Frozen: `hostler unfreeze pool w-a --cluster prod`, or `hostler unfreeze cluster "
        "prod` if the cluster is frozen. (and so for w-b)"
    ]
