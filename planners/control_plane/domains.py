"""Which failure domain each index has: first of all where its machine is, then evenly, and always the same for the same
input.

Source: OpenShift's mapping.go. Its second sort is not stable there; this one is. A machine keeps its domain while no
more indexes than ⌈indexes ÷ domains⌉ have it; indexes whose machines all leave are the first to move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple


class Placed(NamedTuple):
    """Where a machine is."""

    at: int
    """The index."""
    domain: str
    created: datetime
    leaving: bool = False


def assign(placed: Iterable[Placed], replicas: int, domains: Sequence[str]) -> dict[int, str]:
    """The domain of each index: those that have machines, and the lowest others from 0 on until there are `replicas`.

    {} where there are no domains. Raises ValueError where replicas is below 1.
    """
    if not domains:
        return {}
    machines = sorted(placed, key=lambda m: (m.created, m.at, m.domain))
    had = {m.at: m.domain for m in machines}  # of two in one index, the newer one's
    going = {i for i in had if all(m.leaving for m in machines if m.at == i)}
    wanted = _evenly(had, replicas, domains)
    candidates = _by_the_indexes_there_are(wanted, had)
    return _reconcile(had, going, candidates)


def _evenly(had: Mapping[int, str], replicas: int, domains: Sequence[str]) -> dict[int, str]:
    """The domains dealt out in order of their names; those that no machine has come last, so that the ones that are in
    use are asked for first."""
    if replicas < 1:
        raise ValueError(f"a control plane of {replicas} machines has no failure domains")
    in_order = sorted(sorted(set(domains)), key=lambda d: d not in had.values())
    return {number: in_order[number % len(in_order)] for number in range(max(replicas, len(had)))}


def _by_the_indexes_there_are(dealt: Mapping[int, str], had: Mapping[int, str]) -> dict[int, str]:
    """What was dealt to 0, 1, 2, … under the numbers of the machines: {2, 3, 4} is as good a control plane."""
    free = [number for number in dealt if number not in had]
    strange = iter(sorted(had.keys() - dealt.keys()))
    renamed = {number: next(strange, number) for number in free}
    return {renamed.get(number, number): domain for number, domain in dealt.items()}


def _reconcile(had: Mapping[int, str], going: set[int], candidates: dict[int, str]) -> dict[int, str]:
    known = set(candidates.values())
    most = -(-len(candidates) // len(known))
    out, left = dict(had), dict(candidates)
    matched = set()
    for index in sorted(had.keys() - going):
        equal = next((number for number in sorted(left) if left[number] == had[index]), None)
        if equal is not None:
            # The index takes its own domain, and whoever was dealt it gets what this one was dealt.
            left[equal], left[index] = left[index], left[equal]
            del left[index]
            matched.add(index)
    for index in sorted(candidates.keys() - matched):
        crowded = Counter(out.values())[out[index]] > most if index in out else True
        if crowded or out[index] not in known:
            out[index] = left[index]
    return out
