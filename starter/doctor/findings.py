"""What `hostler doctor` looks at, and what it finds. Nothing is changed, no secret is read.

Each part answers with findings; what cannot be told is a finding too, never a silence. doctor_temporal.py asks
Temporal, doctor_clusters.py the API servers. A cloud is asked by the workers alone: credentials are where its queue is
polled.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from resources.settings import PLACES, SETTINGS_VARIABLE, CloudSettings, Settings, SettingsError, load_settings
from starter.sdk.errors import HostlerError

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient

ENDPOINT_TIMEOUT = 5.0
SKEW_WARNING, SKEW_PROBLEM = 5.0, 60.0
"""Seconds between two clocks. Deadlines are Temporal's time, tokens expire by the cluster's, machines age by both."""
PACKAGES = ("hostler", "temporalio", "kubernetes", "pydantic")


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    subject: str
    """`temporal`, `queue hostler-drain-prod`, `cluster prod`, …"""
    level: Level
    message: str
    remedy: str = ""
    """What to do; empty where all is well, or where the message says it."""


Check = Callable[[], Awaitable[list[Finding]]]


def ok(subject: str, message: str) -> Finding:
    return Finding(subject, Level.OK, message)


def warning(subject: str, message: str, remedy: str = "") -> Finding:
    return Finding(subject, Level.WARNING, message, remedy)


def problem(subject: str, message: str, remedy: str = "") -> Finding:
    return Finding(subject, Level.PROBLEM, message, remedy)


async def attempt(subject: str, check: Check) -> list[Finding]:
    """A check that fails is a problem found, and holds up no other."""
    try:
        return await check()
    except (HostlerError, SettingsError) as e:
        return [problem(subject, str(e))]


async def examine(path: Path | None = None, cluster: str | None = None) -> list[Finding]:
    """Everything that the settings at `path` imply; of the clusters only the one named, where one is."""
    try:
        settings = load_settings(path)
    except SettingsError as e:
        return [problem("settings", str(e)), versions()]
    from starter.doctor import clusters as doctor_clusters

    clusters = [cluster] if cluster else list(settings.clusters)
    async with AsyncExitStack() as stack:
        # Temporal first: what it knows of a cluster stands beside what the cluster says of itself.
        client, temporal = await _temporal(stack, settings, clusters)
        rest = await asyncio.gather(
            *(doctor_clusters.examine(settings, name, client) for name in clusters),
            attempt("secrets", partial(doctor_clusters.secrets, settings)),
            *(cloud(settings, name, it) for name, it in settings.clouds.items()),
        )
    return [*of_settings(settings, path), *temporal, *(f for part in rest for f in part), versions()]


async def _temporal(
    stack: AsyncExitStack, settings: Settings, clusters: Sequence[str]
) -> tuple[HostlerClient | None, list[Finding]]:
    from starter.doctor import temporal as doctor_temporal
    from starter.sdk.client import HostlerClient

    try:
        client = await stack.enter_async_context(HostlerClient.connect(settings))
    except HostlerError as e:
        return None, [problem("temporal", str(e))]
    found = await doctor_temporal.examine(client, clusters)
    usable = all(f.level is not Level.PROBLEM for f in found if f.subject == "temporal")
    return client if usable else None, found


# -- settings ---------------------------------------------------------------------------------------------------------


def of_settings(settings: Settings, path: Path | None) -> list[Finding]:
    ours = {f"HOSTLER_{name.upper()}" for name in Settings.model_fields}
    variables = sorted(v for v in os.environ if v.partition("__")[0].upper() in ours)
    also = f", and {', '.join(variables)}" if variables else ""
    if settings.file is None:
        looked = ", ".join(f"${SETTINGS_VARIABLE}" if p is None else str(p) for p in (None, *PLACES))
        found = [
            warning("settings", f"no file (looked at {looked}): defaults{also}", "give --settings, or `hostler up`")
        ]
    else:
        found = [ok("settings", f"{settings.file}{also}")]
    if not settings.clusters:
        found.append(warning("settings", "no clusters: no worker of these settings serves one", "add `clusters:`"))
    elif settings.default_cluster not in settings.clusters:
        found.append(
            warning(
                "settings",
                f"the default cluster {settings.default_cluster!r} is none of {', '.join(sorted(settings.clusters))}",
                "set defaultCluster, or give --cluster with every command",
            )
        )
    if not settings.clouds:
        found.append(warning("settings", "no clouds: no worker of these settings makes machines", "add `clouds:`"))
    return found


def versions() -> Finding:
    """Of what runs here; a worker elsewhere may have others."""
    installed = [f"{package} {version(package)}" for package in PACKAGES]
    return ok("versions", ", ".join([*installed, f"Python {platform.python_version()}"]))


# -- clouds -----------------------------------------------------------------------------------------------------------


async def cloud(settings: Settings, name: str, cloud: CloudSettings) -> list[Finding]:
    subject = f"cloud {name}"
    missing = [f"{key}: {path}" for key, path in cloud.default_secret.items() if not settings.path(path).exists()]
    found = []
    if missing:
        found.append(problem(subject, f"files of defaultSecret are missing: {', '.join(missing)}", "put them there"))
    if cloud.endpoint is None:
        words = "its own endpoint, which only the workers of its queue ask: what they say is in describe and events"
        return [*found, ok(subject, words)]
    return [*found, await _endpoint(subject, cloud.endpoint)]


async def _endpoint(subject: str, endpoint: str) -> Finding:
    """Any answer will do: without credentials it is a refusal."""
    timeout = aiohttp.ClientTimeout(total=ENDPOINT_TIMEOUT)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as http,
            http.get(endpoint, allow_redirects=False) as answer,
        ):
            return ok(subject, f"{endpoint} answers (HTTP {answer.status} without credentials)")
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as e:
        return problem(
            subject,
            f"{endpoint} cannot be reached from here: {e or type(e).__name__}",
            f"start what should be there, or mend clouds.{name_of(subject)}.endpoint in the settings",
        )


def name_of(subject: str) -> str:
    return subject.rpartition(" ")[2]


# -- clocks -----------------------------------------------------------------------------------------------------------


def clock(subject: str, theirs: datetime, before: datetime, after: datetime, precision: timedelta) -> Finding:
    """`theirs` was read at some moment between `before` and `after` of the clock here, and is cut to `precision`.

    Skew counts only as far as it is certain.
    """
    behind = max(timedelta(0), before - theirs - precision)
    ahead = max(timedelta(0), theirs - after)
    skew = max(behind, ahead).total_seconds()
    if skew <= SKEW_WARNING:
        return ok(subject, "its clock and the one here agree within a few seconds")
    words = f"its clock is {skew:.0f} s {'behind' if behind > ahead else 'ahead of'} the one here"
    level = Level.WARNING if skew <= SKEW_PROBLEM else Level.PROBLEM
    return Finding(subject, level, words, "synchronise clocks (NTP): deadlines and tokens are reckoned from them")
