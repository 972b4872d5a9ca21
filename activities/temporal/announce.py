"""Tells a cluster, for its watches, which account holds whose VMs; and tells it of a pool."""

from __future__ import annotations

import time

from temporalio.client import WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy

from activities.accounts import Cloud
from activities.deps import Deps
from activities.temporal.workflows import CLUSTER, described
from resources import starts
from resources.attributes import MEMO_OWNERS
from resources.calls.machine import Target
from resources.cluster.accounts import Account, AccountUse
from resources.histories import cluster_begins
from resources.machine.state import ClassSnapshot
from resources.names import cluster_id

ADMITTED_FOR = 60.0
"""Seconds; as long as a VM may be there before the account's watch has seen it."""


def account_of(of: ClassSnapshot | Target) -> Account:
    """Where the VMs of a class are made, or where a machine's VM is. Raises UnknownScope."""
    return Account.of(of.provider, of.provider_spec, of.secret_ref, of.credentials_secret_ref)


async def use_account(deps: Deps, cluster: str, use: AccountUse, *, start: bool = True) -> None:
    """Tells the cluster that a class uses the account. Idempotent. Starts the cluster's workflow, and so its watches,
    if need be; with `start` False a workflow that is not there is told nothing.

    Every new machine says this, and nearly all of them the same: what this worker has told is told again only to a new
    life of the cluster's workflow, so that ten thousand machines of a class are one message.
    """
    life = await _life(deps, cluster)
    place = (cluster, use.machine_class, use.account.provider, use.account.scope)
    if deps.uses.get(place) == (life, use.account.key) or not (life or start):
        return
    run = await tell_cluster(deps, cluster, "use_account", use)
    deps.uses[place] = (await _life(deps, cluster, run), use.account.key)


async def admit(deps: Deps, cloud: Cloud, opened: str, target: Target) -> None:
    """Raises WrongAccount where the cluster's VMs of the target's Secret are in another account than the one it opens.
    What was found right is believed for a while: among many creations only one asks. Raises UnknownScope."""
    account, cluster = account_of(target), target.machine.cluster
    place, now = (cluster, account.key), time.monotonic()
    right, until = deps.admitted.get(place, ("", now))
    if right == opened and now < until:
        return
    owner = await owner_of(deps, cluster, account)
    cloud.admit(opened, owner, cluster)
    if owner:
        deps.admitted[place] = (opened, now + ADMITTED_FOR)


async def owner_of(deps: Deps, cluster: str, account: Account) -> str:
    """The account, in the cloud's own words, that the cluster's VMs of a Secret are in, as far as their watch has seen;
    "": there are none, or nobody knows yet.

    Read from the workflow's memo: the server itself answers, and no worker is asked.
    """
    found = await described(deps.client, cluster_id(cluster))
    if found is None or found.status != WorkflowExecutionStatus.RUNNING:
        return ""
    owners: dict[str, str] = await found.memo_value(MEMO_OWNERS, {}, type_hint=dict[str, str])
    return owners.get(account.key, "")


async def tell_cluster(deps: Deps, cluster: str, signal: str, argument: object) -> str | None:
    """Signals the cluster's workflow; returns the run that was told. Idempotent. Starts the workflow, and so its
    watches, if need be."""
    state = await cluster_begins(deps.client, cluster, deps.settings, await described(deps.client, cluster_id(cluster)))
    handle = await deps.client.start_workflow(
        CLUSTER,
        state,
        **starts.of_cluster(state),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal=signal,
        start_signal_args=[argument],
    )
    return handle.result_run_id


async def _life(deps: Deps, cluster: str, run: str | None = None) -> str:
    """The first run of the cluster's workflow, the same for all that follow it; "" when none runs."""
    found = await described(deps.client, cluster_id(cluster), run)
    if found is None or (run is None and found.status != WorkflowExecutionStatus.RUNNING):
        return ""
    return found.raw_description.workflow_execution_info.first_run_id
