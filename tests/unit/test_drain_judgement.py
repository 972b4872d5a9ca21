"""What a drain reads from pods, budgets and volumes, and how it says what is in the way. No calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.drain import budgets, pods, words
from activities.drain.memory import Memory, Move, RefusedEviction
from activities.kube.volumes import AttachedVolumes, attachments, claim_of, disk_of

NOW = datetime(2031, 1, 1, 14, 0, tzinfo=UTC)
DAEMON = {"kind": "DaemonSet", "controller": True}


def pod(
    name: str = "web-1", *, phase: str = "Running", spec: dict[str, Any] | None = None, **metadata: Any
) -> pods.Pod:
    return {
        "metadata": {"namespace": "default", "name": name, "uid": f"u-{name}", **metadata},
        "spec": spec or {},
        "status": {"phase": phase},
    }


# -- pods --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "alone"),
    [
        pytest.param(pod(), False, id="a pod that nobody makes again"),
        pytest.param(pod(phase="Pending"), False, id="pending"),
        pytest.param(pod(phase="Unknown"), False, id="unknown"),
        pytest.param(pod(phase="Succeeded"), True, id="succeeded"),
        pytest.param(pod(phase="Failed"), True, id="failed"),
        pytest.param(pod(annotations={pods.MIRROR: "x"}), True, id="mirror"),
        pytest.param(pod(ownerReferences=[DAEMON]), True, id="daemon"),
        pytest.param(pod(ownerReferences=[{**DAEMON, "controller": False}]), False, id="owned, not controlled"),
        pytest.param(pod(ownerReferences=[{**DAEMON, "kind": "ReplicaSet"}]), False, id="replica"),
        pytest.param(pod(ownerReferences=[{**DAEMON, "kind": "Node"}]), False, id="a node's"),
    ],
)
def test_which_pods_are_left_alone(given: pods.Pod, alone: bool) -> None:
    assert pods.left_alone(given) is alone


@pytest.mark.parametrize(
    ("toleration", "back"),
    [
        pytest.param({"operator": "Exists"}, True, id="everything"),
        pytest.param({"operator": "Exists", "effect": "NoSchedule"}, True, id="everything of this effect"),
        pytest.param({"operator": "Exists", "effect": "NoExecute"}, False, id="everything of another effect"),
        pytest.param({"key": pods.CORDON, "operator": "Exists"}, True, id="the cordon"),
        pytest.param({"key": pods.CORDON, "operator": "Exists", "value": "x"}, True, id="Exists asks for no value"),
        pytest.param({"key": pods.CORDON, "operator": "Equal", "value": ""}, True, id="it has no value"),
        pytest.param({"key": pods.CORDON}, True, id="Equal is the default"),
        pytest.param({"key": pods.CORDON, "value": "x"}, False, id="another value"),
        pytest.param({"key": pods.CORDON, "operator": "Exists", "effect": "NoExecute"}, False, id="another effect"),
        pytest.param({"key": "example.com/other", "operator": "Exists"}, False, id="another taint"),
        pytest.param({"operator": "Equal", "value": ""}, False, id="without a key only Exists is valid"),
    ],
)
def test_which_tolerations_lift_a_cordon(toleration: dict[str, str], back: bool) -> None:
    other = {"key": "example.com/x", "operator": "Exists"}
    given = pod(spec={"tolerations": [other, toleration]}, creationTimestamp="2031-01-01T14:00:01Z")
    assert pods.came_back(given, NOW) is back


def test_a_pod_came_back_if_it_was_made_later() -> None:
    """It must be later than the second in which the drain began: times of the API have no fractions."""
    spec = {"tolerations": [{"operator": "Exists"}]}
    made = pod(spec=spec, creationTimestamp="2031-01-01T14:00:00Z")
    assert pods.came_back(made, NOW - timedelta(seconds=1))
    assert not pods.came_back(made, NOW)
    assert not pods.came_back(made, NOW + timedelta(seconds=0.4))
    assert not pods.came_back(pod(creationTimestamp="2031-01-01T15:00:00Z"), NOW)  # without tolerations


def going(seconds: float, grace: int) -> pods.Pod:
    """A pod whose grace period ends in this many seconds."""
    end = NOW + timedelta(seconds=seconds)
    return pod(deletionTimestamp=f"{end:%Y-%m-%dT%H:%M:%SZ}", deletionGracePeriodSeconds=grace)


@pytest.mark.parametrize(
    ("given", "alive", "dead"),
    [
        pytest.param(pod(), False, False, id="not going"),
        pytest.param(going(10, 30), False, True, id="in its time"),
        pytest.param(going(-1, 30), True, True, id="past it"),
        pytest.param(going(3599, 3600), False, False, id="just asked to go"),
        pytest.param(going(3590, 3600), False, True, id="a long grace period, not half begun"),
        pytest.param(going(0, 1), False, False, id="at the very end"),
        pytest.param(going(-1, 0), True, True, id="killed, and held by a finalizer"),
    ],
)
def test_when_a_pod_is_overdue(given: pods.Pod, alive: bool, dead: bool) -> None:
    assert (pods.overdue(given, NOW, dead=False), pods.overdue(given, NOW, dead=True)) == (alive, dead)


def test_claims_and_who_shares_them() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "inline", "csi": {"driver": "secrets"}},
    ]
    one = pod(spec={"volumes": volumes})
    assert pods.claims(one) == {"default/data-web": True, "default/web-1-scratch": False}
    ended = pod("job-1", phase="Succeeded", spec={"volumes": volumes[:1]})
    other = pod("web-2", spec={"volumes": volumes[:1]})
    assert pods.in_use([one, ended]) == {"default/data-web": 1, "default/web-1-scratch": 1}
    assert pods.in_use([one, ended, other])["default/data-web"] == 2


def test_the_order_of_pods_with_volumes() -> None:
    given = [
        pod("b"),
        pod("c", spec={"priority": 1000}),
        pod("a", spec={"priority": 0}),
        pod("d", spec={"priority": -5}),
    ]
    assert [p["metadata"]["name"] for p in sorted(given, key=pods.first)] == ["c", "a", "b", "d"]


def test_when_a_grace_period_ends() -> None:
    assert pods.grace_ends(pod(), NOW) == NOW + timedelta(seconds=30)
    assert pods.grace_ends(pod(spec={"terminationGracePeriodSeconds": 0}), NOW) == NOW
    assert pods.grace_ends(going(7, 30), NOW) == NOW + timedelta(seconds=7)


# -- budgets -----------------------------------------------------------------------------------------------------------


def budget(name: str, selector: dict[str, Any] | None = None, **status: Any) -> budgets.Budget:
    return {"metadata": {"name": name, "generation": 1}, "spec": {"selector": selector}, "status": status}


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        pytest.param(None, False, id="none"),
        pytest.param({}, True, id="empty"),
        pytest.param({"matchLabels": {"app": "web"}}, True, id="label"),
        pytest.param({"matchLabels": {"app": "web", "tier": "x"}}, False, id="one label too many"),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, True, id="in"),
        pytest.param(
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False, id="not in"
        ),
        pytest.param({"matchExpressions": [{"key": "no", "operator": "NotIn", "values": ["x"]}]}, True, id="absent"),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True, id="exists"),
        pytest.param({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False, id="does not exist"),
    ],
)
def test_which_pods_a_budget_selects(selector: dict[str, Any] | None, selects: bool) -> None:
    assert budgets.selects(budget("web", selector), {"app": "web"}) is selects


VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
SICK = budget("web", observedGeneration=1, expectedPods=3, currentHealthy=2, disruptionsAllowed=0)
TIGHT = budget("web", observedGeneration=1, expectedPods=3, currentHealthy=3, disruptionsAllowed=0)
ONE_EACH = "the eviction API allows one PDB per pod: delete all but one"


@pytest.mark.parametrize(
    ("status", "message", "selecting", "expected"),
    [
        pytest.param(429, VIOLATES, [SICK], ("blocked by PDB web (0 disruptions allowed)", ""), id="a sick pod"),
        pytest.param(429, VIOLATES, [], (f"blocked: {VIOLATES}", ""), id="the budget has gone meanwhile"),
        pytest.param(
            429, "Too many requests", [TIGHT], ("blocked: the API server asks to try again later", ""), id="busy"
        ),
        pytest.param(500, SEVERAL, [SICK, budget("b")], ("blocked by PDBs web and b", ONE_EACH), id="two"),
        pytest.param(
            500, SEVERAL, [SICK, budget("b"), budget("c")], ("blocked by PDBs web, b and c", ONE_EACH), id="three"
        ),
        pytest.param(500, SEVERAL, [SICK], ("blocked by several PDBs", ONE_EACH), id="one has gone meanwhile"),
        pytest.param(500, "webhook is down", [SICK], ("blocked: webhook is down", ""), id="a webhook"),
        pytest.param(403, "x" * 1000, [], ("blocked: " + "x" * 300, ""), id="long words"),
    ],
)
def test_why_an_eviction_is_refused(
    status: int, message: str, selecting: list[budgets.Budget], expected: tuple[str, str]
) -> None:
    assert budgets.refusal(status, message, selecting) == expected


def test_what_to_do_about_a_budget_that_never_allows_it() -> None:
    why, advice = budgets.refusal(429, VIOLATES, [TIGHT])
    assert why == "blocked by PDB web (0 disruptions allowed)"
    assert advice.startswith("PDB web is misconfigured: all its pods are healthy (3 of 3)")


# -- volumes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "listed"),
    [
        pytest.param(
            {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}},
            "kubernetes.io/csi/ebs.csi.aws.com^vol-1",
            id="csi",
        ),
        pytest.param(
            {"csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": "projects/p/zones/z/disks/d"}},
            "kubernetes.io/csi/pd.csi.storage.gke.io^projects/p/zones/z/disks/d",
            id="csi with slashes",
        ),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "aws://eu-west-1a/vol-1"}},
            "kubernetes.io/csi/ebs.csi.aws.com^vol-1",
            id="AWS in-tree, migrated",
        ),
        pytest.param(
            {"gcePersistentDisk": {"pdName": "d"}},
            "kubernetes.io/csi/pd.csi.storage.gke.io^projects/UNSPECIFIED/zones/z/disks/d",
            id="GCP in-tree, migrated",
        ),
        pytest.param(
            {"azureDisk": {"diskURI": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d"}},
            "kubernetes.io/csi/disk.csi.azure.com^/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d",
            id="Azure in-tree, migrated",
        ),
    ],
)
def test_a_volume_is_found_in_the_nodes_own_list(source: dict[str, Any], listed: str) -> None:
    disk = disk_of({"spec": source})
    assert disk is not None
    assert AttachedVolumes({}, frozenset(), (listed,)).holds("pv", disk)
    assert not AttachedVolumes({}, frozenset(), (f"{listed}0", "kubernetes.io/csi/other^vol")).holds("pv", disk)


def test_volumes_that_are_never_attached() -> None:
    assert disk_of({"spec": {"nfs": {"server": "s", "path": "/"}}}) is None
    assert disk_of({"spec": {"local": {"path": "/mnt"}}}) is None


def attachment(volume: str | None, node: str, attached: bool = True) -> dict[str, Any]:
    source = {"persistentVolumeName": volume} if volume else {"inlineVolumeSpec": {}}
    return {"spec": {"nodeName": node, "source": source}, "status": {"attached": attached}}


def test_what_is_attached_where() -> None:
    node = {
        "metadata": {"name": "n-1"},
        "status": {"volumesAttached": [{"name": "kubernetes.io/csi/x^a"}, {"name": "kubernetes.io/csi/x^d"}]},
    }
    found = attachments(
        [
            attachment("pv-a", "n-1"),
            attachment("pv-b", "n-1", attached=False),
            attachment("pv-b", "n-2"),
            attachment("pv-c", "n-2", attached=False),
            attachment(None, "n-1"),
        ],
        [node],
    )
    assert (set(found.here), found.elsewhere) == ({"pv-a", "pv-b"}, {"pv-b"})
    assert found.left({}) == ["pv-a", "pv-b"]
    assert found.left({"pv-a": "x^a"}) == ["pv-b"]
    assert found.left({"pv-a": "x^a", "pv-b": "x^b"}) == ["kubernetes.io/csi/x^d"]
    assert found.left({"pv-a": "x^a", "pv-b": "x^b", "pv-d": "x^d"}) == []


def test_a_volumes_claim() -> None:
    assert claim_of({"spec": {"claimRef": {"namespace": "default", "name": "data"}}}) == "default/data"
    assert claim_of({"spec": {}}) not in {"default/data", ""}


# -- words -------------------------------------------------------------------------------------------------------------


def refused(why: str = "blocked by PDB web (0 disruptions allowed)", advice: str = "") -> RefusedEviction:
    return RefusedEviction(words=why, advice=advice, wait=timedelta(seconds=5), again=NOW)


def said(gone: int, total: int, **scene: Any) -> str:
    return words.blocker(words.Scene(now=NOW, gone=gone, total=total, **scene))


def test_words() -> None:
    deadline = datetime(2031, 1, 1, 14, 5, tzinfo=UTC)
    blocked = [("default/web-1", refused())]
    expected = "3 of 7 pods gone; default/web-1 blocked by PDB web (0 disruptions allowed), force at 14:05 UTC"
    assert said(3, 7, blocked=blocked, deadline=deadline) == expected
    until = datetime(2031, 1, 1, 14, 3, 20, tzinfo=UTC)
    volume = words.moving(["pvc-1"], "default/db-0", until)
    assert volume == "waiting for volume pvc-1 of default/db-0 to detach (until 14:03:20 UTC)"
    assert said(3, 7, volumes=[volume], deadline=deadline) == f"3 of 7 pods gone; {volume}, force at 14:05 UTC"
    assert said(0, 1) == "0 of 1 pods gone"
    assert said(0, 1, deadline=deadline + timedelta(days=1)) == "0 of 1 pods gone, force at 2031-01-02 14:05 UTC"
    more = words.moving(["pvc-1", "pvc-2", "pvc-3"], "default/db-0", deadline, away=True)
    assert more == "waiting for volume pvc-1 of default/db-0 and 2 more to attach to another node (until 14:05 UTC)"


def test_words_for_what_is_terminating_and_what_waits_for_it() -> None:
    going = [("default/web-1", NOW + timedelta(minutes=10)), ("default/db-0", NOW - timedelta(minutes=3))]
    first = "default/db-0 is terminating, past its grace of 13:57 UTC"
    assert said(0, 2, going=going) == f"0 of 2 pods gone; {first}; default/web-1 is terminating, grace until 14:10 UTC"
    one = said(0, 2, going=going[1:], queued=1, before="default/db-0")
    assert one == f"0 of 2 pods gone; {first}; 1 pod with volumes waits for default/db-0"
    assert said(0, 7, queued=6, before="volume pv").endswith("; 6 pods with volumes wait for volume pv")
    old = said(0, 1, going=[("default/db-0", NOW - timedelta(days=1))])
    assert old.endswith("default/db-0 is terminating, past its grace of 2030-12-31 14:00 UTC")
    many = said(0, 250, going=[(f"default/web-{n}", NOW) for n in range(250)])
    assert many.count("is terminating") == 3
    assert many.endswith("; 247 more terminating")


def test_words_stay_short() -> None:
    """Three blockers, and an advice once for each budget, however many pods it holds."""
    blocked = [(f"default/web-{n}", refused(advice="add pods")) for n in range(250)]
    text = said(0, 250, blocked=blocked)
    assert text.count("blocked by") == 3
    assert text.endswith("; 247 more blocked; add pods")


# -- memory ------------------------------------------------------------------------------------------------------------


def test_a_memory_is_small_and_comes_back_as_it_was() -> None:
    """As JSON in a heartbeat; what an older worker wrote there (`pods` alone) is read as well."""
    everything = Memory(
        attempt=7,
        pods=250,
        refused={f"00000000-0000-4000-8000-{n:012}": refused() for n in range(250)},
        moves={"u-1": Move(pod="default/db-0", volumes={"pv": "x^a"}, outlive=["pv"], until=NOW, attach_until=NOW)},
        shared=["default/data"],
        unknown="volumes are not known: forbidden",
        idle=NOW,
    )
    written = everything.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    assert Memory.model_validate({"message": "0 of 250 pods gone", **written}) == everything
    assert len(str(written)) < 64 * 1024
    assert Memory.model_validate({"message": "1 of 3 pods gone", "pods": 3}) == Memory(pods=3)
    assert Memory.model_validate({}) == Memory()
