"""Machines as HostlerClient sees them: their records, their states and stories, and what people ask of them.

HostlerClient is this shelf too: `await hostler.wait("m1", "Running")`.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from temporalio.client import WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition

from resources import names
from starter.sdk import live, parallel
from starter.sdk.connection import word
from starter.sdk.entity import EntityClient
from starter.sdk.errors import HostlerError, NoAnswer, NotFound, Refused, translated
from starter.sdk.machines import records
from starter.sdk.patience import Progress, look_until
from starter.sdk.results import Description, Event, Life, MachineSummary, Selected, Sent

if TYPE_CHECKING:
    from resources.fleet.state import FleetWait
    from resources.machine.preservation import PreserveValue
    from resources.machine.state import MachineState, Phase
    from starter.sdk.machines.selectors import Selector


class Machines(EntityClient["MachineState"]):
    """The machines. Every intent raises NotFound where there is no such machine (any longer), and Refused with the
    machine's own words."""

    noun, plural, workflow = "machine", "machines", records.MACHINE_TYPE
    id_of = staticmethod(names.machine_id)

    @property
    def model(self) -> type[MachineState]:
        from resources.machine.state import MachineState

        return MachineState

    # -- read ---------------------------------------------------------------------------------------------------------

    async def list(
        self,
        *,
        cluster: str | None = None,
        all_clusters: bool = False,
        machine_class: str | None = None,
        pool: str | None = None,
        phase: Phase | None = None,
        preserved: bool = False,
    ) -> builtins.list[MachineSummary]:
        """The machines that exist, by cluster and name. From Temporal's visibility, which is about a second behind.
        `pool` may be another owner: `controlplane/cluster`. `phase`: whether preserved or not; `preserved`: only those
        that are."""
        where = {"HostlerClass": word(machine_class)} if machine_class else {}
        where |= {"HostlerPool": _listed(pool)} if pool else {}
        query = records.machines_of(None if all_clusters else self.connection.where(cluster), **where)
        query += f" AND HostlerPhase IN ('{phase}', '{phase}:Preserved')" if phase else ""
        query += " AND HostlerPreservedUntil IS NOT NULL" if preserved else ""
        with translated():
            found = [await records.summary_of(e) async for e in self.temporal.list_workflows(query)]
        return sorted(found, key=lambda m: (m.cluster, m.name))

    async def select(
        self, selector: Selector | str, *, cluster: str | None = None, all_clusters: bool = False
    ) -> builtins.list[Selected]:
        """The machines that exist and whose labels match (`pool=demo,zone!=a`), with their states, by cluster and name.

        Only the machines know their labels, so each is asked. Raises Unreachable when one does not answer: half a list
        would look like a whole one. Raises SelectorError.
        """
        from starter.sdk.machines import selecting
        from starter.sdk.machines.selectors import parse

        wanted = parse(selector) if isinstance(selector, str) else selector
        among = await self.list(cluster=cluster, all_clusters=all_clusters)
        return await selecting.select(self.connection, wanted, among)

    async def widened(self, among: Iterable[MachineSummary]) -> builtins.list[MachineSummary]:
        """These, with what only a machine itself knows: what one that has a reason waits for, or is Failed because of,
        in its own words; and the providerID, where the server's records have it without its place. One that does not
        answer stays as it is, and with it those that were not asked yet: nobody waits for a worker that is not there.
        """
        from resources.clouds import has_place

        silent = False

        async def ask(m: MachineSummary) -> MachineSummary:
            nonlocal silent
            if silent or not (m.reason or not has_place(m.provider_id)):
                return m
            handle = self._handle(m.name, m.cluster)
            try:
                with translated():
                    state = await live.query(handle, self.model)
                    waiting = state.status.waiting_for if m.reason else None
                    seen = await live.seen_last(handle) if waiting and waiting.reason == live.DRAINING else ""
            except NoAnswer:
                silent = True
                return m
            words = seen or (waiting.message if waiting else "")
            failed = state.create_failure
            if waiting and failed and state.trouble and waiting.reason != m.reason == state.trouble.reason:
                words = failed.message  # the next try is under way, and says nothing
            return replace(m, message=words, provider_id=state.status.provider_id or m.provider_id)

        return await parallel.each([partial(ask, m) for m in among])

    async def get(self, name: str, *, cluster: str | None = None) -> MachineState:
        found = await self._running(name, cluster)
        with translated():
            try:
                return await live.query(self._handle(name, cluster), self.model)
            except NoAnswer as e:
                absence = await live.absence(self.temporal, found.task_queue, datetime.now(UTC))
                raise NoAnswer(f"machine {name} cannot be asked: {e}: {absence}") from None

    async def blocker(self, name: str, *, cluster: str | None = None) -> str:
        """What its drain waits for, as the last pass saw it; "" where there was none yet."""
        with translated():
            return await live.seen_last(self._handle(name, cluster))

    async def find(self, name: str, *, cluster: str | None = None) -> Life | None:
        """The latest life of this name in the server's records, running or gone; None when there is none."""
        found = await self._described(name, cluster)
        with translated():
            return await records.life_of(found) if found is not None else None

    async def life(self, name: str, *, cluster: str | None = None) -> Life:
        """Like `find`, but raises NotFound when there is none."""
        with translated():
            return await records.life_of(await self._known(name, cluster))

    async def state(self, life: Life) -> MachineState:
        """The machine's own answer, or, without a worker, what was asked for, from its history."""
        handle = self._handle(life.summary.name, life.summary.cluster)
        with translated():
            try:
                return await live.query(handle, self.model)
            except NoAnswer:
                return await self._recorded(handle.id, life.run_id)

    async def describe(self, name: str, *, cluster: str | None = None) -> Description:
        """Everything that is known of a machine, even without a worker, and even when it is gone. Raises NotFound."""
        found = await self._known(name, cluster)
        web = self._web(found.id, found.run_id)
        with translated():
            life = await records.life_of(found)
            if not life.running:
                result, failure = await records.ending(self.temporal, found.id, life)
                state = await self._last_words(found.id) if result is None else None
                return Description(life=life, state=state, result=result, failure=failure, web=web)
            state, no_answer = await self._answer(found)
            held = await self._held(state) if state is not None else None
            state = state or await self._recorded(found.id, found.run_id)
            return Description(life=life, state=state, no_answer=no_answer, web=web, held=held)

    async def _held(self, s: MachineState) -> FleetWait | None:
        """What its owner waits for, where that is why it is not replaced; None where nobody says so."""
        from resources.control_plane.summary import ControlPlaneSummary
        from resources.machine.advice import has_vm, is_up_to_its_owner
        from resources.pool.intents import PoolSummary

        if s.owner is None or not is_up_to_its_owner(s):
            return None
        owner = self.temporal.get_workflow_handle(s.owner.workflow_id(s.cluster))
        numbers: type[PoolSummary | ControlPlaneSummary] = PoolSummary if s.pool else ControlPlaneSummary
        try:
            with translated():
                summary = await live.query(owner, numbers, QueryRejectCondition.NOT_OPEN, name="summary")
        except (HostlerError, WorkflowQueryRejectedError):
            return None
        return summary.holding(s.revision, has_vm(s))

    async def events(self, name: str, *, cluster: str | None = None) -> builtins.list[Event]:
        """The machine's story so far, oldest first. Raises NotFound."""
        from starter.sdk import history

        found = await self._known(name, cluster)
        with translated():
            story = await history.read(self.temporal, found.id, found.run_id, self.model)
            if not live.completed(found) and (state := await self._last_words(found.id)) is not None:
                story.journal(state.journal)
        return story.sorted()

    async def machine_of(self, node: str, *, cluster: str | None = None) -> str:
        """The name of the machine that the Node belongs to. From visibility, which is about a second behind.

        Raises NotFound; Refused where more than one says so.
        """
        where = self.connection.where(cluster)
        if (name := await self._on_node(node, where)) is None:
            raise NotFound(
                f"no machine of cluster {where!r} has node {node!r}: `hostler get machines --cluster {where}` shows "
                "the nodes; a machine has none until its node has joined"
            )
        return name

    async def machine_or_node(self, name: str, *, cluster: str | None = None) -> str:
        """The name of the existing machine of this name, else of the one whose Node has it. Raises the same as
        above."""
        life = await self.find(name, cluster=cluster)
        if life is not None and life.running:
            return name
        if (machine := await self._on_node(name, self.connection.where(cluster))) is not None:
            return machine
        # The same words as for any intent to a machine that is gone, or never existed.
        await self.life(name, cluster=cluster)
        return name

    async def _on_node(self, node: str, cluster: str) -> str | None:
        query = records.machines_of(cluster, HostlerNode=word(node))
        with translated():
            found = sorted([names.id_parts(e.id, 2)[1] async for e in self.temporal.list_workflows(query)])
        if len(found) > 1:
            raise Refused(f"node {node} of cluster {cluster} belongs to {' and '.join(found)}: give the machine's name")
        return found[0] if found else None

    # -- intents ------------------------------------------------------------------------------------------------------

    async def delete(
        self,
        name: str,
        *,
        force: bool = False,
        abandon_node: bool = False,
        reason: str = "",
        cluster: str | None = None,
    ) -> Sent:
        """Asks for the machine's end; `force` shortens the drain and never skips clean-up. `abandon_node`: once the VM
        is gone, a cluster that does not answer is not waited for, and what is left there is named.

        Raises NotFound when there never was one; one that is gone already is no error.
        """
        from resources.machine.intents import DeleteIntent

        intent = DeleteIntent(**self.connection.by(reason), force=force, abandon_node=abandon_node)
        return await self._end(name, intent, cluster)

    async def recreate(self, name: str, *, force: bool = False, reason: str = "", cluster: str | None = None) -> Sent:
        """Asks for the machine's end, and for a new life under the same name; `force` as in `delete`.

        Raises NotFound when there is none, Refused when it is being deleted.
        """
        from resources.machine.intents import RecreateIntent

        found = await self._running(name, cluster)
        uid = (await self.state(await records.life_of(found))).uid
        intent = RecreateIntent(**self.connection.by(reason), force=force)
        return replace(await self.send(name, "recreate", intent, cluster=cluster), uid=uid)

    async def preserve(
        self,
        name: str,
        value: PreserveValue | str = "now",
        *,
        lasts: timedelta | None = None,
        until: datetime | None = None,
        reason: str = "",
        cluster: str | None = None,
    ) -> Sent:
        """Keeps a machine as it is; `when-failed`: only once it has Failed; `false`: never, and no longer. `lasts`
        counts from the moment of preservation; without it and `until` its machinePreserveTimeout counts.

        Raises NotFound, Refused with the machine's own words, or for a time that is past.
        """
        from resources.machine.preservation import PreserveValue
        from starter.sdk.machines import preservation

        await self._running(name, cluster)
        intent = preservation.preserve_intent(PreserveValue(value), lasts, until, self.connection.by(reason))
        return await self.send(name, "preserve", intent, cluster=cluster)

    async def release(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Ends a preservation and withdraws what was asked, on the Node too: a Running machine goes on, a Failed one is
        deleted. Raises NotFound, Refused."""
        from resources.machine.preservation import ReleaseIntent

        return await self.tell(name, "release", ReleaseIntent(**self.connection.by(reason)), cluster=cluster)

    async def extend(
        self,
        name: str,
        *,
        lasts: timedelta | None = None,
        until: datetime | None = None,
        reason: str = "",
        cluster: str | None = None,
    ) -> Sent:
        """Moves the end of a preservation: this long from now, or to a time. Raises NotFound, Refused."""
        from starter.sdk.machines import preservation

        await self._running(name, cluster)
        intent = preservation.extend_intent(lasts, until, self.connection.by(reason))
        return await self.send(name, "extend", intent, cluster=cluster)

    # -- wait ---------------------------------------------------------------------------------------------------------

    async def wait(
        self,
        name: str,
        until: str = "Running",
        *,
        timeout: timedelta | None = timedelta(minutes=20),
        progress: Progress[Life] | None = None,
        cluster: str | None = None,
        unlike: str | None = None,
    ) -> Life:
        """Waits until the machine is in a phase, or `deleted`. `progress` is called at every look; no worker is needed.

        `unlike`: a uid; only a life with another one counts, as after `recreate`. A machine that is being recreated may
        still come to any phase.

        Raises NotFound (unknown), Refused (it ended otherwise and can no longer come there), WaitTimeout.
        """
        from resources.machine.state import Phase
        from starter.sdk.machines import waiting

        target = until if until == waiting.DELETED else Phase(until)
        describe = partial(self.describe, name, cluster=cluster)
        return await look_until(
            partial(self.life, name, cluster=cluster),
            lambda life, first: waiting.reached(life, first, target, unlike, describe),
            lambda life: waiting.late(life, until, unlike, timeout),
            timeout=timeout,
            progress=progress,
            interval=waiting.WAIT_POLL,
        )

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _recorded(self, workflow_id: str, run_id: str) -> MachineState:
        from starter.sdk.machines.recorded import recorded

        return await recorded(self.temporal, workflow_id, run_id)

    async def _last_words(self, workflow_id: str) -> MachineState | None:
        """The last state of a workflow that runs, or that somebody ended: a worker replays it, and it answers. None
        without a worker."""
        with suppress(NoAnswer):
            return await live.query(self.temporal.get_workflow_handle(workflow_id), self.model)
        return None


def _listed(owner: str) -> str:
    """An owner as HostlerPool has it; the word of a kind of which a cluster has only one stands for that one. Raises
    Refused for what is no name."""
    from resources.owner import KINDS, Owner

    only = next((f"{kind.word}/{kind.only}" for kind in KINDS.values() if kind.only and kind.word == owner), owner)
    known = Owner.read(only)
    word(known.name)
    return known.listed
