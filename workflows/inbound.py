"""The one entry point for everything that others send to a workflow: starts, signals, updates, queries.

`temporal workflow signal` is Hostler's API too, and takes whatever is typed. The SDK silently drops a signal that it
cannot decode. It fails the workflow task, forever, for one that has too few or too many arguments, or whose handler
raises; a start that it cannot decode holds the workflow's id. So:

- `admit` sees each message before the SDK does, on the way into the sandbox (runner.py, so that no worker and no
  replay can be without it). A message that lacks the declared arguments, or cannot be kept (resources/sound.py),
  goes on as a refusal with words: a signal becomes a line of the journal, an update and a query are refused before
  they enter history, a start ends the workflow, for nothing is owned yet. The argument of a later run, or of one that
  somebody has reset, is left alone: there may be a VM, and a worker that can read it goes on.
- `Inbound` stands around the handlers, inside the sandbox: an error of theirs is a line of the journal.

A refusal adds no command. So a history replays whether its reader refuses a message, as an older worker did, or takes
it, as long as nothing follows from it. Narrowing a type changes all workflows that take it. Messages that fit their
type, and that older workers took, are refused inside the sandbox, by a patch: an order of the future
(resources/orders.py), a manifest that no API server would take (resources/judgement.py), an intent of a person with a
key that no intent has, and a start or an intent with a value of another type than its field (resources/strict.py).
Programs may be of a newer release, and are not held to the keys that this one knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any, Protocol, cast

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.exceptions import ApplicationError, FailureError, TemporalError
from temporalio.worker import (
    ExecuteWorkflowInput,
    HandleQueryInput,
    HandleSignalInput,
    HandleUpdateInput,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from resources.converter import REFUSED, data_converter, refusal_payload
    from resources.judgement import message
    from resources.names import is_name
    from resources.orders import too_far_ahead
    from resources.sound import fault, read_words, short
    from resources.spelling import did_you_mean
    from resources.strict import strange, untyped
    from workflows.entity import ORDERS

HEADER = "hostler-refused"
"""The header of a signal that says why it is refused. Only `admit` sets it."""
STRANGE = "hostler-strange"
"""The same header for keys that an older worker took."""
MISTYPED = "hostler-mistyped"
"""The same header for types that an older worker took; a start has it, too."""
JUDGED = "judged-manifests"
"""The patch of manifests whose names, labels, annotations and taints must be valid (resources/judgement.py)."""
STRICT = "strict-intents"
"""The patch of intents whose keys must all be known."""
TYPED = "strict-types"
"""The patch of starts and intents whose values must have their fields' own types."""
ANY = "renew"
"""A signal that every entity has: unknown signals are refused under this one's name, because the SDK keeps a signal
without a handler in memory, and says nothing."""
TEXT = 253
"""The most characters of an argument that is a bare text: a name, the longest that Kubernetes has."""
SUMMARY_BYTES = 190
"""The most bytes of a summary: Temporal refuses the command of one that takes more than 400 as JSON, where a quote
takes two."""
ID_BYTES = 1000
"""The most bytes of workflow ids and task queues: Temporal refuses a command with a longer one, and with it the
task."""

_converter = data_converter.payload_converter


class Refusing(Protocol):
    """What the boundary sees of an entity; the sandbox has classes of its own."""

    living: bool

    def refuse(self, words: str) -> None: ...


# -- before the SDK ---------------------------------------------------------------------------------------------------


def admit(defn: workflow._Definition, act: WorkflowActivation) -> None:
    """Judges what an activation brings, in place: afterwards the SDK can decode all of it, except for what it is to
    refuse. A pure function of the messages, so that a replay sees the same."""
    for job in act.jobs:
        if job.HasField("signal_workflow"):
            _judge_signal(defn, job.signal_workflow)
        elif job.HasField("do_update") and job.do_update.run_validator:  # else it is in history, and was taken
            update = job.do_update
            if (known := defn.updates.get(update.name)) is not None:
                _judge(f"update {update.name!r}", known.arg_types, update.input, _parameters(known.fn))
        elif job.HasField("query_workflow"):
            query = job.query_workflow
            if (asked := defn.queries.get(query.query_type)) is not None:
                _judge(f"query {query.query_type!r}", asked.arg_types, query.arguments, _parameters(asked.fn))
        elif job.HasField("initialize_workflow"):
            start = job.initialize_workflow
            if start.first_execution_run_id == act.run_id:  # neither continued nor reset: nothing is owned yet
                _judge_start(defn, start)


def _judge_start(defn: workflow._Definition, start: Any) -> None:
    _forget(start.headers, MISTYPED)
    what = f"the input of {defn.name}"
    if words := refusal(what, defn.arg_types, start.arguments):
        _refuse(start.arguments, words)
    elif words := _first(untyped, what, defn.arg_types, start.arguments):
        start.headers[MISTYPED].CopyFrom(refusal_payload(words))


