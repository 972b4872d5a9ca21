"""HostlerClient: what the `hostler` command can do with machines and pools, for programs.

    async with HostlerClient.connect(load_settings(), cluster="demo") as hostler:
        for applied in await hostler.apply(machine_class, machine):
            print(applied)
        await hostler.wait("m1", "Running")

Errors are those of starter.sdk.errors; each has the words that the command line prints.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from resources import names
from resources.machine import ApplyIntent, MachineState, Phase
from resources.manifests import AnyManifest, Loaded, Machine, MachineClass, MachineDeployment, cluster_of
from resources.messages import DeleteIntent, Intent, RecreateIntent, SweepReport
from resources.preservation import PreserveValue
from resources.settings import Settings, load_settings
from starter.sdk import adoption, history, intents, live, orphans
from starter.sdk.apply.plan import Plan, Planner
from starter.sdk.classes import Classes
from starter.sdk.clusters import Clusters
from starter.sdk.connection import connected
from starter.sdk.errors import NoAnswer, NotFound, Refused, no_such_workflow, translated
from starter.sdk.machines import preservation, selecting, waiting
from starter.sdk.machines.hooks import Hooks
from starter.sdk.machines.recorded import recorded
from starter.sdk.machines.selectors import Selector, parse
from starter.sdk.machines.waiting import Progress, since
from starter.sdk.pools.shelf import Pools
from starter.sdk.results import Adopted, Applied, Description, Event, Life, MachineSummary, Selected, Sent


class HostlerClient:
    """Machines, over a connection to Temporal with `pydantic_data_converter`; `connect` makes one.

    `cluster` is the default of every method; `requested_by` is written in the machines' journals.
    """

    def __init__(
        self, temporal: Client, settings: Settings, *, cluster: str | None = None, requested_by: str | None = None
    ) -> None:
        self.temporal = temporal
        self.settings = settings
        self.cluster = cluster or settings.default_cluster
        self.requested_by = requested_by or intents.whoami()
        self.clusters = Clusters(self)
        self.classes = Classes(self)
        self.pools = Pools(self)
        self.hooks = Hooks(self)

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, settings: Settings | None = None, *, cluster: str | None = None, requested_by: str | None = None
    ) -> AsyncIterator[HostlerClient]:
        """A client on a connection of its own. Raises Unreachable when Temporal does not answer."""
        settings = settings or load_settings()
        try:
            temporal = await connected(settings)
            yield cls(temporal, settings, cluster=cluster, requested_by=requested_by)
        finally:
            # The SDK's core may crash when the process ends right after its last call, a failed connect included
            # (sdk-python#300).
            await asyncio.sleep(0.1)

    # -- apply --------------------------------------------------------------------------------------------------------

    async def apply(self, *manifests: AnyManifest) -> builtins.list[Applied]:
        """Creates or changes; all manifests are judged before anything is sent.

        Raises Refused with everything that is wrong, or with what failed after the others were done.
        """
        plan = await self.plan(*manifests)
        return [applied async for applied in plan.execute()]

    async def plan(self, *manifests: AnyManifest, cluster: str | None = None) -> Plan:
        """What `apply` would do. `cluster` overrides the manifests' own."""
        loaded = Loaded()
        for m in manifests:
            if isinstance(m, Machine):
                loaded.machines.append(m)
            elif isinstance(m, MachineClass):
                loaded.classes.append(m)
            elif isinstance(m, MachineDeployment):
                loaded.pools.append(m)
            else:
                loaded.secrets.append(m)
        with translated():
            return await Planner(self, cluster).plan(loaded)

    def cluster_of(self, manifest: Machine | MachineClass | MachineDeployment, cluster: str | None = None) -> str:
        """`cluster`, else the manifest's annotation, else the settings' map of its namespace, else the default."""
        namespace = manifest.metadata.namespace
        mapped = (name for name, c in sorted(self.settings.clusters.items()) if namespace in c.namespaces)
        return cluster_of(manifest, cluster, next(mapped, self.cluster))

    async def cluster_is_watched(self, cluster: str) -> bool:
        """Whether the cluster's workflow runs."""
        with translated():
            try:
                description = await self.temporal.get_workflow_handle(names.cluster_id(cluster)).describe()
            except RPCError as e:
                if no_such_workflow(e):
                    return False
                raise
            return description.status is not None and description.status.name == "RUNNING"

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
        `phase`: preserved or not; `preserved`: only those that are."""
        where = {"HostlerClass": _word(machine_class)} if machine_class else {}
        where |= {"HostlerPool": _word(pool)} if pool else {}
        query = live.machines_of(None if all_clusters else _word(cluster or self.cluster), **where)
        query += f" AND HostlerPhase IN ('{phase}', '{phase}:Preserved')" if phase else ""
        query += " AND HostlerPreservedUntil IS NOT NULL" if preserved else ""
        with translated():
            found = [await live.summary_of(e) async for e in self.temporal.list_workflows(query)]
        return sorted(found, key=lambda m: (m.cluster, m.name))

    async def select(
        self, selector: Selector | str, *, cluster: str | None = None, all_clusters: bool = False
    ) -> builtins.list[Selected]:
        """The machines that exist and whose labels match (`pool=demo,zone!=a`), with their states, by cluster and name.

        The machines alone know their labels, so each is asked. Raises Unreachable when one does not answer: half a list
        would look like a whole one. Raises SelectorError.
        """
        wanted = parse(selector) if isinstance(selector, str) else selector
        return await selecting.select(self, wanted, cluster, all_clusters)

    async def get(self, name: str, *, cluster: str | None = None) -> MachineState:
        """A machine's own state. Raises NotFound when it is unknown or gone, NoAnswer without a worker."""
        life = await self._running(name, cluster)
        with translated():
            try:
                return await live.ask(self._handle(name, cluster))
            except NoAnswer as e:
                absence = await live.absence(self.temporal, life.task_queue, datetime.now(UTC))
                raise NoAnswer(f"machine {name} cannot be asked: {e}: {absence}") from None

    async def find(self, name: str, *, cluster: str | None = None) -> Life | None:
        """The latest life of this name in the server's records, running or gone; None when there is none."""
        with translated():
            return await live.find(self._handle(name, cluster))

    async def life(self, name: str, *, cluster: str | None = None) -> Life:
        """As `find`. Raises NotFound when there is none."""
        life = await self.find(name, cluster=cluster)
        if life is None:
            raise live.unknown(cluster or self.cluster, name, [m.name for m in await self.list(cluster=cluster)])
        return life

    async def state(self, life: Life) -> MachineState:
        """The machine's own answer, or, without a worker, what was asked for, from its history."""
        handle = self._handle(life.summary.name, life.summary.cluster)
        with translated():
            try:
                return await live.ask(handle)
            except NoAnswer:
                return await recorded(self.temporal, handle, life.run_id)

    async def describe(self, name: str, *, cluster: str | None = None) -> Description:
        """Everything that is known of a machine, also without a worker, also when it is gone. Raises NotFound."""
        life = await self.life(name, cluster=cluster)
        handle = self._handle(name, cluster)
        settings = self.settings.temporal
        web = live.web_link(settings.ui, self.temporal.namespace, handle.id, life.run_id)
        with translated():
            if not life.running:
                result, failure = await live.ending(self.temporal, handle.id, life)
                state = await self._last_words(handle) if result is None else None
                return Description(life=life, state=state, result=result, failure=failure, web=web)
            try:
                return Description(life=life, state=await live.ask(handle), web=web)
            except NoAnswer as e:
                absence = await live.absence(self.temporal, life.task_queue, datetime.now(UTC))
                state = await recorded(self.temporal, handle, life.run_id)
                return Description(life=life, state=state, no_answer=f"{absence}; {e}", web=web)

    async def events(self, name: str, *, cluster: str | None = None) -> builtins.list[Event]:
        """The machine's story so far, oldest first. Raises NotFound."""
        life = await self.life(name, cluster=cluster)
        handle = self._handle(name, cluster)
        with translated():
            story = await history.read(self.temporal, handle.id, life.run_id)
            if life.status != "COMPLETED" and (state := await self._last_words(handle)) is not None:
                story.journal(state.journal)
        return story.sorted()

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
        life = await self.life(name, cluster=cluster)
        if not life.running:
            return Sent(f"is gone already{since(life)}", gone=True)
        intent = DeleteIntent(
            id=intents.new_id(),
            requested_by=self.requested_by,
            reason=reason,
            force=force,
            abandon_node=abandon_node,
        )
        return await self.send(name, "delete", intent, cluster=cluster)

    async def recreate(self, name: str, *, force: bool = False, reason: str = "", cluster: str | None = None) -> Sent:
        """Asks for the machine's end, and for a new life under the same name; `force` as in `delete`.

        Raises NotFound when there is none, Refused when it is being deleted.
        """
        life = await self._running(name, cluster)
        uid = (await self.state(life)).uid
        intent = RecreateIntent(id=intents.new_id(), requested_by=self.requested_by, reason=reason, force=force)
        return replace(await self.send(name, "recreate", intent, cluster=cluster), uid=uid)

    async def update_class(
        self, name: str, machine_class: str, *, reason: str = "", cluster: str | None = None
    ) -> Sent:
        """Gives a machine another class, or the newest generation of its own; its spec stays else as it is.

        Raises NotFound for a machine or class that there is not, Refused with the machine's own words.
        """
        state = await self.state(await self._running(name, cluster))
        found = await self.classes.current(machine_class, cluster=cluster)
        if found is None:
            raise await self.classes.unknown(machine_class, cluster)
        of = state.spec.class_.model_copy(update={"name": machine_class})
        intent = ApplyIntent(
            id=intents.new_id(),
            requested_by=self.requested_by,
            reason=reason,
            spec=state.spec.model_copy(update={"class_": of}),
            machine_class=found.machine_class,
            labels=state.labels,
            annotations=state.annotations,
        )
        return await self.send(name, "apply", intent, cluster=cluster)

    async def renew(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Asks a machine to go on with the newest code, and to try again what stands still."""
        await self._running(name, cluster)
        intent = Intent(id=intents.new_id(), requested_by=self.requested_by, reason=reason)
        return await self.send(name, "renew", intent, cluster=cluster)

    async def preserve(
        self,
        name: str,
        value: PreserveValue | str = PreserveValue.NOW,
        *,
        lasts: timedelta | None = None,
        until: datetime | None = None,
        reason: str = "",
        cluster: str | None = None,
    ) -> Sent:
        """Keeps a machine as it is; `when-failed`: only once it has Failed; `false`: never, and not any longer. `lasts`
        is from the moment of preservation; without it and `until` its machinePreserveTimeout counts.

        Raises NotFound, Refused with the machine's own words, or for a time that is past.
        """
        await self._running(name, cluster)
        intent = preservation.preserve_intent(PreserveValue(value), lasts, until, reason, self.requested_by)
        return await self.send(name, "preserve", intent, cluster=cluster)

    async def release(self, name: str, *, reason: str = "", cluster: str | None = None) -> Sent:
        """Ends a preservation and withdraws what was asked, on the Node too: a Running machine goes on, a Failed one is
        deleted. Raises NotFound, Refused."""
        await self._running(name, cluster)
        return await self.send(name, "release", preservation.release_intent(reason, self.requested_by), cluster=cluster)

    async def extend(
        self,
        name: str,
        *,
        lasts: timedelta | None = None,
        until: datetime | None = None,
        reason: str = "",
        cluster: str | None = None,
    ) -> Sent:
        """Moves the end of a preservation: so long from now, or to a time. Raises NotFound, Refused."""
        await self._running(name, cluster)
        intent = preservation.extend_intent(lasts, until, reason, self.requested_by)
        return await self.send(name, "extend", intent, cluster=cluster)

    async def machine_of(self, node: str, *, cluster: str | None = None) -> str:
        """The name of the machine whose Node it is. Raises NotFound, Refused where several say so."""
        return await preservation.machine_on(self, _word(node), _word(cluster or self.cluster))

    async def machine_or_node(self, name: str, *, cluster: str | None = None) -> str:
        """The name of the machine of this name that there is, else of the one whose Node has it. Raises as above."""
        return await preservation.find(self, _word(name), _word(cluster or self.cluster))

    async def send(self, name: str, intent_name: str, intent: Intent, *, cluster: str | None = None) -> Sent:
        """An intent of one's own making; its id makes sending it again harmless."""
        queue = names.workflow_queue(self.settings.queue_prefix)
        with translated():
            return await intents.send(self._handle(name, cluster), intent_name, intent, queue, f"machine {name}")

    # -- machines without a workflow ----------------------------------------------------------------------------------

    async def orphans(self, *classes: MachineClass, cluster: str | None = None) -> SweepReport:
        """VMs that carry the cluster's owner tags and that no running workflow owns; what could not be read, in
        `unread`. It looks into the accounts of the classes, and those that the cluster's workflow knows.

        Raises NotFound, Refused when there is no account to look into, NoAnswer without a worker.
        """
        where = cluster or self.cluster
        return await orphans.sweep(self, where, await orphans.accounts(self, where, classes))

    async def adopt(
        self, name: str, *manifests: AnyManifest, uid: str | None = None, cluster: str | None = None
    ) -> Adopted:
        """A new workflow for a machine whose former one was ended from outside, with the VM that carries its tags. Of a
        pool's machine without a VM the pool is told, and makes another.

        Spec and class are those of the manifests, else what is recorded of the former workflow. `uid` chooses among VMs
        of several lives. Raises Refused with the reason, NoAnswer without a worker.
        """
        return await adoption.adopt(self, name, manifests, uid, _word(cluster or self.cluster))

    # -- wait ---------------------------------------------------------------------------------------------------------

    async def wait(
        self,
        name: str,
        until: str = Phase.RUNNING,
        *,
        timeout: timedelta | None = timedelta(minutes=20),
        progress: Progress | None = None,
        cluster: str | None = None,
        unlike: str | None = None,
    ) -> Life:
        """Until the machine is in a phase, or `deleted`. `progress` is called at every look; no worker is needed.

        `unlike`: a uid; only a life of another one counts, as after `recreate`. A machine that is being recreated may
        come to any phase yet.

        Raises NotFound (unknown), Refused (it ended otherwise and cannot come there any more), WaitTimeout.
        """
        return await waiting.wait(self, name, until, timeout=timeout, progress=progress, cluster=cluster, unlike=unlike)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _running(self, name: str, cluster: str | None) -> Life:
        life = await self.life(name, cluster=cluster)
        if not life.running:
            raise NotFound(f"machine {name} of cluster {cluster or self.cluster} is gone{since(life)}")
        return life

    async def _last_words(self, handle: live.Handle) -> MachineState | None:
        """Of a workflow that runs, or that somebody ended: a worker replays it, and it answers. None without one."""
        with suppress(NoAnswer):
            return await live.ask(handle)
        return None

    def _handle(self, name: str, cluster: str | None) -> Any:
        workflow_id = names.machine_id(_word(cluster or self.cluster), _word(name))
        return self.temporal.get_workflow_handle(workflow_id)


def _word(name: str) -> str:
    """Only a name goes into ids and queries."""
    if not names.is_name(name):
        raise Refused(f"{name!r} is no name: use lower-case letters, digits, '-' and '.'")
    return name
