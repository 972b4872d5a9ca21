"""The guard of etcd as a table: given members and machines, what is done next, or what is waited for.

A machine has its member's name. A member is written U (healthy), L (the leader), l (a learner), x (down), X (down, and
its Node is gone), ? (down, of no machine that is known). Machine a of index 0 leaves and is held; d is its replacement.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from planners.control_plane.etcd import Act, needed
from planners.control_plane.holds import etcd_act, lift
from planners.control_plane.view import Host, Observed
from resources.control_plane.etcd import EtcdAct, EtcdMember, EtcdView
from resources.control_plane.spec import UpdateStrategy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INDEX = {"a": 0, "b": 1, "c": 2, "d": 0, "e": 1}


def member(number: int, name: str, word: str) -> EtcdMember:
    here = word not in "X?"
    return EtcdMember(
        id=str(number),
        name=name,
        machine="" if word == "?" else name,
        node=f"node-{name}" if here else "",
        leader=word == "L",
        learner=word == "l",
        trouble="no answer" if word in "xX?" else "",
    )


def observed(members: str, machines: str = "a b c d", **more: Any) -> Observed:
    """`members`: `aL bU cU dU`; `machines`: those that are there, with n where one is not ready, d where it leaves."""
    hosts = []
    for number, word in enumerate(machines.split()):
        leaving = word[0] == "a" or "d" in word[1:]
        made = NOW + timedelta(seconds=number)
        hosts.append(Host(word[0], INDEX[word[0]], made, ready="n" not in word, leaving=leaving, held=leaving))
    view = EtcdView(members=[member(n, w[0], w[1]) for n, w in enumerate(members.split())])
    given = {"guarded": True, "etcd": view, **more}
    return Observed(3, UpdateStrategy.ON_DELETE, tuple(hosts), **given)


def said(seen: Observed) -> str:
    act, (lifted, waits) = etcd_act(seen), lift(seen)
    if lifted:
        assert act is None, "what goes has no member any more"
        return f"lift {' '.join(h.name for h, _ in lifted)}"
    if act is not None:
        return f"{'move to' if act.act is EtcdAct.MOVE_LEADER else 'remove'} {act.member.name}"
    return ", ".join(w.reason for w in waits)


TABLE: list[tuple[str, Observed, str]] = [
    ("it votes, and so does its replacement", observed("aU bL cU dU"), "remove a"),
    ("it leads: the leader moves to the replacement, which stays", observed("aL bU cU dU"), "move to d"),
    ("it is no member", observed("bL cU dU"), "lift a"),
    ("its replacement is no member yet", observed("aU bL cU"), "EtcdReplacementNotVoting"),
    ("its replacement has no vote yet", observed("aU bL cU dl"), "EtcdReplacementNotVoting"),
    ("its replacement's member is down", observed("aU bL cU dx"), "EtcdReplacementNotVoting"),
    ("its replacement is not ready", observed("aU bL cU dU", "a b c dn"), "WaitsForReplacement"),
    ("it is a learner itself, which counts for nothing", observed("al bL cU dU"), "remove a"),
    ("only three vote, with its replacement: two would survive nothing", observed("aU bL dU"), "EtcdQuorumAtRisk"),
    ("another is down: afterwards etcd survives as much as now", observed("aU bL cx dU"), "remove a"),
    ("no quorum as we see it", observed("aU bx cx dU"), "EtcdQuorumAtRisk"),
    ("no quorum as etcd says", observed("aU bx cx dU", etcd=EtcdView(quorate=False)), "EtcdQuorumLost"),
    ("nobody answers", observed("", etcd=EtcdView(quorate=False, trouble="refused")), "EtcdTrouble"),
    ("it was not looked at since", observed("", etcd=None), "EtcdTrouble"),
    ("it could not be changed", observed("aU bL cU dU", etcd_trouble="unhealthy cluster"), "EtcdTrouble"),
    ("it is down and not ready: etcd takes no other beside it", observed("ax bL cU", "an b c"), "remove a"),
    ("it is down, and its kubelet lives", observed("ax bL cU", "a b c"), "WaitsForReplacement"),
    ("it is down with another one", observed("ax bx cL", "an bn c"), "WaitsForReplacement"),
    ("the member of a machine that is gone", observed("eX bL cU dU", "b c d"), "remove e"),
    ("of a machine that is gone, and its Node is not", observed("ex bL cU dU", "b c d"), ""),
    ("of a machine that is gone, and it answers", observed("eU bL cU dU", "b c d"), ""),
    ("of a machine that is there", observed("bX cL dU", "b c d"), ""),
    ("a stranger that is down may be its own", observed("?? bL cU dU"), "EtcdMemberUnknown"),
    ("two leave: one at a time", observed("aU bU cL dU eU", "a bd c d e"), "remove a"),
    (
        "two leave, and the first is out: it goes before the other's member",
        observed("bU cL dU eU", "a bd c d e"),
        "lift a",
    ),
    ("nobody guards it", observed("aU bL cU dU", guarded=False), "lift a"),
]


@pytest.mark.parametrize(("seen", "what"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_what_is_done(seen: Observed, what: str) -> None:
    assert said(seen) == what


def test_a_person_who_forces_is_obeyed() -> None:
    seen = observed("aL bx cx dU")
    forced = replace(seen, hosts=tuple(replace(h, forced=h.name == "a") for h in seen.hosts))
    assert said(forced) == "lift a"


def test_no_removal_costs_the_quorum() -> None:
    """Every etcd of four members, with every state of its machines: who is removed is missed by no quorum, and etcd
    survives as many failures as before, or as a whole one does."""
    removed = 0
    for words in product("ULlxX", repeat=4):
        for machines in ("a b c d", "an b c d", "an b c", "b c d", "a bn c d"):
            seen = observed(" ".join(f"{n}{w}" for n, w in zip("abcd", words, strict=True)), machines)
            act = etcd_act(seen)
            if act is None or act.act is not EtcdAct.REMOVE or act.member.learner:
                continue
            removed += 1
            assert seen.etcd is not None
            before, after = _spare(seen.etcd.voters), _spare([m for m in seen.etcd.voters if m != act.member])
            assert after >= 0
            assert after >= min(before, 1)
            assert not act.member.leader
    assert removed > 100


def _spare(voters: list[EtcdMember]) -> int:
    return sum(m.healthy for m in voters) - needed(len(voters))


def test_an_act_says_what_it_is_for() -> None:
    act = etcd_act(observed("ax bL cU", "an b c"))
    assert isinstance(act, Act)
    assert act.message == (
        "member a is removed from etcd: it does not answer, and its machine a is not ready and leaves"
    )
