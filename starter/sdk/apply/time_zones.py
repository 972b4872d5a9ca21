"""The time zones of maintenance windows, judged by the time zone database of this host. What a workflow takes may not
depend on that, so this is done where a manifest is applied or compared."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from zoneinfo import available_timezones

from resources.maintenance import Maintenance, zone
from resources.manifests import Loaded
from starter.sdk.spelling import did_you_mean


@cache
def _known() -> set[str]:
    """The names that the database has; none where there is no database, and then nothing can be judged."""
    return available_timezones()


def unknown_zones(loaded: Loaded) -> list[str]:
    """A line for each window whose zone nobody could work out, with what may have been meant."""
    found: list[str] = []
    for worker_pool in loaded.worker_pools:
        found += _wrong(f"workerpool {worker_pool.metadata.name}", worker_pool.spec.maintenance)
    for pool in loaded.pools:
        found += _wrong(f"pool {pool.metadata.name}", pool.spec.maintenance)
    return found


def _wrong(where: str, maintenance: Maintenance | None) -> Iterator[str]:
    for number, window in enumerate(maintenance.windows if maintenance is not None and _known() else []):
        try:
            zone(window.timezone)
        except ValueError as e:
            path = f"spec.maintenance.windows[{number}].timezone"
            yield f"{where}: {path}: {e}{did_you_mean(window.timezone, _known()) or _by_city(window.timezone)}"


def _by_city(word: str) -> str:
    """The zone of somebody who has written the last part only, like Berlin."""
    found = sorted(name for name in _known() if name.rsplit("/", 1)[-1].lower() == word.lower())
    return f"; did you mean {' or '.join(found[:3])}?" if found else ""