def _judge_signal(defn: workflow._Definition, signal: Any) -> None:
    _forget(signal.headers, HEADER, STRANGE, MISTYPED)
    known = defn.signals.get(signal.signal_name)
    if known is not None:
        what = f"signal {signal.signal_name!r}"
        words = refusal(what, known.arg_types, signal.input, _parameters(known.fn))
        if not words and signal.signal_name in defn.updates:  # an intent
            for header, judged in ((STRANGE, strange), (MISTYPED, untyped)):
                if odd := _first(partial(judged, by_signal=True), what, known.arg_types, signal.input):
                    signal.headers[header].CopyFrom(refusal_payload(odd + _sender(signal.identity)))
    elif ANY in defn.signals:
        intents = sorted(filter(None, defn.updates))
        meant = did_you_mean(signal.signal_name[:60], intents) or f"; the signals are {', '.join(intents)}"
        words = f"unknown signal {short(signal.signal_name, 60)!r}{meant}"
        signal.signal_name = ANY
    else:
        return
    if words:
        del signal.input[:]
        signal.headers[HEADER].CopyFrom(refusal_payload(words + _sender(signal.identity)))


def _sender(identity: str) -> str:
    """The sender as Temporal knows it: usually a process and its host. Processes of one script are one sender."""
    name = short(identity.lstrip("0123456789@"), 60)
    return f"; sent by {name}" if name and name.isprintable() else ""


def _parameters(handler: Callable[..., Any]) -> list[str]:
    """What a bare text is called."""
    return list(inspect.signature(handler).parameters)[1:]


def _judge(what: str, hints: Sequence[Any] | None, arguments: Any, names: Sequence[str]) -> None:
    """Judges what is in no history yet."""
    judges = (partial(strange, by_signal=False), untyped)
    said = chain([refusal(what, hints, arguments, names)], (_first(j, what, hints, arguments) for j in judges))
    if words := next(filter(None, said), ""):
        _refuse(arguments, words)


def _refuse(arguments: Any, words: str) -> None:
    """Replaces them: the converter raises the words when the SDK decodes them."""
    del arguments[:]
    arguments.append(refusal_payload(words))


def _forget(headers: Any, *ours: str) -> None:
    """Only `admit` sets these headers."""
    for header in ours:
        if header in headers:
            del headers[header]


def refusal(what: str, hints: Sequence[Any] | None, payloads: Sequence[Payload], names: Sequence[str] = ()) -> str:
    """Why these arguments are not taken, in words; "" if they are."""
    hints = hints or ()
    called = [name if h is str else type_name(h) for h, name in zip(hints, chain(names, repeat("text")), strict=False)]
    if len(hints) != len(payloads):
        wanted = f"one argument, {called[0]} as JSON" if hints else "no argument"
        return f"{what} takes {wanted}; it got {len(payloads) or 'none'}"
    for hint, payload, name in zip(hints, payloads, called, strict=True):
        try:
            (value,) = _converter.from_payloads([payload], [hint])
        except ValidationError as e:
            return f"{what}: {name}: {read_words(e)}"
        except Exception as e:  # bytes, another encoding, another codec: whatever it is, it cannot be read
            return f"{what}: its argument cannot be read: {short(f'{type(e).__name__}: {e}')}"
        if words := fault(value, hint) or (_text_fault(value) if isinstance(value, str) else ""):
            return f"{what}: {name}: {words}"
    return ""


def _first(
    judge: Callable[[Any, bytes], str], what: str, hints: Sequence[Any] | None, payloads: Sequence[Payload]
) -> str:
    found = (judge(h, p.data) for h, p in zip(hints or (), payloads, strict=False))
    return next((f"{what}: {words}" for words in found if words), "")


def _text_fault(text: str) -> str:
    if len(text) > TEXT:
        return f"{len(text)} characters, of at most {TEXT}"
    return "" if text.isprintable() else "contains characters that cannot be printed"


def type_name(hint: Any) -> str:
    return str(getattr(hint, "__name__", hint))


# -- around the handlers ----------------------------------------------------------------------------------------------


class Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        """Refuses to begin after an error. The life itself has a guard (entity.py); what fails before it begins would
        fail forever."""
        self._check_start(input)
        try:
            return await super().execute_workflow(input)
        except Exception as e:
            info = workflow.info()
            if isinstance(e, TemporalError) or getattr(_entity(), "living", False):
                raise
            if info.run_id != info.first_execution_run_id:
                raise
            words = f"{info.workflow_type} cannot begin, and owns nothing yet: {_words(e)}"
            raise ApplicationError(words, type=REFUSED, non_retryable=True) from e

    def _check_start(self, input: ExecuteWorkflowInput) -> None:
        """Compares the id: whatever id a workflow was started with, others know it by the one that its argument
        makes."""
        info = workflow.info()
        if info.run_id != info.first_execution_run_id:
            return
        words = _misnamed(info.workflow_id) or too_far_ahead(list(input.args), workflow.now())
        patch = ORDERS
        if not words:
            words, patch = _misjudged(input.args), JUDGED
        if not words and (mistyped := input.headers.get(MISTYPED)) is not None:
            words, patch = mistyped.data.decode(), TYPED
        if words and workflow.patched(patch):
            words = f"{info.workflow_type} cannot begin, and owns nothing yet: {words}"
            raise ApplicationError(words, type=REFUSED, non_retryable=True)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        if (refused := input.headers.get(HEADER)) is not None:
            _entity().refuse(refused.data.decode())
            return
        for header, patch in ((STRANGE, STRICT), (MISTYPED, TYPED)):
            if (odd := input.headers.get(header)) is not None and workflow.patched(patch):
                _entity().refuse(odd.data.decode())
                return
        if (ahead := too_far_ahead(list(input.args), workflow.now())) and workflow.patched(ORDERS):
            _entity().refuse(f"signal {input.signal!r}: {type_name(type(input.args[0]))}: {ahead}")
            return
        if (wrong := _misjudged(input.args)) and workflow.patched(JUDGED):
            _entity().refuse(f"signal {input.signal!r}: {wrong}")
            return
        try:
            await super().handle_signal(input)
        except Exception as e:
            if _sdks_own(e):
                raise
            workflow.logger.exception("signal %s", input.signal)
            _entity().refuse(f"signal {input.signal!r} {_failed(e)}")

    def handle_update_validator(self, input: HandleUpdateInput) -> None:
        if ahead := too_far_ahead(list(input.args), workflow.now()):
            raise ApplicationError(f"update {input.update!r}: {ahead}", type="Refused", non_retryable=True)
        if wrong := _misjudged(input.args):
            raise ApplicationError(f"update {input.update!r}: {wrong}", type="Refused", non_retryable=True)
        try:
            super().handle_update_validator(input)
        except TemporalError:
            raise  # the validator's own words
        except Exception as e:
            raise _refused(f"update {input.update!r}", e) from e

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        try:
            return await super().handle_update_handler(input)
        except FailureError:
            raise  # the handler's own words
        except Exception as e:
            if _sdks_own(e):
                raise
            workflow.logger.exception("update %s", input.update)
            _entity().refuse(f"update {input.update!r} {_failed(e)}")
            raise _refused(f"update {input.update!r}", e) from e

    async def handle_query(self, input: HandleQueryInput) -> Any:
        try:
            return await super().handle_query(input)
        except TemporalError:
            raise
        except Exception as e:
            raise _refused(f"query {input.query!r}", e) from e


def _misnamed(id: str) -> str:
    """Why a workflow cannot have this id; "" if it can."""
    wanted: str = getattr(workflow.instance(), "own_id", "")  # a sweep may have any
    if wanted and id != wanted:
        return f"it was started as {short(id, 100)!r}, but its argument is that of {short(wanted, 100)!r}"
    odd = [short(name, 60) for name in wanted.split("/")[1:] if not is_name(name)]
    return f"{odd[0]!r} is not a Kubernetes name: use lower-case letters, digits, '-' and '.'" if odd else ""


def _misjudged(args: Sequence[Any]) -> str:
    """What a cluster's API server would refuse of a manifest among the arguments."""
    return next(filter(None, map(message, args)), "")


def _entity() -> Refusing:
    return cast(Refusing, workflow.instance())


def _sdks_own(error: Exception) -> bool:
    """Whether the error is nondeterminism or a command out of place, which must fail the task. Cancellation, eviction
    and continue-as-new are no Exceptions and pass on their own."""
    return isinstance(error, TemporalError) and not isinstance(error, FailureError)


def _words(error: Exception) -> str:
    return short(f"{type(error).__name__}: {error}")


def _failed(error: Exception) -> str:
    return (
        f"failed because of an error in Hostler itself, and may have had some effect: {_words(error)}; please report it"
    )


def _refused(what: str, error: Exception) -> ApplicationError:
    return ApplicationError(f"{what} {_failed(error)}", type=REFUSED, non_retryable=True)


# -- what must not fail the task on its way out -----------------------------------------------------------------------


class _Outbound(WorkflowOutboundInterceptor):
    """Checks commands first: Temporal refuses one that breaks a limit, and fails its task forever; the caller catches
    an error raised here."""

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        _check_id("task queue", input.task_queue or "")
        if input.summary is not None:
            input.summary = brief(input.summary)
        return super().start_activity(input)

    async def signal_external_workflow(self, input: Any) -> None:
        _check_id("workflow id", input.workflow_id)
        await super().signal_external_workflow(input)


def brief(summary: str) -> str:
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in summary[:SUMMARY_BYTES])
    if plain == summary and len(plain.encode()) <= SUMMARY_BYTES:
        return summary
    return plain.encode()[: SUMMARY_BYTES - 3].decode(errors="ignore") + "…"


def _check_id(what: str, id: str) -> None:
    if len(id.encode()) > ID_BYTES:
        raise ApplicationError(f"a {what} of {len(id)} characters is too long: {id[:60]}…", non_retryable=True)
