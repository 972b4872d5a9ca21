"""Which machine a VM belongs to: Temporal's list of workflows is the map, so anybody who has lost it can read it
again."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from activities.temporal.workflows import MACHINE, running
from resources.attributes import CLASS, NODE, PROVIDER_ID
from resources.clouds import indexed, provider_key
from resources.names import machine_id

ASKED_AT_ONCE = 200
_ID = re.compile(r"[^'\"\\\s\x00-\x1f]{1,500}")
"""What a query may carry. A kubelet writes its Node's providerID itself: one that would close the quotes belongs to
nobody."""


async def machines_of(client: Client, cluster: str, provider_ids: Iterable[str]) -> dict[str, str]:
    """Machines by provider key; unknown ones are left out. It may lag by a second or so, and what it says is no proof:
    a machine itself decides whether a Node is its own.

    A server that does not answer is no error: what was not found is asked for again.
    """
    spellings = {s for p in provider_ids if _ID.fullmatch(p) for s in (p, indexed(p))}
    ordered, found, prefix = sorted(spellings), dict[str, str](), machine_id(cluster, "")
    for start in range(0, len(ordered), ASKED_AT_ONCE):
        some = ", ".join(f"'{p}'" for p in ordered[start : start + ASKED_AT_ONCE])
        query = running(MACHINE, cluster=cluster, where=f"HostlerProviderID IN ({some})")
        try:
            async for execution in client.list_workflows(query):  # the newest first
                vm = execution.typed_search_attributes.get(PROVIDER_ID)
                if vm and execution.id.startswith(prefix):
                    found.setdefault(provider_key(vm), execution.id.removeprefix(prefix))
        except RPCError as e:
            activity.logger.warning("the owners of these VMs are not known: %s", e.message)
            break
    return found


class VmOwner(NamedTuple):
    """A machine that has a VM, as Temporal's list of workflows has it."""

    name: str
    provider_id: str
    node: str
    """"" when it has none yet."""
    machine_class: str


async def all_machines(client: Client, cluster: str) -> AsyncIterator[VmOwner]:
    """A cluster's machines that have a VM, for a watch that no longer knows whom it has told what: that a VM or Node is
    gone can be told only to the machine that had it. Raises RPCError."""
    prefix = machine_id(cluster, "")
    query = running(MACHINE, cluster=cluster, where="HostlerProviderID IS NOT NULL")
    async for execution in client.list_workflows(query):
        said = execution.typed_search_attributes
        name, vm = execution.id.removeprefix(prefix), said.get(PROVIDER_ID)
        if vm and execution.id.startswith(prefix):
            yield VmOwner(name, vm, said.get(NODE) or "", said.get(CLASS) or "")
