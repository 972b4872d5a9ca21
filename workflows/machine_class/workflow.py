"""MachineClassWorkflow: a class as applied, who uses it, and how far each user is with it.

Identity: `machineclass/<cluster>/<name>`. Started by `hostler apply`, or by a person with plain JSON. Ends when it is
deleted and unused. It sends each change to its users, a few at a time; each user decides what the change does to it.
Source: seed 002 ("Every machineClass update pushes the machines referring that machineClass").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from textwrap import shorten

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.calls import SHORT, Urgency, failure_of
from workflows.entity import NEVER, Entity, intent
from workflows.machine_class import holding
from workflows.machine_class.holding import HeldNews, Turn
from workflows.machine_class.words import details, moves, refusal_to_delete, some
from workflows.page import show

with workflow.unsafe.imports_passed_through():
    from activities.temporal.classes import ClassActivities
    from planners.machine.hot_update import compare
    from planners.machine_class.rollout import OPEN, behind, busy, held, next_look, to_tell, when_told
    from planners.telling import patience_after
    from resources import attributes as at
    from resources.intents import Intent
    from resources.machine.state import ClassSnapshot
    from resources.machine_class.state import (
        CHANGES_KEPT,
        TROUBLES_KEPT,
        ClassChange,
        ClassId,
        ClassIntent,
        ClassNews,
        ClassPreview,
        ClassProgress,
        ClassQuestion,
        ClassReport,
        ClassState,
        TellUsersInput,
        TellUsersOutput,
        UpdateState,
        User,
        UserTrouble,
        concurrency_of,
        user_words,
        users_words,
    )
    from resources.names import UPDATE_CONCURRENCY_ANNOTATION, class_id, workflow_queue
    from resources.owner import pool_of
    from resources.words import by_whom, utc

MESSAGE_LENGTH = 500
"""How many characters of a user's trouble the class keeps."""


