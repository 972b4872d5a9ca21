"""MachineWorkflow: the handlers, and the life as a list of phases.

Identity: `machine/<cluster>/<name>`. Started by the command line or SDK, or by a pool through a client. Ends when its
VM, disks, NICs, Node and tokens are confirmed gone. It never has a run timeout or a second VM, and a cancellation does
not end it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.entity import intent
from workflows.machine import (
    ask,
    claim,
    confirm,
    create,
    find,
    hooks,
    hot_update,
    join,
    membership,
    post_start,
    running,
    stale_node,
    terminate,
)
from workflows.machine.details import details
from workflows.machine.entity import MachineEntity
from workflows.machine.owned import Owned
from workflows.machine.preserve import ANNOTATIONS_ALONE, take_manifest
from workflows.page import show

with workflow.unsafe.imports_passed_through():
    from planners.machine.claims import doubtful, newest
    from planners.machine.creation import uid_of
    from planners.machine.domain import taken
    from planners.machine.intents import deletion, manifest_words
    from planners.provider_spec import spec_hash
    from resources.base import later
    from resources.calls.drain import DrainBlocked
    from resources.clouds import provider_key
    from resources.cluster.news import AccountNews, Reachability
    from resources.errors import NAME_TAKEN
    from resources.fleet.membership import TemplateNews
    from resources.machine.facts import NodeFacts, VmFacts
    from resources.machine.hooks import HookIntent
    from resources.machine.intents import AdoptIntent, DeleteIntent, RecreateIntent
    from resources.machine.manifest import MachineSpec
    from resources.machine.state import (
        AppliedSpec,
        ApplyIntent,
        MachineResult,
        MachineState,
        OperationState,
        OperationType,
        Phase,
    )
    from resources.machine_class.state import ClassNews
    from resources.names import is_label, is_name, machine_id
    from resources.words import utc

ABANDON = "; once its VM is gone, its Node is left behind if the cluster does not answer"

# A machine's life, in order. Each phase returns at once when it has nothing to do, or nothing left to do.
BIRTH: tuple[Callable[[MachineEntity], Awaitable[None]], ...] = (
    ask.ask,
    create.create,
    stale_node.clear,
    post_start.post_start,
    join.join,
)
# Repeated until a deletion is wanted: a preserved machine that Failed may be well again.
LIFE: tuple[Callable[[MachineEntity], Awaitable[None]], ...] = (running.run, running.fail)
END: tuple[Callable[[MachineEntity], Awaitable[None]], ...] = (
    find.find,
    terminate.drain,
    terminate.delete,
    terminate.forget,
)


@workflow.defn
class MachineWorkflow(Owned):
    @workflow.init
    def __init__(self, state: MachineState) -> None:
        super().__init__(state)

    @workflow.run
    async def run(self, state: MachineState) -> MachineResult:
        if self.s.created is None:
            self._refuse_what_cannot_be()
            self._begin()
        return await self.keep(self._live)

    def _begin(self) -> None:
        """Begins a new machine. One that was started with a uid and a VM is that VM's, which was found by its owner
        tags."""
        state, now = self.s, workflow.now()
        state.created = state.status.phase_since = now
        hooks.show(self)
        if state.machine_class is not None:
            state.machine_class = taken(state, state.machine_class)
        state.status.deadlines["creation"] = later(now, state.spec.creation_timeout)
        if not state.uid:
            state.uid = self._own_uid()
            self.note("Created", f"machine of class {state.spec.class_.name}")
            take_manifest(self, {}, state.annotations, str(state.owner or ""))
            return
        state.adopted, state.made = True, now
        assert state.attempt is not None
        made_from = state.attempt.machine_class
        if state.status.last_applied_provider_spec is None:
            spec = made_from.provider_spec
            state.status.last_applied_provider_spec = AppliedSpec(hash=spec_hash(spec), provider_spec=spec)
            state.status.applied_generation = made_from.generation
        hot_update.look_anew(self)
        if workflow.patched("adopted-node"):
            # Marks of ours that its former life may have left on the Node.
            state.status.preserve.node_due = state.status.preserve.uncordon = True
        confirm.arm(self, state.status.deadlines["creation"])
        words = f"{state.status.provider_id} was found by its owner tags and belongs to this machine again"
        self.operation(OperationType.CREATE, OperationState.PROCESSING, words)
        self.note("Adopted", words)

    def _own_uid(self) -> str:
        """A new life's uid. A random one would differ after a reset, and the VM would be nobody's."""
        if self.s.life or workflow.patched("uid-by-run"):
            return uid_of(workflow.info().first_execution_run_id, self.s.life)
        return str(workflow.uuid4())

    def _refuse_what_cannot_be(self) -> None:
        """Refuses impossible input: before anything is owned, that is the honest end of a workflow started by hand."""
        state = self.s
        wrong = [
            f"{field}: {value!r} is not a Kubernetes name: use lower-case letters, digits, '-' and '.'"
            for field, value in (("name", state.name), ("cluster", state.cluster))
            if not is_name(value)
        ]
        if is_name(state.name) and not is_label(state.name):
            wrong.append(f"name: {len(state.name)} characters; the name becomes a label of the Node, so at most 63")
        if bool(state.uid) != bool(state.status.provider_id and state.attempt and state.machine_class):
            wrong.append("uid: given only with status.providerID and attempt, as `hostler adopt` does")
        if wrong:
            raise ApplicationError("; ".join(wrong), type="InvalidMachine", non_retryable=True)

    async def _live(self) -> MachineResult:
        state = self.s
        if state.parked and state.deletion is None:
            self.waiting("InternalError", f"{state.parked}; with a fixed worker: `hostler renew machine {state.name}`")
        await self.stand_still(unless=lambda: state.deletion is not None)
        state.parked = None
        for phase in BIRTH:
            await phase(self)
        while state.deletion is None:
            for phase in LIFE:
                await phase(self)
        for phase in END:
            await phase(self)
        if state.deletion and state.deletion.recreate:
            self.s = self.new_life()
            await self.renew()
        self.publish()
        await workflow.wait_condition(workflow.all_handlers_finished)
        await membership.tell_the_end(self)
        return MachineResult(
            name=state.name,
            cluster=state.cluster,
            uid=state.uid,
            provider_id=state.status.provider_id,
            kept=state.status.kept,
            left=state.status.left,
            journal=state.journal,
        )

    def publish(self) -> None:
        super().publish()
        membership.tell(self)

    @property
    def own_id(self) -> str:
        return machine_id(self.s.cluster, self.s.name)

    @property
    def settled(self) -> bool:
        return not self.telling

    # -- queries and facts --------------------------------------------------------------------------------------------

    @workflow.query
    def describe(self) -> MachineState:
        return self.s

    @workflow.signal
    def observe(self, facts: NodeFacts) -> None:
        """Takes what the watch saw of the Node. It drops news older than what it has; news of another VM's Node, such
        as a former life's; and the end of a Node with another name than ours, of which the watch cannot say whose it
        was."""
        self.s.messages += 1
        ours, known = self.status.provider_id, self.s.node
        if facts.provider_id:
            theirs = provider_key(facts.provider_id)
            another = theirs != provider_key(ours) if ours else theirs in map(provider_key, self.s.former_vms)
        else:
            another = not facts.exists and known is not None and facts.name != known.name
        if self.is_newer(facts.order, known.order if known else None) and not another:
            membership.take_node(self, facts)
            self.drop_condition("APIUnreachable")  # it has just been heard
            if self.status.provider_id:
                self.answers()
            if self.s.counted:
                membership.tell(self)  # its owner counts by its Node while it is held, too

    @workflow.signal
    def observe_vm(self, facts: VmFacts) -> None:
        """Takes what the watch of the cloud account saw of the VM."""
        self.s.messages += 1
        known = newest(self.s)
        ours = facts.provider_id == self.status.provider_id
        if not ours or not self.is_newer(facts.order, known.order if known else None):
            return
        if doubtful(self.s, facts) and workflow.patched(claim.CLAIMS):
            claim.raise_(self, facts)
        else:
            claim.believe(self, facts)
            if self.status.phase not in (Phase.RUNNING, Phase.UNKNOWN):
                membership.tell(self)  # nothing else there hears of it, such as a drain of hours, and the pool must

    @workflow.signal
    def cluster_news(self, api: Reachability) -> None:
        """Takes whether the cluster's API server can be reached: it explains a wait, and decides nothing."""
        self.s.messages += 1
        self.s.suspicion = None  # what was seen before or during an outage is old news
        if api.reachable:
            self.drop_condition("APIUnreachable")
            if self.status.provider_id:  # without a VM, its own next try says whether there is an answer
                self.answers()
        else:
            self.silent(api.began)
            reason = "APIRefused" if api.refused else "APIUnreachable"
            self.condition("APIUnreachable", reason, f"{api.message}; until then nothing is known of the node")
        show(details(self.s))

    @workflow.signal
    def account_news(self, news: AccountNews) -> None:
        """Takes which account its Secret opens, from the watch of the one that its VM is in. While that is another one
        the machine lives on, and a person who looks at it must know before it has to be deleted."""
        self.s.messages += 1
        ours, ref = self.s.account_id or news.owner, news.secret_ref
        if self.s.machine_class is None or self.credentials != ref:
            return  # its class no longer uses that Secret
        if news.opened in ("", ours):
            self.drop_condition("WrongAccount")
        else:
            secret = f"{ref.namespace}/{ref.name}"
            words = f"Secret {secret} opens account {news.opened}, but {self.status.provider_id} is in account {ours}"
            self.condition("WrongAccount", "WrongAccount", f"{words}: it cannot be checked, updated or deleted")
        show(details(self.s))

    @workflow.signal
    def class_changed(self, news: ClassNews) -> None:
        """The class has a new generation; an older one is dropped. A class that is not the machine's is told so."""
        s, wanted = self.s, hot_update.of_pool(self.s, news.machine_class)
        s.messages += 1
        if wanted.name == s.spec.class_.name and wanted != s.machine_class:
            if not (refusal := hot_update.refusal(s, wanted)):
                hot_update.take(self, wanted)
            elif s.machine_class and self.is_newer(wanted.generation, s.machine_class.generation):
                self.note("Refused", refusal)
        s.reported = []  # the sender has not heard how far it is
        s.classes = list(dict.fromkeys([*s.classes, wanted.name]))

    @workflow.signal
    def drain_blocked(self, news: DrainBlocked) -> None:
        """Takes what is in the way of the drain. It is on no page any more when the drain is over, and whoever asks why
        it took so long finds it in the story."""
        self.s.messages += 1
        if not self.s.drained:
            self.note_news("DrainBlocked", news.message)

    # -- from its pool ------------------------------------------------------------------------------------------------

    @workflow.signal
    def template_changed(self, news: TemplateNews) -> None:
        """Takes the part of the pool's changed template that needs no new machine."""
        s = self.s
        s.messages += 1
        spec = membership.template_of(self, news)
        if spec is None:
            return
        s.template = news.generation
        self._take_spec(spec, news.template.metadata.labels, news.template.metadata.annotations, str(s.owner))
        self.note("Applied", f"template of {s.owner}, generation {news.generation}")
        membership.tell(self)  # nothing else would tell of a change that causes no work

    # -- intents: each by update and by signal ------------------------------------------------------------------------

    def _want_deletion(self, intent: DeleteIntent) -> str:
        state, former = self.s, self.s.deletion
        state.deletion = deletion(former, intent, workflow.now())
        if former is None:
            then = f"; {state.owner} creates another one if its replicas require it" if state.owner else ""
            abandon = ABANDON if intent.abandon_node else ""
            return f"machine {state.name} is being deleted{' with force' if intent.force else ''}{then}{abandon}"
        if former.recreate and not isinstance(intent, RecreateIntent):
            return f"machine {state.name} is already being deleted, and will not be recreated"
        if intent.abandon_node and not former.abandon_node:
            return f"machine {state.name} is already being deleted, from now on with force{ABANDON}"
        if intent.force and not former.force:
            return f"machine {state.name} is already being deleted, from now on with force"
        return f"machine {state.name} is already being deleted, since {utc(former.time)}"

    def _no_recreation(self, intent: RecreateIntent) -> str | None:
        s, deletion = self.s, self.s.deletion
        if s.owner is not None:
            again = f"`hostler delete machine {s.name} --cluster {s.cluster}`"
            return f"machine {s.name} cannot be recreated: {s.owner} replaces machines that are deleted; use {again}"
        if deletion is None or deletion.recreate:
            return None
        return f"machine {self.s.name} is being deleted; apply it again when it is gone"

    def _want_recreation(self, intent: RecreateIntent) -> str:
        s, former = self.s, self.s.deletion
        s.deletion = deletion(former, intent, workflow.now())
        if former is not None:
            return f"machine {s.name} is already being recreated{', from now on with force' if intent.force else ''}"
        return f"machine {s.name} is being deleted{' with force' if intent.force else ''}, then created again"

    def _no_adoption(self, intent: AdoptIntent) -> str | None:
        s = self.s
        taken = s.trouble is not None and s.trouble.reason == NAME_TAKEN and not self.leaving
        if taken:
            return None
        has = f"has its VM, {s.status.provider_id}" if s.status.provider_id else "has found no VM of its name"
        return f"machine {s.name} {has}, so there is nothing to take over"

    def _want_vm(self, intent: AdoptIntent) -> str:
        self.s.takes = intent.uid
        return f"machine {self.s.name} takes over the VM of uid {intent.uid}, if it still carries its name"

    renews = "a new run begins at the next safe point"

    def want_renewal(self) -> str:
        if self.s.parked:
            self.s.parked = None
            return "the failed phase is tried again"
        hot_update.hurry(self)
        return super().want_renewal()

    def _refusal(self, intent: ApplyIntent) -> str | None:
        s = self.s
        if s.owner is not None:
            return (
                f"machine {s.name} is created from the template of {s.owner}; change the template or its class: "
                f"`hostler apply -f FILE --cluster {s.cluster}` with {s.owner.kind} {s.owner.name}"
            )
        if s.deletion is not None:
            return f"machine {s.name} is being deleted; it can no longer be changed"
        return hot_update.refusal(s, intent.machine_class)

    def _take(self, intent: ApplyIntent) -> str:
        s = self.s
        words = manifest_words(s, intent.annotations)
        if (intent.spec, intent.machine_class) == (s.spec, s.machine_class):
            if (intent.labels, intent.annotations) == (s.labels, s.annotations):
                return "unchanged"
            if not workflow.patched(ANNOTATIONS_ALONE):
                return "unchanged"
            self._take_spec(intent.spec, intent.labels, intent.annotations, intent.requested_by)
            self.note("Applied", words or "labels and annotations")
            return "; ".join(filter(None, ["configured", words]))
        self._take_spec(intent.spec, intent.labels, intent.annotations, intent.requested_by)
        return "; ".join(filter(None, [hot_update.take(self, intent.machine_class), words]))

    delete = intent(DeleteIntent, _want_deletion)
    recreate = intent(RecreateIntent, _want_recreation, _no_recreation)
    adopt = intent(AdoptIntent, _want_vm, _no_adoption)
    apply = intent(ApplyIntent, _take, _refusal)
    hook = intent(HookIntent, hooks.take, hooks.refuse)

    def _take_spec(self, spec: MachineSpec, labels: dict[str, str], annotations: dict[str, str], who: str) -> None:
        s = self.s
        take_manifest(self, s.annotations, annotations, who)
        s.spec, s.labels, s.annotations = spec, labels, annotations
        if "creation" in self.deadlines and s.created is not None:
            self.deadlines["creation"] = self.must_be_running_by
            if s.status.provider_id:
                s.suspicion = None
                confirm.arm(self, self.deadlines["creation"])
                if "look" not in self.deadlines and workflow.patched("watch-until"):
                    # Whoever watches the VM keeps its token alive until the deadline, and knows only the former one.
                    self.deadlines["look"] = workflow.now()
        hooks.show(self)
