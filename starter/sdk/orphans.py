"""VMs that carry our owner tags and that no running workflow owns, and the sweep that finds them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from datetime import UTC, datetime

from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from resources import attributes, names, starts
from resources.clouds import UnknownScope
from resources.cluster.accounts import Account
from resources.machine.state import ClassSnapshot
from resources.manifests import MachineClass
from resources.orphans import SweepInput, SweepReport
from starter.sdk import live
from starter.sdk.clusters import Clusters
from starter.sdk.connection import Connection
from starter.sdk.errors import HostlerError, NoAnswer, NotFound, Refused, translated
from starter.sdk.intents import new_id

PATIENCE = 5.0
"""Seconds after which a queue that nobody polls is no longer waited for."""
SWEEP_TIMEOUT = 600.0
"""Seconds for a sweep that a worker has begun: accounts may be throttled."""


def account_of(machine_class: MachineClass | ClassSnapshot) -> Account:
    """The account that the class's VMs are in. Raises Refused for a class that does not say."""
    of = machine_class
    try:
        return Account.of(of.provider, of.provider_spec, of.secret_ref, of.credentials_secret_ref)
    except UnknownScope as e:
        name = of.name if isinstance(of, ClassSnapshot) else of.metadata.name
        raise Refused(f"class {name}: {e}") from None


async def accounts(clusters: Clusters, cluster: str, classes: Iterable[MachineClass]) -> list[Account]:
    """The accounts of the classes, and those that the cluster's machines were ever made in, as its workflow knows them.

    Raises NotFound for an unknown cluster, Refused or NoAnswer when there is no account to look into.
    """
    found = {account.key: account for account in map(account_of, classes)}
    try:
        described = await clusters.describe(cluster)
    except NotFound:
        if not found:
            raise
        return list(found.values())
    if described.state is not None:
        found |= described.state.accounts
    if found:
        return list(found.values())
    give = "give the MachineClasses of its machines (-f FILE)"
    if described.no_answer:
        raise NoAnswer(f"cluster {cluster} cannot be asked which cloud accounts it uses: {described.no_answer}")
    if described.state is None:
        raise Refused(f"cluster {cluster} is not watched, so nothing says which cloud accounts it uses: {give}")
    raise Refused(f"cluster {cluster} has no machine that was created in a cloud account: {give}")


async def sweep(
    connection: Connection, cluster: str, where: Iterable[Account], timeout: float = SWEEP_TIMEOUT
) -> SweepReport:
    """Starts an OrphanSweepWorkflow and waits for its report, `timeout` seconds.

    Raises NoAnswer when nobody polls its task queue, or it takes longer; HostlerError when it fails.
    """
    settings = connection.settings
    with translated():
        handle = await connection.temporal.start_workflow(
            "OrphanSweepWorkflow",
            SweepInput(
                cluster=cluster,
                accounts=list(where),
                queue_prefix=settings.queue_prefix,
                heartbeat=settings.timings.heartbeat,
            ),
            id=names.sweep_id(cluster, new_id()),
            task_queue=connection.queue,
            result_type=SweepReport,
            search_attributes=TypedSearchAttributes([SearchAttributePair(attributes.CLUSTER, cluster)]),
            **starts.shown(f"Orphans of cluster {cluster}: VMs without a workflow"),
        )
        return await _report(connection, handle, timeout)


async def _report(connection: Connection, handle: WorkflowHandle[object, SweepReport], timeout: float) -> SweepReport:
    temporal, queue = connection.temporal, connection.queue
    call = asyncio.create_task(handle.result())
    end = time.monotonic() + timeout
    try:
        while not (await asyncio.wait({call}, timeout=min(PATIENCE, timeout)))[0]:
            now = datetime.now(UTC)
            there, late = live.lately(await live.last_poll(temporal, queue), now), time.monotonic() >= end
            if not there or late:
                why = f"not done within {timeout:g} s" if there else await live.absence(temporal, queue, now)
                await handle.terminate(reason="the wait for it was given up")
                raise NoAnswer(f"the cloud accounts cannot be searched: {why}")
        return call.result()
    except WorkflowFailureError as e:
        raise HostlerError(f"the search for orphans failed ({handle.id}): {live.failure_words(e)}") from None
    finally:
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
