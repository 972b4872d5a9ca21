"""What `hostler describe pool` shows a person who was woken at night."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from cli.place import class_yaml
from entitykit import described, waits_for
from pools.behind_cli import pool_yaml

from resources.cluster.news import ClusterNews
from resources.fleet.member import Member
from resources.fleet.rehearsal import RevisionSummary
from resources.fleet.state import FleetWait
from resources.journal import Happening
from resources.machine.state import ClassSnapshot, Condition, Phase
from resources.manifests import MachineClass
from resources.owner import Owner
from resources.pool.intents import PoolSummary
from resources.pool.manifest import MachineDeployment
from resources.pool.state import Gate, PoolState, Rollout
from starter.commands import worker_pools
from starter.commands.describe import pool_lines
from starter.sdk.fleet.trouble import MachineTrouble, first_of
from starter.sdk.pools.results import PoolDescription, PoolListed
from starter.sdk.results import MachineSummary
from starter.sdk.worker_pools import WorkerPoolFound, WorkerPoolListed, ZoneFound

NOW = datetime(2026, 3, 1, 3, 0, 0, tzinfo=UTC)


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def machine(name: str, phase: str, reason: str) -> MachineSummary:
    return MachineSummary(name, "prod", ago(hours=1), phase=phase, reason=reason, pool="web")


def state(**fields: Any) -> PoolState:
    spec = MachineDeployment.model_validate(pool_yaml("web", replicas=4, progressDeadlineSeconds=600)).spec
    snapshot = ClassSnapshot.of(MachineClass.model_validate(class_yaml()), 2)
    return PoolState(name="web", cluster="prod", spec=spec, machine_class=snapshot, **fields)


def summary(**fields: Any) -> PoolSummary:
    return PoolSummary(**{"name": "web", "cluster": "prod", "machine_class": "c1", "replicas": 4, **fields})


def shown(numbers: PoolSummary | None = None, phase: str = "Ready", **fields: Any) -> str:
    listed = PoolListed("web", "prod", ago(days=3), phase=phase, machine_class="c1", summary=numbers)
    return "\n".join(pool_lines(PoolDescription(listed, **{"status": "RUNNING", **fields}), NOW))


def test_a_bad_image_at_three_in_the_morning() -> None:
    rollout = Rollout(
        revision=2, began=ago(minutes=30), progress_at=ago(minutes=9), available=1, old_left=3, gate=Gate.OPEN, lost=1
    )
    message = "The rollout is stuck: 1 machine of revision 2 never joined (web-new-1)"
    numbers = summary(
        revision=2,
        machines=5,
        updated=2,
        available=4,
        unhealthy=1,
        phases=[(1, Phase.RUNNING, 3), (2, Phase.FAILED, 1), (2, Phase.RUNNING, 1)],
        rollout=rollout,
        revisions=[
            RevisionSummary(revision=1, created=ago(days=3), machine_class="c1", generation=1, machines=3),
            RevisionSummary(
                revision=2,
                created=ago(minutes=30),
                machine_class="c1",
                generation=2,
                machines=2,
                requested_by="alice@desk",
                reason="new image",
            ),
        ],
        waits=[FleetWait(reason="NewMachinesNeverJoin", message=message, since=ago(minutes=9))],
    )
    members = {"web-new-1": Member(2, ago(minutes=29), ago(minutes=9), phase=Phase.FAILED)}
    journal = [Happening(time=ago(minutes=9), reason="NewMachinesNeverJoin", message=message)]
    found = shown(
        numbers,
        "Stopped",
        state=state(members=members, journal=journal),
        machines=5,
        unwell=(machine("web-new-1", "Failed", "CreationTimeout"),),
        web="http://ui/web",
    )
    for words in (
        "Phase:     Stopped\n",
        "Class:     c1, generation 2\n",
        "Replicas:  4 wanted\n",
        "Machines:  5 VMs, 4 available, 2 of revision 2, 1 unhealthy\n",
        "Strategy:  RollingUpdate: maxSurge 1, maxUnavailable 0; progressDeadlineSeconds 600\n",
        "Created:   2026-02-26 03:00:00 UTC (3d ago)\n",
        f"Waiting for:\n  Reason:            NewMachinesNeverJoin\n  Message:           {message}\n"
        "  Since:             2026-03-01 02:51:00 UTC (9m ago)\n  What can be done:  ",
        "Rollout to revision 2:\n  Progress:      [#######-----------------------] 25 %\n"
        "  Machines:      revision 2: 2 of 4 updated, 4 available, 3 old ones left, 1 unhealthy\n"
        "  Began:         2026-03-01 02:30:00 UTC (30m ago) by alice@desk: new image\n"
        "  Progressed:    2026-03-01 02:51:00 UTC (9m ago)\n"
        "  Stops:         not before 2026-03-01 03:01:00 UTC (in 60s), unless a new machine is available by then\n"
        "  Never joined:  1\n",
        "Machines by revision:\n  REVISION     PHASES\n  2 (newest)   1 Failed, 1 Running\n  1            3 Running\n",
        "  MACHINE     REVISION   PHASE    REASON            SINCE\n"
        "  web-new-1   2          Failed   CreationTimeout   9m\n"
        "  What can be done about CreationTimeout: ",
        "  More of one: hostler describe machine web-new-1 --cluster prod\n",
        "  2          c1, generation 2   2          30m   alice@desk   new image\n",
        "  9m    NewMachinesNeverJoin   The rollout is stuck: ",
        "  hostler rollout status web --cluster prod -w ",
        "  hostler rollout undo web --cluster prod ",
        "  hostler rollout resume web --cluster prod ",
        "\nWeb UI: http://ui/web",
    ):
        assert words in found, found


def test_the_cause_of_a_refused_machine_comes_first() -> None:
    """What only a person ends outranks what takes its time, and nobody is sent to the page that is read."""
    refused = trouble("ReferenceNotFound", "The image id 'ami-1' does not exist")
    waits = [FleetWait(reason=r, message="words", since=ago(minutes=1)) for r in ("SlowStart", "MachinesNeverJoin")]
    found = shown(
        summary(machines=1, unborn=1, waits=waits),
        unwell=(refused.machine,),
        trouble=refused,
    )
    assert "Machines:  0 VMs, 1 still without one, 0 available" in found
    first = (
        "\nFirst machine to look at:\n  Machine:           m-1, CrashLoopBackOff\n"
        "  Reason:            ReferenceNotFound\n  Message:           The image id 'ami-1' does not exist\n"
    )
    assert found.index(first) < found.index("Waiting for:\n  Reason:            SlowStart")
    assert found.count("What can be done:  what machine m-1 needs, see above") == 1, "not the wait that has a cure"
    assert "describe pool web" not in found
    assert "What can be done about ReferenceNotFound" not in found, "it is said already"
    slow = shown(summary(waits=waits[:1]), trouble=trouble("NodeNotSeen", "no node yet"))
    assert "  What can be done:  Nothing: it takes seconds for each." in slow
    assert slow.index("Reason:            SlowStart") < slow.index("First machine to look at"), "it explains less"


async def test_a_worker_pool_shows_the_machine_of_the_zone_that_waits() -> None:
    """Its pools' waits only say that machines are not there; why they are not is the machine's."""
    wait = FleetWait(reason="NewMachinesNotReady", message="Waiting for 1", since=ago(minutes=1))
    zones = (
        ZoneFound("eu-west-1a", state()),
        ZoneFound("eu-west-1b", state(waits=[wait]).model_copy(update={"name": "b"})),
    )
    full = PoolDescription(
        PoolListed("b", "prod", NOW, summary=summary()), "RUNNING", trouble=trouble("OutOfCapacity", "full")
    )

    async def answer(found: Any) -> Any:
        return found

    client: Any = SimpleNamespace(
        worker_pools=SimpleNamespace(
            get=lambda _: answer(WorkerPoolFound("w", "prod", zones)),
            list=lambda: answer([WorkerPoolListed("w", "prod", ())]),
        ),
        pools=SimpleNamespace(describe=lambda name, cluster: answer({"b": full}[name])),
    )
    lines = await worker_pools.page(client, "w", NOW)
    first = lines.index("First machine to look at:")
    assert [line.split()[1] for line in lines[first + 1 : first + 4]] == ["m-1,", "OutOfCapacity", "full"]
    assert first < lines.index("Waits:")
    assert lines[-1] == "More of a zone: hostler describe pool b --cluster prod"


def trouble(reason: str, message: str) -> MachineTrouble:
    state = waits_for(reason)
    state.status.phase = Phase.CRASH_LOOP_BACK_OFF
    assert state.status.waiting_for is not None
    state.status.waiting_for = state.status.waiting_for.model_copy(update={"message": message})
    return MachineTrouble(machine("m-1", "CrashLoopBackOff", reason), state)


def test_which_machine_is_looked_at_first() -> None:
    reasons = [("m-1", ""), ("m-2", "NodeNotSeen"), ("m-3", "OutOfCapacity"), ("m-4", "InvalidSpec")]
    machines = [machine(name, "Pending", reason) for name, reason in reasons]
    for left in range(len(machines), 0, -1):
        assert first_of(machines[:left]) == machines[left - 1]
    failed = machine("m-5", "Failed", "NodeNotSeen")
    assert first_of([*machines[:2], failed]) == failed
    assert first_of([]) is None


def test_a_rollout_stops_only_while_it_waits_for_machines() -> None:
    rollout = Rollout(revision=2, began=ago(minutes=5), progress_at=ago(minutes=1), old_left=3)

    def of(reason: str, newest: Phase) -> str:
        wait = FleetWait(reason=reason, message="words", since=ago(minutes=1))
        phases = [(1, Phase.RUNNING, 3), (2, newest, 1)]
        return shown(summary(revision=2, phases=phases, rollout=rollout, waits=[wait]), state=state())

    assert "Stops: " in of("NewMachinesNotReady", Phase.PENDING)
    assert "Stops: " in of("NewMachinesNotReady", Phase.RUNNING), "not for minReadySeconds yet"
    assert "Stops: " in of("NewMachinesNeverJoin", Phase.FAILED)
    for reason, newest in (("Canary", Phase.RUNNING), ("RolloutPaused", Phase.PENDING), ("WaitsForVMsToGo", "Running")):
        assert "Stops: " not in of(reason, Phase(newest))


def test_a_machine_of_a_pool_is_replaced_by_it() -> None:
    ill = waits_for("Settling")
    ill.owner, ill.status.waiting_for = Owner(name="web"), None
    ill.status.conditions = [Condition(type="Failed", reason="HealthTimeout", message="words", since=NOW)]
    found = described(ill)
    assert "What can be done about HealthTimeout: Nothing: pool web replaces it, `hostler describe pool web" in found
    ill.owner = None
    assert "Nothing: pool" not in described(ill)


def test_every_machine_that_is_not_well_has_its_reason() -> None:
    ill = tuple(machine(f"web-{n:02}", "Unknown", "NodeStatusUnknown") for n in range(10))
    found = shown(summary(machines=30), unwell=ill, machines=30)
    assert "\nMachines that are not Running:\n" in found
    assert found.count("NodeStatusUnknown") == 11  # and one piece of advice for all of them
    assert "Machines that are" not in shown(summary(machines=30), machines=30)


def test_what_only_some_pools_have() -> None:
    spec = state().spec
    asleep = state().model_copy(update={"spec": spec.model_copy(update={"hibernated": True})})
    found = shown(summary(replicas=0, hibernated=True), "Hibernated", state=asleep)
    assert "Replicas:  4 wanted, but 0 for now: hibernated\n" in found
    assert "  hostler wake pool web --cluster prod " in found

    held = state(paused=True, paused_by="bob@desk")
    assert "Paused:    no rollout begins or continues by bob@desk\n" in shown(summary(paused=True), state=held)
    by_manifest = state().model_copy(update={"spec": spec.model_copy(update={"paused": True})})
    assert "Paused:    no rollout begins or continues, by the manifest\n" in shown(summary(), state=by_manifest)

    parked = shown(summary(parked="KeyError: x"), "Parked", state=state())
    assert "Parked: KeyError: x\nOnce a fixed worker runs: hostler renew pool web --cluster prod\n" in parked

    late = shown(summary(template_pending=3, preserved=1, leaving=2, repairs=1, machines=4), state=state())
    assert "2 leaving, preserved 1, 3 do not have the newest node template yet" in late
    slots = shown(summary(preserved=2, slots_used=1, slots=1, unhealthy=1, machines=4), state=state())
    assert "1 unhealthy, preserved 2 (1 of 1 slots)\n" in slots
    assert "preserved 0 (0 of 2 slots)\n" in shown(summary(slots=2), state=state())
    assert "Repair:    1 at a time, none above 40% unhealthy; 1 in progress\n" in late
    on_delete = spec.model_copy(update={"strategy": spec.strategy.model_copy(update={"type": "OnDelete"})})
    shown_so = shown(summary(), state=state().model_copy(update={"spec": on_delete}))
    assert "Strategy:  OnDelete: an old machine is replaced when somebody deletes it; progressDeadline" in shown_so


def test_only_the_revisions_that_matter_are_listed() -> None:
    revisions = [
        RevisionSummary(revision=n, created=ago(days=9 - n), machine_class="c1", generation=n, machines=int(n == 1))
        for n in range(1, 9)
    ]
    found = shown(summary(revision=8, revisions=revisions)).partition("Revisions:\n")[2].splitlines()
    assert [line.split()[0] for line in found[1:7]] == ["8", "7", "6", "5", "4", "1"]


def test_a_pool_that_is_gone() -> None:
    gone = {"status": "COMPLETED", "ended": ago(hours=1)}
    found = shown(phase="Deleting", state=state(), **gone)
    assert "Phase:     (gone)\n" in found
    assert "Ended:     2026-03-01 02:00:00 UTC (60m ago)\n" in found
    assert "Nothing is left." in found
    assert "Next steps" not in found

    ended = {"status": "TERMINATED", "ended": ago(hours=1), "failure": "somebody ended its workflow"}
    left = (machine("web-1", "Running", ""), machine("web-2", "Running", ""))
    found = shown(phase="Ready", machines=2, unwell=left, **ended)
    for words in (
        "Phase:     Ready, when its workflow ended\n",
        "Machines:  2, according to the list of workflows\n",
        "Somebody ended its workflow.\nWhat can be done: apply its manifest again, which creates a new pool "
        "(hostler apply -f FILE): it takes over the 2 machines that still exist\n",
        "Remaining machines:\n",
        "  hostler get machines --pool web --cluster prod -o wide ",
    ):
        assert words in found, found
    assert "Nothing is left" not in found


def test_what_cannot_be_seen_is_said_on_the_first_screen() -> None:
    down = ClusterNews(reachable=False, message="the API server: connection refused", time=ago(minutes=1))
    assert "Not reachable:  the API server: connection refused" in shown(summary(), state=state(news=down))
    assert "Not reachable" not in shown(summary(), state=state())
