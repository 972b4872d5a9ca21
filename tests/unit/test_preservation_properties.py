"""planners/machine/preservation.py: what holds for every machine, whatever the rows say: each cell is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from preservation.planner import (
    ASKED,
    AUTO,
    HOUR,
    NOBODY,
    NOW,
    SECOND,
    TIMEOUT,
    TYPO,
    WANTED,
    F,
    R,
    T,
    must_end,
    own,
    preserved,
    settle,
    unpreserved,
    wish,
)

from planners.machine.preservation import (
    WARN_BEFORE,
    AskPool,
    Decision,
    End,
    ObservedMachine,
    Preserve,
    Protect,
    Recover,
    Stay,
    Warn,
    decide,
)
from resources.machine.preservation import PreserveRequest, PreserveValue

# -- what may be decided where ----------------------------------------------------------------------------------------


def lapsed(o: ObservedMachine) -> bool:
    """Whether the request was for a time that has passed."""
    return o.own is not None and o.own.until is not None and o.own.until <= o.now


def may_begin(o: ObservedMachine, made: Preserve) -> bool:
    if o.phase is F and not o.drained:
        return False
    if made.source is AUTO:
        return o.phase is F and o.in_pool and o.granted is AUTO and wish(o) == ""
    told = o.phase is R or not o.in_pool or o.granted is not NOBODY
    return wish(o) in (("now",) if o.phase is R else WANTED) and o.phase in (R, F) and told


def right(o: ObservedMachine, made: Decision) -> bool:
    """Whether each kind of decision comes exactly where it may."""
    match made:
        case Preserve() if o.expiry is None:
            return o.vm_present and made.expiry == o.now + TIMEOUT and may_begin(o, made)
        case Preserve():
            return made.expiry == o.expiry and o.source is AUTO and made.source is ASKED and wish(o) in WANTED
        case End():
            was = o.expiry is not None
            return must_end(o) if was else (o.release is not None or lapsed(o)) and not made.terminate
        case Recover():
            return o.expiry is not None and o.phase is F and o.drained and o.healthy
        case Protect():
            return o.expiry is not None and o.node_present and not o.protected
        case Warn():
            return o.expiry is not None and not o.warned and o.now >= o.expiry - WARN_BEFORE
        case AskPool():
            asks = o.phase is F and o.drained and o.vm_present and o.in_pool and o.expiry is None
            return asks and wish(o) != "false"
        case Stay():
            return made.until is None if o.expiry is None else made.until is not None and made.until > o.now


def test_one_that_is_not_preserved() -> None:
    kinds = Counter[str]()
    for o in unpreserved():
        made = decide(o)
        kinds[type(made).__name__] += 1
        assert right(o, made), (o, made)
        if o.phase is T:
            assert made == Stay(), o
        elif o.release is not None:
            assert isinstance(made, End), o
        elif o.phase is F and o.drained and o.vm_present and wish(o) in WANTED:
            assert isinstance(made, AskPool if o.in_pool and o.granted is NOBODY else Preserve), o
        elif o.phase is R and o.vm_present and wish(o) == "now":
            assert isinstance(made, Preserve), o
    assert kinds.keys() == {"Preserve", "End", "AskPool", "Stay"}, kinds


def test_one_that_is_preserved() -> None:
    kinds = Counter[str]()
    for o in preserved():
        made = decide(o)
        kinds[type(made).__name__] += 1
        if o.phase is T:
            assert made == Stay(), o
            continue
        assert right(o, made), (o, made)
        assert isinstance(made, End) == must_end(o), (o, made)
        if isinstance(made, End):
            assert made.terminate == (o.phase is F), (o, made)
    assert kinds.keys() == {"Preserve", "End", "Recover", "Protect", "Warn", "Stay"}, kinds


def test_it_comes_to_rest_from_everywhere() -> None:
    rested = 0
    for o in chain(unpreserved(), preserved(13)):
        after, made = settle(o)
        rested += 1
        assert decide(after) == made[-1], o
        assert sum(isinstance(m, Preserve) for m in made) <= 1, (o, made)
        ended = [n for n, m in enumerate(made) if isinstance(m, End)]
        assert not any(isinstance(m, Preserve) for n in ended for m in made[n:]), (o, made)
        if ended:
            assert after.expiry is None, o
            assert wish(after) not in WANTED, (o, after)  # or it would be preserved again
    assert rested > 15_000


def test_what_a_preserved_one_does_not_care_for() -> None:
    """It ignores a grant, or that it has a pool: an expiry once given is kept (I9)."""
    for o in preserved(31):
        made = decide(o)
        for granted in (AUTO, ASKED):
            assert decide(replace(o, granted=granted)) == made
        alone = replace(made, terminate=False) if isinstance(made, End) and made.reason == "VMGone" else made
        assert decide(replace(o, in_pool=False, timeout=SECOND)) == alone  # its owner is shown what has gone


def test_what_one_that_is_not_does_not_care_for() -> None:
    for o in unpreserved():
        made = decide(o)
        assert decide(replace(o, healthy=True, node_present=False, protected=True, warned=True)) == made
        if not isinstance(made, Preserve):
            assert decide(replace(o, timeout=SECOND)) == made


# -- the Node beats the machine's own ---------------------------------------------------------------------------------


def same(a: Decision, b: Decision) -> bool:
    """Whether two decisions are the same except for words, and what is removed where."""
    if isinstance(a, End) and isinstance(b, End):
        return (a.reason, a.terminate) == (b.reason, b.terminate)
    if isinstance(a, AskPool | Warn | Recover):
        return type(a) is type(b)
    if isinstance(a, Preserve) and isinstance(b, Preserve):
        return (a.expiry, a.source) == (b.expiry, b.source)
    if isinstance(a, Stay) and isinstance(b, Stay):
        return (a.reason, a.until) == (b.reason, b.until)
    return a == b


def cells() -> Iterator[ObservedMachine]:
    return chain(unpreserved(), preserved(31))


OTHERS = [None, own(), own("when-failed", lasts=HOUR), own("false"), own("now", until=NOW + HOUR)]


def agrees(o: ObservedMachine, own: PreserveRequest | None) -> bool:
    """Whether the machine's own request says the same, and for how long, which the Node cannot."""
    return own is not None and own.value == o.node_value and bool(own.lasts or own.until)


