"""Flows of machines in each of the clouds: of the first one only all faults, as its own flows strike it everywhere."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from lifekit import Stack

from faults import class_flows, machine_flows
from faults.books import books_of
from faults.flow import Flow, mark, new_name
from faults.invariants import (
    Witness,
    check_i1,
    check_i5,
    check_i6,
    check_i8,
    check_i10,
    check_i11,
    check_one_at_a_time,
    check_ready,
)
from faults.sites import SITES
from faults.strike import arm
from resources.machine.state import Phase
from resources.names import machine_id
from simulator.frame import FaultRule


async def life(stack: Stack) -> None:
    """Created, updated, and deleted; every call of it may be struck."""
    name, of = new_name(), class_flows.new_class(stack)
    await of.start()
    arm(stack)
    handle = await stack.create(name, provider_spec=class_flows.fields(stack, class_flows.BEFORE))
    seen = Witness([await stack.born(name)])
    assert seen.last.status.phase == Phase.RUNNING, seen.last.journal
    check_ready(stack, seen)
    await of.known(name)
    mark(stack, seen)
    await of.apply(**class_flows.fields(stack, class_flows.AFTER, changed=True))
    await class_flows.updated(stack, seen, of, 2)
    class_flows.check_carries(stack, seen, class_flows.AFTER, changed=True)
    await stack.delete(name)
    check_i1(stack, seen)
    check_i6(stack, seen)
    check_i8(stack, seen)
    check_i10(stack, seen)
    await check_i11(stack, handle.id)


async def creation_fails_late(stack: Stack) -> None:
    """The cloud takes the call and has no room in the end: what it made is gone before the next VM is made."""
    name, simulation = new_name(), stack.provider.simulation
    assert simulation is not None
    late = FaultRule(service=simulation.service, operation=simulation.create, match=name, code=SITES[stack.home].late)
    stack.simulator.call(lambda: stack.simulator.simulator.frame.faults.append(late))
    arm(stack)
    await stack.create(name)
    seen = Witness([await stack.born(name)])
    assert late.hits == 1
    assert seen.last.status.phase == Phase.RUNNING, seen.last.journal
    assert "OutOfCapacity" in [h.reason for h in seen.last.journal], seen.last.journal
    check_one_at_a_time(stack, name)
    check_i5(stack, seen)
    vms = [vm for vm in books_of(stack).vms(lambda vm: vm.uid == seen.last.uid).values() if vm.gone is None]
    assert len(vms) == 1, f"I1: {len(vms)} VMs of {name} are there"
    await stack.delete(name)
    check_one_at_a_time(stack, name)
    check_i6(stack, seen)
    await check_i11(stack, machine_id(stack.cluster, name))


def of_site(home: str, run: Callable[[Stack], Awaitable[None]], *about: str, calls: tuple[str, ...] = ()) -> Flow:
    own = [(activity, int(call or 1)) for activity, _, call in (word.partition(" ") for word in about)]
    return Flow(run, tuple(own), home, calls)


CALLS = {
    "aws": ("RunInstances", "DescribeInstances", "CreateTags", "DeleteTags", "TerminateInstances"),
    "azure": (
        *("VirtualMachines_Get", "Subnets_Get", "NetworkInterfaces_CreateOrUpdate", "NetworkInterfaces_Get"),
        *("Disks_Get", "Disks_CreateOrUpdate", "VirtualMachines_CreateOrUpdate", "Resources_ListByResourceGroup"),
        *("Tags_UpdateAtScope", "VirtualMachines_Delete"),
    ),
    "gcp": (
        *("instances.insert", "zoneOperations.get", "instances.get", "instances.setLabels", "zoneOperations.wait"),
        *("instances.setTags", "disks.list", "disks.setLabels", "instances.delete"),
    ),
}
"""The calls of a life that the covering subset strikes, by the cloud's name in the settings; a wrong one is noticed, as
it is never struck."""

ELSEWHERE: dict[str, Flow] = {}
for home in SITES:
    if home == "aws" and os.environ.get("HOSTLER_FAULTS") != "all":
        continue
    of_life = ("create_machine", "watch_machine", "update_machine", "update_machine 2", "delete_machine")
    ELSEWHERE[f"life on {home}"] = of_site(home, life, *of_life, calls=CALLS[home])
    ELSEWHERE[f"delete during create on {home}"] = of_site(
        home, machine_flows.BIRTHS["delete during create"].run, "create_machine", "delete_machine"
    )
    if SITES[home].late:
        ELSEWHERE[f"creation fails late on {home}"] = of_site(home, creation_fails_late, "create_machine")
