"""The doctor's questions about Secrets: whether their source can be read, and whether what classes name is there."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from resources.errors import MISSING_CREDENTIALS
from resources.machine.state import ClassSnapshot
from resources.rights import SECRETS_IN, needs
from resources.settings import Settings, SettingsError
from starter.doctor.clusters import rights_of
from starter.doctor.findings import Finding, few, ok, problem, warning
from starter.doctor.waiting import Waiting, counted
from starter.sdk.errors import Unreachable
from starter.sdk.kube import connect_cluster
from starter.sdk.secrets import CannotLook, Needed, missing, needed


async def examine(
    settings: Settings,
    classes: Sequence[ClassSnapshot],
    clusters: Collection[str] = (),
    waits: Sequence[Waiting] = (),
    told: set[Waiting] | None = None,
) -> list[Finding]:
    """Whether the source can be read, and whether the Secrets that these classes name are there. `clusters`: those of
    which it is told elsewhere that their API does not answer. `waits`: what waits in them; those that wait for a
    missing Secret are shown with it, as one problem, and added to `told`."""
    source = settings.secrets.cluster or settings.default_cluster
    if "cloud" not in settings.worker.roles:
        return [ok("secrets", "a worker with the role cloud reads them; these settings are for other roles")]
    try:
        found = await _source(settings, classes)
    except Unreachable:
        if source not in clusters:
            raise
        return [warning("secrets", f"they cannot be looked at while the API of cluster {source} does not answer")]
    return [*found, *await _named(settings, classes, waits, set() if told is None else told)]


async def _named(
    settings: Settings, classes: Sequence[ClassSnapshot], waits: Sequence[Waiting], told: set[Waiting]
) -> list[Finding]:
    users: dict[Needed, list[str]] = {}
    for of in classes:
        for one in needed(settings, of):
            users.setdefault(one, []).append(of.name)
    if not users:
        return []
    try:
        found = await missing(settings, users)
    except CannotLook as e:
        return [warning("secrets", f"could not look whether the Secrets that classes name are there: {e}")]
    if not found:
        return [ok("secrets", f"all that classes name are there: {', '.join(few(sorted(map(str, set(users)))))}")]
    for_each = {one: [w for w in waits if _waits_for(w, one, len(found) == 1)] for one in found}
    told.update(w for some in for_each.values() for w in some)
    return [_missing(one, what, users[one], for_each[one]) for one, what in found.items()]


def _waits_for(wait: Waiting, one: Needed, only: bool) -> bool:
    """`only`: whether nothing else is missing, so that one that was not asked waits for this."""
    names_it = f"{one} " in wait.message if wait.message else only
    return wait.reason == MISSING_CREDENTIALS and names_it


def _missing(one: Needed, what: str, users: Sequence[str], waits: Sequence[Waiting]) -> Finding:
    words = [f"{one} {what}; {', '.join(few(users))} name{'s' if len(users) == 1 else ''} it"]
    if waits:
        now = datetime.now(UTC)
        oldest = sorted(waits, key=lambda w: (w.since is None, w.since or now, w.name))
        words += [f"for it wait {counted(waits)}", *few([f"{w.kind} {w.called(now)}" for w in oldest])]
    key = f" (with the key {one.key})" if one.key else ""
    return problem("secrets", "\n".join(words), f"create it: hostler apply -f SECRET-FILE{key}")


async def _source(settings: Settings, classes: Sequence[ClassSnapshot]) -> list[Finding]:
    """Whether the source can be read: the Secrets of these classes, or without any, all Secrets where they will be."""
    source = settings.secrets
    if source.source == "environment":
        return [ok("secrets", "from the worker's environment, which only the worker sees")]
    if source.source == "directory":
        return [_directory(settings)]
    name = source.cluster or settings.default_cluster
    named = {(one.namespace, one.name) for of in classes for one in needed(settings, of)}
    spread = {n for c in settings.clusters.values() for n in c.namespaces} or {SECRETS_IN}
    places = sorted(named or {(namespace, "") for namespace in spread})
    wanted = [need.of(*place) for place in places for need in needs("cloud", "control")]
    namespaces = sorted({namespace for namespace, _ in places})
    try:
        async with connect_cluster(settings, name) as kube:
            many = "s" if len(namespaces) > 1 else ""
            what = f"read Secrets of cluster {name} in namespace{many} {', '.join(namespaces)}"
            return await rights_of(kube, "secrets", wanted, what)
    except SettingsError as e:
        return [problem("secrets", f"from cluster {name}: {e}", "set secrets.cluster to one of them")]


def _directory(settings: Settings) -> Finding:
    if settings.secrets.directory is None:
        return problem("secrets", "secrets.source is directory, but secrets.directory is not set", "set it")
    folder = settings.path(settings.secrets.directory)
    if not folder.is_dir():
        return problem(
            "secrets",
            f"{folder}: there is no such directory on this machine",
            "create it, or correct secrets.directory",
        )
    if not os.access(folder, os.R_OK | os.X_OK):
        return problem("secrets", f"{folder} cannot be read", "let the account that runs the worker read its files")
    return ok("secrets", f"from {folder}, which can be read here")
