"""What `hostler describe controlplane` and `hostler tree controlplane` show a person who was woken at night."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cli.place import class_yaml

from resources.cluster.state import ClusterState
from resources.control_plane.expansion import expand
from resources.control_plane.manifest import ControlPlaneMachineSet
from resources.control_plane.spec import ControlPlaneSpec, State, UpdateStrategy
from resources.control_plane.state import ControlPlaneState, SetCondition
from resources.control_plane.summary import ControlPlaneSummary, HostSummary, IndexSummary
from resources.fleet.rehearsal import RevisionSummary
from resources.fleet.state import FleetWait
from resources.machine.state import ClassSnapshot, Phase
from resources.manifests import MachineClass
from resources.reasons import next_step
from starter.commands.describe import control_plane_lines
from starter.commands.tree_view import ControlPlaneFacts, TreeFacts, lines, tree
from starter.sdk.control_plane.results import ControlPlaneDescription, ControlPlaneListed, control_plane_manifest, judge
from starter.sdk.fleet.waiting import Stand
from starter.sdk.results import ClusterDescription, ClusterSummary, MachineSummary

NOW = datetime(2026, 3, 1, 3, 0, 0, tzinfo=UTC)
ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def host(name: str, zone: str = "", **more: Any) -> HostSummary:
    given = {"phase": Phase.RUNNING, "since": ago(days=3), "ready": True, "failure_domain": zone, "revision": 1}
    return HostSummary(**{"name": name, **given, **more})


def place(index: int, *hosts: HostSummary, waits: str = "") -> IndexSummary:
    return IndexSummary(index=index, failure_domain=ZONES[index], hosts=hosts, done=not waits, waits=waits)


def condition(of: str, status: bool, reason: str, message: str = "", **span: float) -> SetCondition:
    return SetCondition(type=of, status=status, reason=reason, message=message, since=ago(**span))


def summary(*indexes: IndexSummary, **more: Any) -> ControlPlaneSummary:
    hosts = [h for i in indexes for h in i.hosts]
    counts = {
        "machines": len(hosts),
        "ready": sum(h.ready for h in hosts),
        "updated": sum(h.ready and not (h.outdated or h.leaving) for h in hosts),
        "unavailable": sum(not any(h.ready for h in i.hosts) for i in indexes),
        "rolled_out": all(i.done for i in indexes),
    }
    of = {"name": "cluster", "cluster": "prod", "machine_class": "controlplane", "generation": 4, "revision": 2}
    kind = {"state": State.ACTIVE, "strategy": UpdateStrategy.ROLLING_UPDATE, "replicas": 3, "quorum": 2}
    return ControlPlaneSummary(**{**of, **kind, **counts, "indexes": list(indexes), **more})


def state(**more: Any) -> ControlPlaneState:
    spec = ControlPlaneSpec.model_validate(
        {"state": "Active", "template": {"spec": {"class": {"name": "controlplane"}}}, **more}
    )
    return ControlPlaneState(name="cluster", cluster="prod", spec=spec, created=ago(days=90))


def description(s: ControlPlaneSummary | None, phase: str, **more: Any) -> ControlPlaneDescription:
    listed = ControlPlaneListed("cluster", "prod", ago(days=90), phase, machine_class="controlplane", summary=s)
    return ControlPlaneDescription(listed, **{"status": "RUNNING", "state": state(), **more})


def page(s: ControlPlaneSummary | None, phase: str, **more: Any) -> str:
    return "\n".join(control_plane_lines(description(s, phase, **more), NOW))


MESSAGE = (
    "1 replacement cannot become ready: prod-master-qwert-1: The image id 'ami-0bad' does not exist. Correct the "
    "template, which replaces prod-master-qwert-1, or delete it to try again"
)
STUCK = summary(
    place(0, host("prod-master-x7k2p-0", ZONES[0], revision=2)),
    place(
        1,
        host("prod-master-8fk2d-1", ZONES[1], outdated="class controlplane, generation 3 instead of 4"),
        host("prod-master-qwert-1", ZONES[1], phase=Phase.FAILED, ready=False, failure="no such image", revision=2),
        waits="prod-master-qwert-1, which cannot become ready: no such image",
    ),
    place(
        2,
        host("prod-master-zzz7d-2", ZONES[2], outdated="class controlplane, generation 3 instead of 4"),
        waits="a person: FailedReplacement",
    ),
    waits=[FleetWait(reason="FailedReplacement", message=MESSAGE, since=ago(minutes=12))],
    conditions=[
        condition("Available", True, "AllReplicasAvailable", days=90),
        condition("Degraded", True, "FailedReplacement", MESSAGE, minutes=12),
        condition("Progressing", False, "OperatorDegraded", minutes=12),
    ],
    revisions=[
        RevisionSummary(revision=1, created=ago(days=90), machine_class="controlplane", generation=3, machines=2),
        RevisionSummary(
            revision=2,
            created=ago(minutes=40),
            machine_class="controlplane",
            generation=4,
            machines=2,
            requested_by="alice@desk",
            reason="new image",
        ),
    ],
)


def test_a_bad_image_at_three_in_the_morning() -> None:
    """What is wrong and what can be done come first, then each index."""
    found = page(STUCK, "Stopped")
    assert found.startswith(
        f"""\
Name:      cluster
Cluster:   prod
Phase:     Stopped
Update:    Active, RollingUpdate: one index at a time, the new machine first
Machines:  3 of 3 ready (quorum 2), 1 up to date, 4 in all
Class:     controlplane, generation 4
Revision:  2
Created:   2025-12-01 03:00:00 UTC (90d ago)

