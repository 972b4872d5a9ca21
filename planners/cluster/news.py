"""What a cluster tells its pools: whether everything they decide by can be seen, and whether a person has paused or
frozen it.

Invariant I5: nothing is destroyed while the truth is unknown.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from planners.cluster.accounts import UNKNOWN, classes_of, silent
from resources.cluster.news import ClusterNews
from resources.cluster.state import ClusterState
from resources.orders import AHEAD, lies_ahead

TICK = timedelta(milliseconds=1)


def news_of(state: ClusterState, now: datetime) -> ClusterNews:
    """The current news: the last one told, where nothing has changed since."""
    found = troubles(state)
    trouble = "; ".join(dict.fromkeys(found.values()))
    said = {"reachable": not trouble, "message": trouble, "silent": found, "paused": state.pause is not None}
    if state.pause is not None:
        said |= {"paused_by": state.pause.requested_by, "reason": state.pause.reason}
    if state.freeze is not None and state.freeze.holds(now):
        said |= {"freeze": state.freeze}
    if state.news is None:
        return ClusterNews(**said, time=now)
    if ClusterNews(**said, time=state.news.time) == state.news:
        return state.news
    # A pool drops news older than the last it heard, and another server's clock may be behind the previous one's.
    return ClusterNews(
        **said, time=now if lies_ahead(state.news.time, now, AHEAD) else max(now, state.news.time + TICK)
    )


def troubles(s: ClusterState) -> dict[str, str]:
    """What does not answer, by the class that it concerns; "" stands for every pool. Only an account that is listed now
    can say that it answers again: for the others the last word is old, and pools would wait forever."""
    found: dict[str, list[str]] = {}
    if s.api is not None and not s.api.reachable:
        words = s.api.message
        found[UNKNOWN] = [words if words.startswith("the API server ") else f"the API server: {words}"]
    for key in silent(s, s.accounts):
        for name in classes_of(s, key):
            found.setdefault(name, []).append(f"{key}: {s.clouds[key].message}")
    return {name: "; ".join(words) for name, words in sorted(found.items())}


def untold(s: ClusterState, now: datetime) -> list[str]:
    """Pools that have not been told the newest."""
    if not s.pools:
        return []
    newest = news_of(s, now).time
    return sorted(name for name, told in s.pools.items() if told != newest)


def to_search(s: ClusterState) -> bool:
    """Whether to look for pools older than this workflow: those of a former one that was ended from outside. Not before
    there is something to tell them, because the last news from the former one may no longer hold."""
    told = bool(s.pools) or s.ended is not None
    held = s.pause is not None or s.freeze is not None
    return not s.searched and (told or held or bool(troubles(s)))