def test_the_node_beats_the_machines_own() -> None:
    """Seed 003, note 3."""
    seen = 0
    for o in cells():
        if o.node_value in tuple(PreserveValue):
            seen += 1
            made = decide(replace(o, own=None))
            others = [other for other in (o.own, *OTHERS) if not agrees(o, other)]
            assert all(same(decide(replace(o, own=other)), made) for other in others), o
    assert seen > 3_000


def test_where_both_say_the_same_the_time_counts() -> None:
    seen = 0
    for o in cells():
        for other in OTHERS:
            if agrees(o, other):
                seen += 1
                asked = replace(o, own=other)
                assert same(decide(asked), decide(replace(asked, node_value="", last=""))), o
    assert seen > 1_000


def test_on_the_node_or_of_its_own_is_the_same() -> None:
    seen = 0
    for o in cells():
        if o.node_value in tuple(PreserveValue):
            seen += 1
            assert same(decide(replace(o, node_value="", last="", own=own(o.node_value))), decide(o)), o
    assert seen > 3_000


def test_an_invalid_value_changes_nothing() -> None:
    """K8. It is as though the annotation had stayed as it was."""
    seen = 0
    for o in cells():
        if o.node_value == TYPO:
            seen += 1
            assert same(decide(replace(o, node_value=o.last)), decide(o)), o
    assert seen > 3_000


def test_false_never_preserves() -> None:
    """Nor does it keep anything. Once carried out, nothing is preserved until the `false` is gone."""
    seen = 0
    for o in cells():
        if wish(o) == "false" and o.phase is not T:
            seen += 1
            after, made = settle(o)
            assert after.expiry is None, o
            assert all(isinstance(m, End | Stay) or o.release for m in made), (o, made)
    assert seen > 3_000