Waiting for:
  Reason:            FailedReplacement
  Message:           {MESSAGE}
  Since:             2026-03-01 02:48:00 UTC (12m ago)
  What can be done:  {next_step("FailedReplacement", "prod", "cluster", "controlplane")}

Indexes:
  INDEX   MACHINE               PHASE     READY   UPDATED   DOMAIN
  0       prod-master-x7k2p-0   Running   yes     yes       eu-west-1a
  1       prod-master-8fk2d-1   Running   yes     no        eu-west-1b
  1       prod-master-qwert-1   Failed    no      yes       eu-west-1b
  2       prod-master-zzz7d-2   Running   yes     no        eu-west-1c
  Index 1 waits for prod-master-qwert-1, which cannot become ready: no such image
    prod-master-8fk2d-1 differs: class controlplane, generation 3 instead of 4
  Index 2 waits for a person: FailedReplacement
    prod-master-zzz7d-2 differs: class controlplane, generation 3 instead of 4

Conditions:
  TYPE          STATUS   REASON                 SINCE   MESSAGE
  Available     True     AllReplicasAvailable   90d     <none>
  Degraded      True     FailedReplacement      12m     as above
  Progressing   False    OperatorDegraded       12m     <none>
"""
    ), found
    assert "hostler rollout undo controlplane --cluster prod --dry-run " in found
    assert "controlplane cluster" not in found, "nobody types the name of a cluster's only one"


def test_the_tree() -> None:
    machines = [
        MachineSummary(h.name, "prod", ago(days=3), str(h.phase), pool="controlplane/cluster")
        for i in STUCK.indexes
        for h in i.hosts
    ]
    cluster = ClusterDescription(ClusterSummary("prod", "Watching", 0, True), ClusterState(name="prod"))
    seen = TreeFacts(cluster, [], machines, control_plane=ControlPlaneFacts(description(STUCK, "Stopped").listed))
    shown = ["".join(text for text, _ in line) for line in lines(tree(seen), NOW, 80)]
    assert shown[:10] == [
        "NAME                                PHASE      READY   SINCE   REASON",
        "cluster/prod                        Watching   3/4",
        "└─controlplane/cluster              Stopped    3/3     12m     FailedReplacement",
        "      1 replacement cannot become ready: prod-master-qwert-1: The image id 'ami…",
        "  ├─index 0 (eu-west-1a)                       1/1",
        "  │ └─machine/prod-master-x7k2p-0   Running            3d",
        "  ├─index 1 (eu-west-1b)                       1/2",
        "  │     waits for prod-master-qwert-1, which cannot become ready: no such image",
        "  │ ├─machine/prod-master-8fk2d-1   Running            3d      Outdated",
        "  │ │     class controlplane, generation 3 instead of 4",
    ]
    silent = ControlPlaneListed("cluster", "prod", NOW, "Rolling", reason="ReplacementComing")
    alone = TreeFacts(cluster, [], machines, {}, "controlplane/cluster", ControlPlaneFacts(silent))
    assert {twig.name for twig in tree(alone).twigs} == {f"machine/{m.name}" for m in machines}


def test_whether_a_person_must_act() -> None:
    """One that is on its way is waited for first: what a person has to do may then look otherwise."""
    whole = summary(*[place(i, host(f"cp-{i}", ZONES[i])) for i in range(3)])
    assert judge(description(whole, "Ready")).stand is Stand.DONE
    assert judge(description(STUCK, "Stopped")).stand is Stand.STANDS
    waits = [FleetWait(reason="DeleteToReplace", message="words", since=NOW)]
    old = [place(i, host(f"cp-{i}", outdated="image"), waits="a person") for i in range(2)]
    on_delete = summary(*old, place(2, host("cp-2")), waits=waits)
    assert judge(description(on_delete, "Rolling")).stand is Stand.STANDS
    coming = place(2, host("cp-2", ready=False, phase=Phase.PENDING), waits="cp-2 to become ready")
    assert judge(description(summary(*old, coming, waits=waits), "Rolling")).stand is Stand.GOING
    assert judge(description(None, "Rolling", no_answer="nobody polls")).stand is Stand.GOING


def test_it_is_a_manifest_that_can_be_applied() -> None:
    domains = {zone: {"placement": {"availabilityZone": zone}} for zone in ZONES}
    snapshot = ClassSnapshot.of(MachineClass.model_validate(class_yaml()), 4)
    of = state(failureDomains=domains, namePrefix="prod-master").model_copy(update={"machine_class": snapshot})
    made = control_plane_manifest(of, STUCK)
    assert made["status"]["readyReplicas"] == 3
    told = {c["type"]: c["status"] for c in made["status"]["conditions"]}
    assert told == {"Available": "True", "Degraded": "True", "Progressing": "False"}
    again = expand(ControlPlaneMachineSet.model_validate({k: v for k, v in made.items() if k != "status"}))
    assert again.machine_class is None
    assert again.spec == of.spec


def test_what_is_known_without_a_worker_and_when_it_is_gone() -> None:
    found = page(None, "Rolling", no_answer="nobody polls hostler", machines=3)
    assert "Phase:     Rolling\n" in found
    assert "Machines:  3, according to the list of workflows\n" in found
    assert "No answer: nobody polls hostler.\nWhat can be done: `hostler doctor` names the worker" in found
    gone = page(STUCK, "Deleting", status="COMPLETED", ended=ago(hours=1), machines=3)
    assert "Phase:     (gone)\n" in gone
    assert "Its machines stay, and are replaced by nobody." in gone
    assert "Next steps" not in gone
