"""What every entity shares: a journal, intents that count once, absolute deadlines, one wait helper, the outer guard.

The evidence for each rule is in docs/architecture.md, *Rules of an entity*.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.workflow import ContinueAsNewVersioningBehavior

with workflow.unsafe.imports_passed_through():
    from resources import attributes as at
    from resources.intents import Answer, Intent
    from resources.journal import Happening
    from resources.machine.state import INTENTS_KEPT, JOURNAL_LENGTH
    from resources.orders import Ordered, is_newer, is_older
    from resources.sound import unreadable

T = TypeVar("T")
NEVER = ""
"""The name of no deadline: for a wait that only its condition ends."""
STUMBLE = timedelta(seconds=30)
"""A run that fails this soon, right after another one, pauses this long before the next."""
RENEW_AFTER = 400
"""The messages in one run. Renewing early keeps replays short and lets new code reach a busy entity."""
REFUSED_KEPT = 5
"""How many refusals in a row the journal keeps, and how many are kept for the next Event."""
INDEXED = 255
"""The most characters of a search attribute: Temporal refuses the command of a longer one, and with it the task."""
LONGEST_TIMER = timedelta(days=365)
"""The longest timer. One that rings before its deadline is armed again; Temporal refuses the command of a timer of
hundreds of years."""
TURNS = 1000
"""The most waits in one workflow task that each end at once. A life takes a few."""
ORDERS = "orders"
"""The patch of orders that lie ahead, which once counted like others."""
WAITS_RENEW = "waits-renew"
"""The patch of waits that also end their run after so many messages; a run that began before it goes on as it was."""


class Lasting(Protocol):
    """What the state of every entity has."""

    parked: str | None
    messages: int


def unheard(handle: workflow.ActivityHandle[Any]) -> None:
    """Retrieves the error of a call that nobody waits for, so that nobody warns of it either."""
    handle.add_done_callback(lambda h: h.cancelled() or h.exception())


class Refusal(str):
    """Why an intent cannot be taken, in words."""

    type = "Refused"
    """The type of the failure that an update answers with."""


def intent(
    kind: type[Intent],
    act: Callable[[Any, Any], str | None],
    refuse: Callable[[Any, Any], str | None] | None = None,
    answer: Callable[[Any, str], Awaitable[str]] | None = None,
) -> Any:
    """One intent of an entity, in one line of its class: an update, its validator, and the signal of the same name.

        scale = intent(ScaleIntent, intents.scale, intents.refuse_scale)

    Both functions get the entity and the intent. `act` records what is wanted, and says what will happen; `refuse` says
    why it cannot be taken ("" or None: it can). A second arrival is never refused: it gets the first answer. The signal
    is the attribute `scale_by_signal`.

    `answer` is for an update whose answer takes a while: it gets the entity and what `act` said ("" for None, which
    means that it is decided later), waits, and says what the answer is, or raises.
    """
    return _Declared(kind, act, refuse, answer)


@dataclass(frozen=True)
class _Declared:
    kind: type[Intent]
    act: Callable[[Any, Any], str | None]
    refuse: Callable[[Any, Any], str | None] | None
    answer: Callable[[Any, str], Awaitable[str]] | None

    def __set_name__(self, owner: type, name: str) -> None:
        """Replaces this attribute of the class by what Temporal shall find there. Temporal knows methods by `self`."""
        act, refusal, answer = self.act, self.refusal, self.answer

        def take(self: Entity, intent: Intent) -> Answer:
            return self.once(intent, lambda: act(self, intent))

        async def take_and_answer(self: Entity, intent: Intent) -> Answer:
            assert answer is not None
            return Answer(message=await answer(self, take(self, intent).message))

        def check(self: Entity, intent: Intent) -> None:
            if words := refusal(self, intent):
                raise ApplicationError(words, type=words.type, non_retryable=True)

        def by_signal(self: Entity, intent: Intent) -> None:
            if words := refusal(self, intent):
                self.note("Refused", words)
            else:
                take(self, intent)

        by_update: Callable[..., Any] = take if answer is None else take_and_answer
        for handler, result in ((by_update, Answer), (check, None), (by_signal, None)):
            handler.__annotations__ = {"intent": self.kind, "return": result}
        update = workflow.update(name=name)(by_update)
        if self.refuse is not None:
            update.validator(check)
        setattr(owner, name, update)
        setattr(owner, f"{name}_by_signal", workflow.signal(name=name)(by_signal))

    def refusal(self, entity: Entity, intent: Intent) -> Refusal | None:
        words = None if self.refuse is None or intent.id in entity.intents else self.refuse(entity, intent)
        return words if isinstance(words, Refusal) else Refusal(words) if words else None


class Entity:
    """The base of entity workflows. Handlers only record; the life acts."""

    s: Lasting
    """The state, which a subclass sets."""

    def __init__(
        self,
        journal: list[Happening],
        intents: dict[str, str] | None = None,
        deadlines: dict[str, datetime] | None = None,
    ) -> None:
        self.journal = journal
        self.intents = intents if intents is not None else {}
        self.deadlines = deadlines if deadlines is not None else {}
        self.in_flight: set[asyncio.Task[Any]] = set()
        """Effects that must be known before the life may end or renew."""
        known = workflow.info().typed_search_attributes
        self._published: dict[str, Any] = {k.name: known.get(k) for k in at.ALL}
        self.living = False
        """Whether `keep` has the life; a failure before that, on a first start, ends the workflow (inbound.py)."""
        self.refused: list[Happening] = []
        """Refusals that no Event has told yet; a new run does not tell those of the former one."""
        self.was_reset = False
        """Whether somebody has reset the workflow to a task of this run: what came after that task happened all the
        same."""
        workflow.register_random_seed_callback(self._reset)
        self.renewal_wanted = False
        self._turns = 0
        self._turned_in: tuple[datetime, int] | None = None
        self._timer: asyncio.Task[None] | None = None
        self._armed: datetime | None = None

    # -- what a subclass says -------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Writes search attributes and current details; called once before each wait."""
        raise NotImplementedError

    def parked(self, error: Exception) -> None:
        """Records that the life is parked because of an error of our own code."""
        self.s.parked = f"{type(error).__name__}: {error}"
        self.note("InternalError", self.s.parked)

    def cancel_ignored(self) -> None:
        """Records that somebody cancelled the workflow, which means nothing here."""
        self.note("CancelIgnored", f"somebody cancelled the workflow, which has no effect; {self.to_end}")

    @property
    def to_end(self) -> str:
        """What ends it, in words for a person."""
        raise NotImplementedError

    def begin_anew(self) -> object:
        """The state that the next run begins with."""
        self.s.messages = 0
        return self.s

    renews = "a new run begins"
    """What an operator who wants a new run is told."""

    def want_renewal(self) -> str:
        """Records that an operator wants a new run, and another try of whatever is parked; returns words for what will
        happen."""
        self.s.parked = None
        self.renewal_wanted = True
        return self.renews

    @property
    def own_id(self) -> str:
        """The workflow's id, as its argument makes it: everybody else knows it by that (resources/names.py)."""
        raise NotImplementedError

    @property
    def settled(self) -> bool:
        """Whether nothing is on its way to another workflow: Temporal drops the signals of a run that ends."""
        return True

    def upsert(self, values: Mapping[Any, Any], quiet: Collection[Any] = ()) -> None:
        """Writes the search attributes that have changed. A change of `quiet` ones alone is not worth an event: it goes
        along with the next."""
        values = {k: v[:INDEXED] if isinstance(v, str) else v for k, v in values.items()}
        changed = {k: v for k, v in values.items() if self._published.get(k.name) != v}
        if set(changed) - set(quiet):
            workflow.upsert_search_attributes(
                [k.value_unset() if v is None else k.value_set(v) for k, v in changed.items()]
            )
            self._published |= {k.name: v for k, v in changed.items()}

    def _reset(self, _: int) -> None:
        """The random seed changes after a reset, and at no other time. A reset to the first task of a run does not call
        this."""
        self.was_reset = True

    # -- journal and intents ----------------------------------------------------------------------------------------

    def note(self, reason: str, message: str) -> None:
        self.journal.append(Happening(time=workflow.now(), reason=reason, message=message))
        del self.journal[:-JOURNAL_LENGTH]

    def note_news(self, reason: str, message: str) -> None:
        """Notes it unless the last lines already say so: a wait that is tried again and again is one happening."""
        if all((h.reason, h.message) != (reason, message) for h in self.journal[-3:]):
            self.note(reason, message)

    def refuse(self, words: str) -> None:
        """Records that a message was not taken (inbound.py). It adds no command: the next Event tells it too."""
        before = self.journal[-1:]
        self.note_news("Refused", words)
        if self.journal[-1:] == before:
            return
        self.refused = [*self.refused, self.journal[-1]][-REFUSED_KEPT:]
        if all(h.reason == "Refused" for h in self.journal[-REFUSED_KEPT - 1 :]) and len(self.journal) > REFUSED_KEPT:
            del self.journal[-REFUSED_KEPT - 1]  # endless nonsense must not push the story out

    def once(self, intent: Intent, act: Callable[[], str | None]) -> Answer:
        """Acts on an intent's first arrival; a second one, by update or signal, gets the first answer, once there is
        one."""
        if intent.id and intent.id in self.intents:
            return Answer(message=self.intents[intent.id])
        message = act()
        if message is None:
            return Answer(message="")
        if intent.id:
            self.intents[intent.id] = message
            for old in list(self.intents)[:-INTENTS_KEPT]:
                del self.intents[old]
        return Answer(message=message)

    # -- which of two messages is newer (resources/orders.py) ---------------------------------------------------------

    @staticmethod
    def is_newer(order: Ordered, known: Ordered | None) -> bool:
        if known is None or order > known:
            return True
        return is_newer(order, known, workflow.now()) and workflow.patched(ORDERS)

    @staticmethod
    def is_older(order: Ordered, known: Ordered) -> bool:
        return order < known and (is_older(order, known, workflow.now()) or not workflow.patched(ORDERS))

    # -- the one wait helper ------------------------------------------------------------------------------------------

    def due(self, name: str) -> bool:
        """Whether a deadline has passed. The caller must clear it: one that stays would never let anybody wait."""
        deadline = self.deadlines.get(name)
        return deadline is not None and deadline <= workflow.now()

    async def until(self, condition: Callable[[], bool], *names: str) -> None:
        """Waits until the condition holds or one of these deadlines has passed; without names, any of the table."""

        def over() -> bool:
            return condition() or any(map(self.due, names or tuple(self.deadlines)))

        while True:
            self._count_turn()
            self._arm()
            self.publish()
            await workflow.wait_condition(lambda: over() or self._rung())
            if over():
                return

    def _count_turn(self) -> None:
        """Raises RuntimeError where the life only spins: a deadline that nobody clears, or a pause of no length, would
        keep the worker's thread forever."""
        task = workflow.now(), workflow.info().get_current_history_length()
        self._turns = self._turns + 1 if task == self._turned_in else 0
        self._turned_in = task
        if self._turns > TURNS:
            passed = sorted(name for name in self.deadlines if self.due(name))
            raise RuntimeError(f"waited {TURNS} times in one task; deadlines that have passed: {passed or 'none'}")

    def _rung(self) -> bool:
        """Whether another timer must be armed: this one has rung, perhaps for a deadline that is not waited for here,
        or a handler has moved a deadline."""
        return self._next_deadline()[1] != self._armed or (self._timer is not None and self._timer.done())

    def _next_deadline(self) -> tuple[str | None, datetime | None]:
        now = workflow.now()
        name = min((n for n, d in self.deadlines.items() if d > now), key=lambda n: self.deadlines[n], default=None)
        return name, self.deadlines[name] if name else None

    def _arm(self) -> None:
        """Arms one timer, for the earliest deadline to come; it moves only when that does."""
        if not self._rung():
            return
        if self._timer is not None:
            self._timer.cancel()
        name, self._armed = self._next_deadline()
        self._timer = None
        if name and self._armed:
            self._timer = asyncio.create_task(self._ring(self._armed, name))

    async def _ring(self, at: datetime, name: str) -> None:
        delay = (at - workflow.now()).total_seconds()
        if delay > 0:
            await workflow.sleep(min(delay, LONGEST_TIMER.total_seconds()), summary=f"{name} deadline")

    @staticmethod
    def drop(handle: workflow.ActivityHandle[Any]) -> None:
        """Cancels a poller whose news no longer matters."""
        unheard(handle)
        handle.cancel()

    # -- the life -----------------------------------------------------------------------------------------------------

    async def keep(self, live: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs the life in a task of its own, so that a cancellation of the workflow interrupts nothing."""
        self.living = True
        life = asyncio.create_task(self._guarded(live))
        while True:
            try:
                return await asyncio.shield(life)
            except asyncio.CancelledError:
                # The life's own cancellation is the eviction of this run from the worker's cache: never swallow it.
                if life.done():
                    raise
                self.cancel_ignored()

    async def _guarded(self, live: Callable[[], Awaitable[T]]) -> T:
        """Parks the entity on an error: no error of our code closes a workflow that still owns something. It parks in a
        new run, so that a fixed worker need not replay the error."""
        try:
            return await live()
        except Exception as error:  # ContinueAsNewError and CancelledError are no Exceptions
            workflow.logger.exception("%s: parked", workflow.info().workflow_id)
            self.parked(error)
            await asyncio.gather(*self.in_flight, return_exceptions=True)
            info = workflow.info()
            if info.continued_run_id and workflow.now() - info.start_time < STUMBLE:
                # It is parked and stumbles again, over what it says of itself. Without a pause, new runs would follow
                # without end.
                await workflow.sleep(STUMBLE, summary="stumbled at once")
            await self.renew()
            raise

    async def stand_still(self, unless: Callable[[], bool] = lambda: False) -> None:
        """Waits while the life is parked: for `hostler renew`, or for what `unless` names. The run ends like that of
        any other entity; after 10,000 messages the server would refuse the very intents that can release it."""

        def over() -> bool:
            return self.s.parked is None or unless()

        while not over():
            await self.until(lambda: over() or self.overlong, NEVER)
            if not over():
                await self.renew()

    @property
    def overlong(self) -> bool:
        """Whether the run should end though what it waits for has not come. For waits that once did not end a run."""
        return self.wants_renewal(self.s.messages) and workflow.patched(WAITS_RENEW)

    async def renew(self) -> None:
        """Continues as new at a safe point. A run that is pinned to a build continues with the current one."""
        # One condition, with nothing awaited after it: a handler that runs meanwhile may begin to tell something.
        await workflow.wait_condition(lambda: workflow.all_handlers_finished() and self.settled)
        while words := unreadable(anew := self.begin_anew(), type(anew)):
            # A run that cannot read its own argument would fail forever; this one can be asked, and reset.
            self.parked(ValueError(f"the next run could not read its state: {words}"))
            self.publish()
            await workflow.wait_condition(lambda: self.s.parked is None)
            await workflow.wait_condition(lambda: workflow.all_handlers_finished() and self.settled)
        workflow.continue_as_new(anew, initial_versioning_behavior=ContinueAsNewVersioningBehavior.AUTO_UPGRADE)

    @workflow.update(name="renew")
    def renew_by_update(self, intent: Intent) -> Answer:
        return self.once(intent, self.want_renewal)

    @workflow.signal(name="renew")
    def renew_by_signal(self, intent: Intent) -> None:
        self.once(intent, self.want_renewal)

    def wants_renewal(self, messages: int) -> bool:
        """Whether an operator wants a new run, or so many messages came in this one."""
        return self.renewal_wanted or messages >= RENEW_AFTER or workflow.info().is_continue_as_new_suggested()