@workflow.defn
class MachineClassWorkflow(Entity):
    s: ClassState

    @workflow.init
    def __init__(self, state: ClassState) -> None:
        super().__init__(state.journal, state.intents, state.deadlines)
        self.s = state
        self._news = False
        """Whether something was said since the last look: then what people read is written again."""
        self._telling: workflow.ActivityHandle[TellUsersOutput] | None = None
        self._held_news, self._turn = HeldNews(state, self.deadlines), Turn(state)
        self._told: dict[str, User] = {}
        """What was known, when it began, of those that are being told."""
        if state.created is None:
            state.created = workflow.now()
        if not state.changes:
            state.changes = [ClassChange(generation=state.generation, time=state.created)]

    @workflow.run
    async def run(self, state: ClassState) -> None:
        await self.keep(self._live)

    async def _live(self) -> None:
        await self.stand_still(unless=self._over)
        await self._search()
        while not self._over():
            self._tell()
            self._news = False
            await self.until(self._something_to_do)
            await self._collect()
            if self.wants_renewal(self.s.messages) and self._quiet:
                await self.renew()
        await workflow.wait_condition(workflow.all_handlers_finished)

    def _over(self) -> bool:
        """Whether it is deleted, and no user came while that was requested."""
        return self.s.deleted and not self.s.users

    @property
    def _quiet(self) -> bool:
        return self._telling is None and self._held_news.quiet

    # -- telling ------------------------------------------------------------------------------------------------------

    async def _search(self) -> None:
        """Finds users that name the class and were there before it: those of a class whose former workflow was ended
        from outside. They are told, and become known as users by their answers."""
        s = self.s
        if s.searched:
            return
        handle = workflow.start_activity_method(
            ClassActivities.find_users,
            ClassId(cluster=s.cluster, name=s.name),
            task_queue=workflow_queue(s.queue_prefix),
            start_to_close_timeout=s.timings.call_timeout,
            heartbeat_timeout=s.timings.heartbeat,
            retry_policy=SHORT,
            summary=f"find the users of class {s.name} that already exist",
            priority=Urgency.POLL,
        )
        await self.until(handle.done, NEVER)
        try:
            for name in (await handle).users:
                s.users.setdefault(name, User())
            s.searched = True
        except ActivityError as e:
            self.note_news("UsersNotFound", failure_of(e).info.message)  # the next run tries again

    def _tell(self) -> None:
        """Tells one batch at a time. The state says that a user is told before it happens: one that is not reached
        after all has said nothing, and is told again like any other silent one."""
        s, now = self.s, workflow.now()
        waiting = self._held()
        telling = self._telling is not None
        held_back = {*waiting, *holding.awaiting(s, self.deadlines), *self._turn.waiting()}
        names = [] if telling else to_tell(s.users, s.generation, s.update_concurrency, now, held_back)
        if names:
            silent = sorted(n for n in names if s.users[n].told == s.generation and behind(s.users[n], s.generation))
            if silent:
                self.note_news("UserSilent", f"{some(silent)} did not report on generation {s.generation}; told again")
            for name in names:
                s.users[name] = when_told(s.users[name], s.generation, s.silence, now)
            self._told = {name: s.users[name] for name in names}
            change = s.changes[-1]
            news = ClassNews(machine_class=s.machine_class, requested_by=change.requested_by, reason=change.reason)
            self._telling = workflow.start_activity_method(
                ClassActivities.tell_users,
                TellUsersInput(cluster=s.cluster, users=names, news=news),
                task_queue=workflow_queue(s.queue_prefix),
                start_to_close_timeout=s.timings.call_timeout,
                heartbeat_timeout=s.timings.heartbeat,
                retry_policy=SHORT,
                summary=f"tell {some(names)} of generation {s.generation}",
            )
        look = next_look(s.users, s.generation, now)
        if look is None:
            self.deadlines.pop("silence", None)
        else:
            self.deadlines["silence"] = look

    def _held(self) -> Collection[str]:
        """Machines that wait for a window of their pool; the next one wakes us."""
        s = self.s
        waiting = held(s.users, s.openings, s.touching, workflow.now())
        begins = min((begin for begin in waiting.values() if begin is not None), default=None)
        if begins is None:
            self.deadlines.pop("opens", None)
        else:
            self.deadlines["opens"] = begins
        if waiting:
            next_one = f"; the next one begins at {utc(begins)}" if begins is not None else ""
            pools = sorted({pool_of(name) for name in waiting})
            self.note_news("UpdateHeld", f"the machines of {some(pools)} wait for a maintenance window{next_one}")
        self._held_news.say(waiting)
        return waiting

    def _something_to_do(self) -> bool:
        return (
            self._news
            or self._over()
            or (self._telling is not None and self._telling.done())
            or self._held_news.over
            or self._turn.over
            or (self._quiet and self.wants_renewal(self.s.messages))
        )

    async def _collect(self) -> None:
        for name in ("silence", "opens", holding.AWAITED, holding.AGAIN):
            if self.due(name):
                del self.deadlines[name]
        await self._turn.collect()
        if trouble := await self._held_news.collect():
            self.note_news("TellingFailed", trouble)
        if self._telling is None or not self._telling.done():
            return
        handle, self._telling = self._telling, None
        try:
            gone = (await handle).gone
        except ActivityError as e:
            self.note_news("TellingFailed", failure_of(e).info.message)
            return
        for name in gone:
            # A user that has said something since is a new machine of that name.
            if self.s.users.get(name) == self._told[name]:
                self._forget(name)

    # -- what users say -----------------------------------------------------------------------------------------------

    @workflow.signal
    def report(self, report: ClassReport) -> None:
        s, now = self.s, workflow.now()
        self._heard()
        former = s.users.get(report.user, User())
        if former.time is not None and self.is_older(report.time, former.time):
            return  # a newer one overtook it
        if report.generation > s.generation:
            self._raise(report)
        was_updated = s.updated
        heard = former._replace(
            generation=report.generation,
            applied=report.applied,
            state=report.state,
            reason=report.reason,
            time=report.time,
        )
        holding.heard(s, report.user, report.generation)
        if report.generation >= former.told:
            tells = former.tells if report.state in OPEN else 0
            patience = patience_after(tells, s.silence, now) if report.state in OPEN else None
            heard = heard._replace(tells=tells, patience=patience)
        s.users[report.user] = heard
        if report.openings is not None:
            s.openings[report.user] = report.openings
        else:
            s.openings.pop(report.user, None)
        if report.applied == s.generation:
            s.carried = s.machine_class.provider_spec
        self._keep_trouble(report, former)
        if not was_updated and s.updated:
            self.note_news("UsersUpdated", f"all {len(s.users)} users have generation {s.generation}")

    def _keep_trouble(self, report: ClassReport, former: User) -> None:
        troubles = self.s.troubles
        if report.state is not UpdateState.FAILED:
            troubles.pop(report.user, None)
            return
        message = shorten(report.message, MESSAGE_LENGTH, placeholder=" …")
        if report.user in troubles or len(troubles) < TROUBLES_KEPT:
            troubles[report.user] = UserTrouble(message=message, next_try=report.next_try)
        if (former.state, former.reason) != (report.state, report.reason):
            self.note("UserFailed", f"{user_words(report.user)}, generation {report.generation}: {message}")

    def _raise(self, report: ClassReport) -> None:
        """Raises the generation: a user that has a newer one, from a former workflow of this class, would drop ours as
        old news."""
        s = self.s
        s.machine_class = s.machine_class.model_copy(update={"generation": report.generation + 1})
        words = f"{user_words(report.user)} has generation {report.generation} of an earlier class of this name"
        self._record(ClassChange(generation=s.generation, time=workflow.now(), reason=words))
        self.note("GenerationRaised", f"to {s.generation}: {words}")

    @workflow.signal
    def forget_user(self, user: str) -> None:
        self._heard()
        self._forget(user)

    def _heard(self) -> None:
        self.s.messages += 1
        self._news = True

    def _forget(self, user: str) -> None:
        self.s.users.pop(user, None)
        self.s.troubles.pop(user, None)
        self.s.openings.pop(user, None)
        self.s.awaited.pop(user, None)
        self.s.held.pop(user, None)
        if not self.s.users:
            self.s.carried = None

    # -- what is asked ------------------------------------------------------------------------------------------------

    @workflow.query
    def describe(self) -> ClassState:
        return self.s

    @workflow.query
    def snapshot(self) -> ClassSnapshot:
        return self.s.machine_class

    @workflow.query
    def progress(self) -> ClassProgress:
        s = self.s
        return s.progress.model_copy(update={"busy": busy(s.users, s.generation, workflow.now())})

    @workflow.query
    def preview(self, question: ClassQuestion) -> ClassPreview:
        """What a changed class would do, by the same comparison as `apply` itself. A query leaves no history."""
        former, wanted = question.instead_of or self.s.machine_class, question.machine_class
        if former.provider != wanted.provider:
            return ClassPreview(refused=[moves(former, wanted)])
        found = compare(wanted.provider, former.provider_spec, wanted.provider_spec)
        refused = found.refused if question.instead_of else self._must_tags_refused(wanted)
        return ClassPreview(hot=list(found.hot), rolls=list(found.rolls), refused=list(refused))

    # -- intents ------------------------------------------------------------------------------------------------------

    def _apply_refusal(self, intent: ClassIntent) -> str | None:
        s, wanted = self.s, intent.machine_class
        if s.deleted:
            return f"machineclass {s.name} is being deleted; apply it again when it is gone"
        if wanted.name != s.name:
            return f"machineClass.name: this is class {s.name}, not {wanted.name}"
        if wanted.provider != s.machine_class.provider:
            return f"machineclass {s.name}: {moves(s.machine_class, wanted)}"
        try:
            concurrency_of(intent.annotations)
        except ValueError as e:
            return f"machineclass {s.name}: {e}"
        refused = self._must_tags_refused(wanted)
        return f"machineclass {s.name}: {'; '.join(refused)}" if refused else None

    def _must_tags_refused(self, wanted: ClassSnapshot) -> tuple[str, ...]:
        """Compares with what machines carry: a slip that none of them has taken must be correctable."""
        carried = self.s.carried
        return () if carried is None else compare(wanted.provider, carried, wanted.provider_spec).refused

    def _take(self, intent: ClassIntent) -> str:
        s = self.s
        self._heard()
        former = s.machine_class
        meta = (intent.namespace, intent.labels, intent.annotations)
        same_meta = meta == (s.namespace, s.labels, s.annotations)
        if UPDATE_CONCURRENCY_ANNOTATION in {**s.annotations, **intent.annotations}:  # else as it was started
            s.update_concurrency = concurrency_of(intent.annotations)
        s.namespace, s.labels, s.annotations = meta
        wanted = intent.machine_class.model_copy(update={"generation": former.generation})
        if wanted == former:
            return "unchanged" if same_meta else "configured"
        found = compare(former.provider, former.provider_spec, wanted.provider_spec)
        s.machine_class = wanted.model_copy(update={"generation": former.generation + 1})
        change = ClassChange(
            generation=s.generation,
            time=workflow.now(),
            requested_by=intent.requested_by,
            reason=intent.reason,
            hot=list(found.hot),
            rolls=list(found.rolls),
        )
        self._record(change)
        holding.await_words(s, intent.after)
        by = by_whom(intent.requested_by)
        self.note("Applied", f"generation {s.generation}{by}: {change.words}")
        told = f"; {users_words(s.users)} to tell" if s.users else ""
        return f"configured; generation {s.generation}: {change.words}{told}"

    def _record(self, change: ClassChange) -> None:
        self.s.changes.append(change)
        del self.s.changes[:-CHANGES_KEPT]

    def _delete(self, intent: Intent) -> str:
        self.s.deleted = True
        return f"machineclass {self.s.name} is gone"

    apply = intent(ClassIntent, _take, _apply_refusal)
    delete = intent(Intent, _delete, lambda self, _: refusal_to_delete(self.s))

    # -- Entity -------------------------------------------------------------------------------------------------------

    renews = "a new run begins once its users have been told"

    @property
    def own_id(self) -> str:
        return class_id(self.s.cluster, self.s.name)

    def publish(self) -> None:
        s = self.s
        failed = Counter(u.reason for u in s.users.values() if u.state is UpdateState.FAILED and u.reason)
        reason = "InternalError" if s.parked else failed.most_common(1)[0][0] if failed else None
        values = {
            at.CLUSTER: s.cluster,
            at.CLASS: s.name,
            at.PHASE: "Parked" if s.parked else "Updated" if s.updated else "Updating",
            at.REASON: reason,
        }
        self.upsert(values)
        show(details(s))

    @property
    def to_end(self) -> str:
        return "use `hostler delete class` to end it"
