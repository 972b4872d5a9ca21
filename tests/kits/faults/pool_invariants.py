"""The invariants of a pool, checked against the cloud's and the cluster's own records at each of their changes."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from datetime import datetime
from typing import Any

from lifekit import examples, result_of
from pools.lives import Crowd, Pool
from temporalio.client import WorkflowFailureError

from faults.books import books_of
from faults.invariants import Witness, check_i8, check_i11
from resources.journal import Happening
from resources.machine.state import MachineState
from resources.names import (
    CORDON_ANNOTATION,
    INSTANCE_NOT_READY_TAINT,
    MACHINE_NAME_LABEL,
    ROLLOUT_TAINT,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_BY,
    machine_id,
)
from simulator.clouds import Power, Vm
from simulator.kube.resources import NODES
from simulator.kube.selectors import Selector


class Watched(Crowd):
    """A pool watched from before its start. A Crowd counts its VMs."""

    def __init__(self, pool: Pool) -> None:
        self.stack = pool.stack
        self.gone: dict[str, float] = {}
        """When the VMs of machines were gone, by the machines' names."""
        self._prefix = f"{pool.name}-"
        self._serving: set[str] = set()
        self._served = self.stack.simulator.call(self._follow)
        super().__init__(pool.stack, pool.name)

    def _see(self, vm: Vm) -> None:
        super()._see(vm)
        if vm.power is Power.GONE and vm.name.startswith(self._prefix):
            self.gone[vm.name] = time.time()

    def _follow(self) -> Any:
        api = self.stack.simulator.simulator.kube
        assert api is not None
        store = api._registry.store
        return store[NODES].subscribe(Selector(), store.version)

    def in_service(self) -> list[int]:
        """How many of its Nodes took work after each change of one, since this was last asked: they have joined, and no
        drain of ours has begun. A kubelet's short silence or a person's cordon does not count here."""
        return self.stack.simulator.call(self._count)

    def _count(self) -> list[int]:
        counts: list[int] = []
        while self._served.queue:
            type, item = self._served.queue.popleft()
            metadata, spec = item.obj["metadata"], item.obj.get("spec", {})
            if not (metadata.get("labels") or {}).get(MACHINE_NAME_LABEL, "").startswith(self._prefix):
                continue
            new = INSTANCE_NOT_READY_TAINT in [t["key"] for t in spec.get("taints") or ()]
            drained = CORDON_ANNOTATION in (metadata.get("annotations") or {})
            if type == "DELETED" or new or drained:
                self._serving.discard(item.name)
            else:
                self._serving.add(item.name)
            counts.append(len(self._serving))
        return counts

    # -- machines, as they were made ----------------------------------------------------------------------------------

    def launches(self) -> dict[tuple[str, str], set[str]]:
        """The VMs that were made, by name and uid of their machine."""
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for id, vm in books_of(self.stack).vms(lambda vm: vm.machine.startswith(self._prefix)).items():
            found[vm.machine, vm.uid].add(id)
        return found

    def machines(self) -> list[Witness]:
        spec, cluster = examples().machines[0].spec, self.stack.cluster
        return [Witness([MachineState(name=n, cluster=cluster, spec=spec, uid=uid)]) for n, uid in self.launches()]


def check_pool_i1(watched: Watched, machines: int) -> None:
    """Each machine had one VM in its life, and there were no more machines than the flow should make."""
    launches = watched.launches()
    twice = {name: vms for (name, _), vms in launches.items() if len(vms) > 1}
    assert not twice, f"I1: more than one VM was made for {twice}"
    assert not watched.twins, f"I1: two VMs at the same time: {watched.twins}"
    made = sorted(name for (name, _), vms in launches.items() if vms)
    assert len(set(made)) == len(made), f"I1: a name was used again: {made}"
    assert len(made) == machines, f"machines: {len(made)} were made, not {machines}: {made}"


def check_i2(watched: Watched, ceiling: int) -> None:
    """No more than replicas and maxSurge (for a repair one more where that is 0)."""
    assert watched.most <= ceiling, f"I2: {watched.most} VMs at the same time, {ceiling} allowed"


def check_i3(watched: Watched, floor: int) -> None:
    """No fewer than replicas less maxUnavailable. Checked once the pool is up, and again after what must not take it
    lower."""
    counts = watched.in_service()
    assert min(counts, default=floor) >= floor, f"I3: in service {counts}, at least {floor} needed"


def check_i4(watched: Watched, journal: list[Happening], budget: int) -> None:
    """A repair lasts from its permit until the VM is gone; no flow that asks this deletes a machine for another reason
    before."""
    granted: list[datetime] = []
    for happening in journal:
        if happening.reason == "RepairGranted":
            (count,) = re.findall(r"^Repairing (\d+)", happening.message)
            granted += [happening.time] * int(count)
    assert granted, "no repair was ever granted"
    for number, when in enumerate(granted, 1):
        over = sum(gone <= when.timestamp() for gone in watched.gone.values())
        assert number - over <= budget, f"I4: {number - over} repairs in flight at {when}, {budget} allowed"


def check_i15(watched: Watched, wanted: int, losses: int) -> None:
    """Whatever takes them away, and however fast: only as many VMs as are wanted, and as its back-off or its losses
    allow before the first window is over."""
    made = sum(map(len, watched.launches().values()))
    assert made <= wanted + losses, f"I15: {made} VMs were made, {wanted} wanted and {losses} to be lost"


def check_unmarked(pool: Pool, theirs: str) -> None:
    """No Node carries a rollout's marks; `theirs` is one that a person forbids autoscalers to remove (I10)."""
    for node in pool.nodes():
        name, annotations = node["metadata"]["name"], node["metadata"].get("annotations", {})
        assert ROLLOUT_TAINT not in [t["key"] for t in node["spec"].get("taints", ())], f"marks: {name} is tainted"
        assert SCALE_DOWN_DISABLED_BY not in annotations, f"marks: {name} has our annotation"
        kept = annotations.get(SCALE_DOWN_DISABLED)
        assert kept == ("true" if name == theirs else None), f"I10: scale-down-disabled of {name} is {kept}"


def check_pool_i6(watched: Watched) -> None:
    """Nothing is left of any machine that the pool ever had."""
    stack = watched.stack
    secrets = stack.kubectl("get", "secrets", "-n", "kube-system", "-o", "yaml")
    for name, uid in watched.launches():
        left = stack.leftovers(uid)
        assert not left, f"I6: left behind of {name}: {left}"
        assert uid not in secrets, f"I6: a bootstrap token of {name} is left behind"
    nodes = json.loads(stack.kubectl("get", "nodes", "-l", MACHINE_NAME_LABEL, "-o", "json"))["items"]
    names = [node["metadata"]["labels"][MACHINE_NAME_LABEL] for node in nodes]
    of_pool = [name for name in names if name.startswith(f"{watched.pool}-")]
    assert not of_pool, f"I6: Nodes of {of_pool} are left behind"


async def check_ends(watched: Watched, workflows: list[str]) -> None:
    """The machines' workflows, and these, come to their own end: a machine has sent its last report before, so it may
    end a moment later than its pool. No secret is in any of them (I11)."""
    stack = watched.stack
    ids = [machine_id(stack.cluster, name) for name, _ in watched.launches()] + workflows
    for id in ids:
        try:
            await result_of(stack.client.get_workflow_handle(id))
        except (AssertionError, WorkflowFailureError) as e:
            raise AssertionError(f"I6: {id} has not come to its own end: {e!r}") from None
        await check_i11(stack, id)


def check_pool_i8(watched: Watched) -> None:
    for machine in watched.machines():
        check_i8(watched.stack, machine)
