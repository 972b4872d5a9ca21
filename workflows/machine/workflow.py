"""MachineWorkflow: the handlers, and the life as a list of phases.

Identity: `machine/<cluster>/<name>`. Started by the command line or SDK, or by a pool through a client. Ends when
its VM, disks, NICs, Node and tokens are confirmed gone. Never: a run timeout, a second VM, an end by cancellation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from temporalio import workflow
from temporalio.exceptions import ApplicationError

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
from workflows.machine.preserve_requests import Preservable
from workflows.page import show

with workflow.unsafe.imports_passed_through():
    from planners.claims import doubtful, newest
    from planners.creation import uid_of
    from planners.intents import deletion
    from planners.provider_spec import spec_hash
    from resources.base import later
    from resources.errors import NAME_TAKEN
    from resources.machine import (
        AppliedSpec,
        ApplyIntent,
        MachineResult,
        MachineState,
        OperationState,
        OperationType,
        Phase,
    )
    from resources.machine_class import ClassNews
    from resources.manifests import MachineSpec
    from resources.membership import Permit, TemplateNews
    from resources.messages import (
        AccountNews,
        AdoptIntent,
        Answer,
        DeleteIntent,
        NodeFacts,
        Reachability,
        RecreateIntent,
        VmFacts,
    )
    from resources.names import is_label, is_name, provider_key

ABANDON = "; once its VM is gone, its Node is left behind if the cluster does not answer"

# A machine's life, in order. Each phase returns at once when it has nothing to do (any more).
BIRTH: tuple[Callable[[MachineEntity], Awaitable[None]], ...] = (
    ask.ask,
    create.create,
    stale_node.clear,
    post_start.post_start,
    join.join,
)
# Over and over, until a deletion is wanted: a preserved machine that Failed may be well again.
LIFE: tuple[Callable[[MachineEntity], Awaitable[None]], ...] = (running.run, running.fail)
END: tuple[Callable[[MachineEntity], Awaitable[None]], ...] = (
    find.find,
    terminate.drain,
    terminate.delete,
    terminate.forget,
)


@workflow.defn
class MachineWorkflow(Preservable, hooks.HookHandlers):
    @workflow.init
    def __init__(self, state: MachineState) -> None:
        super().__init__(state)

    @workflow.run
    async def run(self, state: MachineState) -> MachineResult:
        membership.count_on(self)
        if self.s.created is None:
            self._refuse_what_cannot_be()
            self._begin()
        return await self.keep(self._live)

    def _begin(self) -> None:
        """A new machine; one that was started with a uid and a VM is that VM's, which was found by its owner tags."""
        s, now = self.s, workflow.now()
        s.created = s.status.phase_since = now
        hooks.show(self)
        s.status.deadlines["creation"] = later(now, s.spec.creation_timeout)
        if not s.uid:
            s.uid = self._own_uid()
            self.note("Created", f"machine of class {s.spec.class_.name}")
            return
        s.adopted, s.made = True, now
        assert s.attempt is not None
        made_from = s.attempt.machine_class
        if s.status.last_applied_provider_spec is None:
            spec = made_from.provider_spec
            s.status.last_applied_provider_spec = AppliedSpec(hash=spec_hash(spec), provider_spec=spec)
            s.status.applied_generation = made_from.generation
        hot_update.look_anew(self)
        if workflow.patched("adopted-node"):
            # What its former life may have left of ours on the Node.
            s.status.preserve.node_due = s.status.preserve.uncordon = True
        confirm.arm(self, s.status.deadlines["creation"])
        words = f"{s.status.provider_id} was found by its owner tags and is this machine's again"
        self.operation(OperationType.CREATE, OperationState.PROCESSING, words)
        self.note("Adopted", words)

    def _own_uid(self) -> str:
        """A new life's. Chance would give another one after a reset, and the VM would be nobody's."""
        if self.s.life or workflow.patched("uid-by-run"):
            return uid_of(workflow.info().first_execution_run_id, self.s.life)
        return str(workflow.uuid4())

    def _refuse_what_cannot_be(self) -> None:
        """Before anything is owned, a refusal is the honest end of a workflow started by hand."""
        s = self.s
        wrong = [
            f"{field}: {value!r} is no Kubernetes name: use lower-case letters, digits, '-' and '.'"
            for field, value in (("name", s.name), ("cluster", s.cluster))
            if not is_name(value)
        ]
        if is_name(s.name) and not is_label(s.name):
            wrong.append(f"name: {len(s.name)} characters; the Node has it as a label, so at most 63")
        if bool(s.uid) != bool(s.status.provider_id and s.attempt and s.machine_class):
            wrong.append("uid: given only with status.providerID and attempt, as `hostler adopt` does")
        if wrong:
            raise ApplicationError("; ".join(wrong), type="InvalidMachine", non_retryable=True)

    async def _live(self) -> MachineResult:
        s = self.s
        if s.parked and s.deletion is None:
            self.waiting("InternalError", f"{s.parked}; with a fixed worker: `hostler renew machine {s.name}`")
        await self.stand_still(unless=lambda: s.deletion is not None)
        s.parked = None
        for phase in BIRTH:
            await phase(self)
        while s.deletion is None:
            for phase in LIFE:
                await phase(self)
        for phase in END:
            await phase(self)
        if s.deletion and s.deletion.recreate:
            self.s = self.new_life()
            await self.renew()
        self.publish()
        await workflow.wait_condition(workflow.all_handlers_finished)
        await membership.tell_the_end(self)
        return MachineResult(
            name=s.name,
            cluster=s.cluster,
            uid=s.uid,
            provider_id=s.status.provider_id,
            kept=s.status.kept,
            left=s.status.left,
            journal=s.journal,
        )

    def publish(self) -> None:
        super().publish()
        membership.tell(self)

    @property
    def settled(self) -> bool:
        return not self.telling

    # -- queries and facts --------------------------------------------------------------------------------------------

    @workflow.query
    def describe(self) -> MachineState:
        return self.s

    @workflow.signal
    def observe(self, facts: NodeFacts) -> None:
        """What the watch saw of the Node. Older news than we have is dropped; so is news of another VM's Node, as of a
        former life's, and the end of one that has another name than ours, of which the watch cannot say whose it
        was."""
        self.s.messages += 1
        ours, known = self.status.provider_id, self.s.node
        if facts.provider_id:
            theirs = provider_key(facts.provider_id)
            another = theirs != provider_key(ours) if ours else theirs in map(provider_key, self.s.former_vms)
        else:
            another = not facts.exists and known is not None and facts.name != known.name
        if facts.newer_than(known) and not another:
            membership.take_node(self, facts)
            self.drop_condition("APIUnreachable")  # it has just been heard

    @workflow.signal
    def observe_vm(self, facts: VmFacts) -> None:
        """What the watch of the cloud account saw of the VM."""
        self.s.messages += 1
        if facts.provider_id != self.status.provider_id or not facts.newer_than(newest(self.s)):
            return
        if doubtful(self.s, facts) and workflow.patched(claim.CLAIMS):
            claim.raise_(self, facts)
        else:
            claim.believe(self, facts)
            if self.status.phase not in (Phase.RUNNING, Phase.UNKNOWN):
                membership.tell(self)  # nothing else there hears of it, a drain of hours for one, and the pool must

    @workflow.signal
    def cluster_news(self, api: Reachability) -> None:
        """Whether the cluster's API server can be reached: it explains a wait, and nothing is decided by it."""
        self.s.messages += 1
        self.s.suspicion = None  # what was seen before or during an outage is old news
        if api.reachable:
            self.drop_condition("APIUnreachable")
        else:
            reason = "APIRefused" if api.refused else "APIUnreachable"
            self.condition("APIUnreachable", reason, f"{api.message}; nothing is known of the node meanwhile")
        show(details(self.s))

    @workflow.signal
    def account_news(self, news: AccountNews) -> None:
        """Which account its Secret opens, from the watch of the one that its VM is in. While that is another one the
        machine lives on, and whoever looks at it must know before it has to be deleted."""
        self.s.messages += 1
        ours, ref = self.s.account_id or news.owner, news.secret_ref
        if self.s.machine_class is None or self.credentials != ref:
            return  # its class has left that Secret
        if news.opened in ("", ours):
            self.drop_condition("WrongAccount")
        else:
            secret = f"{ref.namespace}/{ref.name}"
            words = f"Secret {secret} opens account {news.opened}, and {self.status.provider_id} is in account {ours}"
            self.condition("WrongAccount", "WrongAccount", f"{words}: it can be neither looked at, updated nor deleted")
        show(details(self.s))

    @workflow.signal
    def class_changed(self, news: ClassNews) -> None:
        """The class has a new generation; an older one is dropped. A class that is not the machine's learns so."""
        s, wanted = self.s, hot_update.of_pool(self.s, news.machine_class)
        s.messages += 1
        if wanted.name == s.spec.class_.name and wanted != s.machine_class:
            if not (refusal := hot_update.refusal(s, wanted)):
                hot_update.take(self, wanted)
            elif s.machine_class and wanted.generation > s.machine_class.generation:
                self.note("Refused", refusal)
        s.reported = []  # who tells it has not heard how far it is
        s.classes = list(dict.fromkeys([*s.classes, wanted.name]))

    # -- from its pool ------------------------------------------------------------------------------------------------

    @workflow.signal
    def permit(self, permit: Permit) -> None:
        """It may be Failed for its health, if one more fresh look finds it ill."""
        self.s.messages += 1
        membership.permitted(self, permit.reason)

    @workflow.signal
    def template_changed(self, news: TemplateNews) -> None:
        """What the pool's template says now of what needs no new machine."""
        s = self.s
        s.messages += 1
        spec = membership.template_of(self, news)
        if spec is None:
            return
        s.template = news.generation
        self._take_spec(spec, news.template.metadata.labels, news.template.metadata.annotations)
        self.note("Applied", f"template of {s.owner}, generation {news.generation}")
        membership.tell(self)  # of a change that is no work to do nobody else would tell

    @workflow.signal
    def report_again(self) -> None:
        """The pool does not know the machine, or not any more."""
        self.s.messages += 1
        membership.tell(self, again=True)

    # -- intents: each by update and by signal ------------------------------------------------------------------------

    @workflow.update(name="delete")
    def delete(self, intent: DeleteIntent) -> Answer:
        return self._delete(intent)

    @workflow.signal(name="delete")
    def delete_by_signal(self, intent: DeleteIntent) -> None:
        self._delete(intent)

    def _delete(self, intent: DeleteIntent) -> Answer:
        return self.once(intent, lambda: self._want_deletion(intent))

    def _want_deletion(self, intent: DeleteIntent) -> str:
        s, former = self.s, self.s.deletion
        s.deletion = deletion(former, intent, workflow.now())
        if former is None:
            then = f"; {s.owner} makes another, if it is to have so many" if s.owner else ""
            abandon = ABANDON if intent.abandon_node else ""
            return f"machine {s.name} is being deleted{' with force' if intent.force else ''}{then}{abandon}"
        if former.recreate and not isinstance(intent, RecreateIntent):
            return f"machine {s.name} is being deleted already, and is not recreated any more"
        if intent.abandon_node and not former.abandon_node:
            return f"machine {s.name} is being deleted already, from now on with force{ABANDON}"
        if intent.force and not former.force:
            return f"machine {s.name} is being deleted already, from now on with force"
        return f"machine {s.name} is being deleted already, since {former.time:%Y-%m-%d %H:%M:%S} UTC"

    @workflow.update(name="recreate")
    def recreate(self, intent: RecreateIntent) -> Answer:
        return self._recreate(intent)

    @recreate.validator
    def check_recreate(self, intent: RecreateIntent) -> None:
        if refusal := self._no_recreation(intent):
            raise ApplicationError(refusal, type="Refused", non_retryable=True)

    @workflow.signal(name="recreate")
    def recreate_by_signal(self, intent: RecreateIntent) -> None:
        if refusal := self._no_recreation(intent):
            self.note("Refused", refusal)
        else:
            self._recreate(intent)

    def _no_recreation(self, intent: RecreateIntent) -> str | None:
        s, deletion = self.s, self.s.deletion
        if s.owner is not None:
            again = f"`hostler delete machine {s.name} --cluster {s.cluster}`"
            return f"machine {s.name} has no second life: {s.owner} replaces what is deleted; use {again}"
        if deletion is None or deletion.recreate or intent.id in self.s.intents:
            return None
        return f"machine {self.s.name} is being deleted; apply it again when it is gone"

    def _recreate(self, intent: RecreateIntent) -> Answer:
        return self.once(intent, lambda: self._want_recreation(intent))

    def _want_recreation(self, intent: RecreateIntent) -> str:
        s, former = self.s, self.s.deletion
        s.deletion = deletion(former, intent, workflow.now())
        if former is not None:
            return f"machine {s.name} is being recreated already{', from now on with force' if intent.force else ''}"
        return f"machine {s.name} is being deleted{' with force' if intent.force else ''}, then a new life begins"

    @workflow.update(name="adopt")
    def adopt(self, intent: AdoptIntent) -> Answer:
        return self.once(intent, lambda: self._want_vm(intent))

    @adopt.validator
    def check_adopt(self, intent: AdoptIntent) -> None:
        if refusal := self._no_adoption(intent):
            raise ApplicationError(refusal, type="Refused", non_retryable=True)

    @workflow.signal(name="adopt")
    def adopt_by_signal(self, intent: AdoptIntent) -> None:
        if refusal := self._no_adoption(intent):
            self.note("Refused", refusal)
        else:
            self.once(intent, lambda: self._want_vm(intent))

    def _no_adoption(self, intent: AdoptIntent) -> str | None:
        s = self.s
        taken = s.trouble is not None and s.trouble.reason == NAME_TAKEN and not self.leaving
        if taken or intent.id in s.intents:
            return None
        has = f"has its VM, {s.status.provider_id}" if s.status.provider_id else "has found no VM with its name"
        return f"machine {s.name} {has}: there is nothing to take over"

    def _want_vm(self, intent: AdoptIntent) -> str:
        self.s.takes = intent.uid
        return f"machine {self.s.name} takes over the VM of uid {intent.uid}, if it still carries its name"

    def want_renewal(self) -> str:
        if self.s.parked:
            self.s.parked = None
            return "the phase that failed is tried again"
        self.renewal_wanted = True
        hot_update.hurry(self)
        return "a new run begins at the next safe point"

    @workflow.update(name="apply")
    def apply(self, intent: ApplyIntent) -> Answer:
        return self._apply(intent)

    @apply.validator
    def check_apply(self, intent: ApplyIntent) -> None:
        if refusal := self._refusal(intent):
            raise ApplicationError(refusal, type="Refused", non_retryable=True)

    @workflow.signal(name="apply")
    def apply_by_signal(self, intent: ApplyIntent) -> None:
        if refusal := self._refusal(intent):
            self.note("Refused", refusal)
        else:
            self._apply(intent)

    def _refusal(self, intent: ApplyIntent) -> str | None:
        s = self.s
        if s.owner is not None:
            return (
                f"machine {s.name} is made from the template of {s.owner}; change that, or its class: "
                f"`hostler apply -f FILE --cluster {s.cluster}` with {s.owner.kind} {s.owner.name}"
            )
        if s.deletion is not None:
            return f"machine {s.name} is being deleted; nothing can be applied to it any more"
        return hot_update.refusal(s, intent.machine_class)

    def _apply(self, intent: ApplyIntent) -> Answer:
        return self.once(intent, lambda: self._take(intent))

    def _take(self, intent: ApplyIntent) -> str:
        s = self.s
        if (intent.spec, intent.machine_class) == (s.spec, s.machine_class):
            return "unchanged"
        self._take_spec(intent.spec, intent.labels, intent.annotations)
        return hot_update.take(self, intent.machine_class)

    def _take_spec(self, spec: MachineSpec, labels: dict[str, str], annotations: dict[str, str]) -> None:
        s = self.s
        s.spec, s.labels, s.annotations = spec, labels, annotations
        if "creation" in self.deadlines and s.created is not None:
            self.deadlines["creation"] = later(s.created, s.spec.creation_timeout)
            if s.status.provider_id:
                s.suspicion = None
                confirm.arm(self, self.deadlines["creation"])
        hooks.show(self)
