"""What a cluster says of itself: its words for people, and its page in Temporal's web UI."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from planners.cluster.accounts import classes_of
    from resources.base import format_duration, whole_seconds
    from resources.cluster.news import Reachability
    from resources.cluster.state import ClusterState, Ended
    from resources.markdown import Markdown, code, heading, items, join, page, prose, strong
    from resources.names import config_pool_of
    from resources.owner import KINDS, Owner, by_word
    from resources.reasons import next_step
    from resources.words import utc

SOME = 5
"""How many names a message lists."""


def phase_of(cluster: ClusterState) -> str:
    if cluster.api is not None and not cluster.api.reachable:
        return "APIRefused" if cluster.api.refused else "APIUnreachable"
    return "Parked" if cluster.parked else "Paused" if cluster.pause else "Watching"


def reason_of(phase: str) -> str:
    """The reason that lists show, as they do for machines and pools; "" where all is as it should be."""
    return {"Parked": "InternalError", "Paused": "ClusterPaused", "Watching": ""}.get(phase, phase)


def silent_clouds(cluster: ClusterState) -> list[str]:
    """Why its accounts do not answer, by account."""
    return [cloud.cloud_reason for _, cloud in sorted(cluster.clouds.items()) if not cloud.reachable]


def refusal(cluster: ClusterState, left: str = "") -> str | None:
    """Why it cannot be removed. `left`: what visibility lists of it."""
    known = [_some(set(cluster.machines.values()), len(cluster.machines), "machine")] if cluster.machines else []
    owners = [name for name in cluster.pools if not config_pool_of(name)]  # the others end with their object
    known += [_owners(word, names) for word, names in _by_word(owners).items()]
    words = left or " and ".join(known)
    return f"cluster {cluster.name} still has {words}; delete them first" if words else None


def _by_word(owners: Iterable[str]) -> dict[str, list[str]]:
    """The names of those that hear the cluster's news, by what people call them."""
    owners = list(owners)
    configs = sorted(filter(None, map(config_pool_of, owners)))
    found = by_word(Owner.read(name).user for name in owners if not config_pool_of(name))
    return {word: names for word, names in {**found, "config pool": configs}.items() if names}


def _owners(word: str, names: list[str]) -> str:
    """`2 pools (p1, p2)`; `its controlplane`, of which there is only one."""
    only = any(kind.word == word and kind.only for kind in KINDS.values())
    return f"its {word}" if only else _some(names, len(names), word)


def _some(names: Collection[str], number: int, kind: str) -> str:
    some = ", ".join(sorted(names)[:SOME]) + (", …" if len(names) > SOME else "")
    return f"{number} {kind}{'s' if number > 1 else ''} ({some})"


def gap_words(ended: Ended, now: datetime) -> str:
    """The time since which nobody has watched the cluster, and what that means now."""
    at = f" at {utc(ended.time)}" if ended.time else ""
    after = f" after {format_duration(whole_seconds(now - ended.time))}" if ended.time else ""
    words = f"somebody ended the workflow{at} ({ended.how}); it runs again{after}"
    lost = "; its earlier state could not be read: if the cluster was paused, it no longer is" if ended.unread else ""
    return f"{words}: every machine gets the current state of its Node and VM{lost}"


def held(owners: Collection[str]) -> str:
    """What a pause means, as the answer to it."""
    if not owners:
        return "it has no pools now; new ones will do nothing"
    kinds = _by_word(owners).items()
    words = " and ".join(word if len(names) == 1 else f"{len(names)} {word}s" for word, names in kinds)
    return f"its {words} {'does' if len(owners) == 1 else 'do'} nothing"


def frozen(owners: Collection[str]) -> str:
    """What a freeze means, as the answer to it."""
    if not owners:
        return "it has no pools now; new ones will begin no rollout and no hot update"
    kinds = _by_word(owners).items()
    words = " and ".join(word if len(names) == 1 else f"{len(names)} {word}s" for word, names in kinds)
    return f"its {words} {'begins' if len(owners) == 1 else 'begin'} no rollout and no hot update"


def not_told(owners: Collection[str]) -> str:
    """Which pools have not heard of a pause, or of its end, after a few seconds; "" among them stands for pools that
    are not known yet."""
    named = [_some(names, len(names), word) for word, names in _by_word(filter(None, owners)).items()]
    words = f"not told yet: {' and '.join(named)}" if named else "its pools are still being searched for"
    return f"{words}; it is tried again until it succeeds"


def _reached(news: Reachability) -> str:
    return news.words if news.reachable else f"{news.words} (since {utc(news.began)})"


def details(cluster: ClusterState) -> Markdown:
    """The state of the cluster, in Markdown for Temporal's web UI."""
    api = cluster.api
    words = "not known yet" if api is None else _reached(api)
    lines = [heading(f"Cluster {cluster.name}: {phase_of(cluster)}")]
    ill = [phase_of(cluster)] if api is not None and not api.reachable else []
    lines += [
        join("What can be done: ", prose(next_step(reason, cluster.name, cluster.name, kind="cluster")))
        for reason in dict.fromkeys([*ill, *silent_clouds(cluster)])
    ]
    if cluster.pause:
        again = code(f"hostler resume cluster {cluster.name}")
        lines.append(join(strong("Paused"), f" {cluster.pause.words}. To resume: ", again))
    if cluster.freeze:
        again = code(f"hostler unfreeze cluster {cluster.name}")
        lines.append(join(strong("Frozen"), f" {cluster.freeze.words}. To end it: ", again))
    facts = [f"API server: {words}"]
    facts += [f"Pools: {', '.join(sorted(cluster.pools))}"] if cluster.pools else []
    for key, cloud in sorted(cluster.clouds.items()):
        whose = ", ".join(name for name in classes_of(cluster, key) if name)
        facts.append(f"{key}{f' (classes {whose})' if whose else ''}: {_reached(cloud)}")
    return page(*lines, items(facts))
