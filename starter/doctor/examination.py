"""What `hostler doctor` looks at. Nothing is changed, no secret is read.

temporal.py asks Temporal, clusters.py asks the API servers. Only workers ask a cloud: credentials are where its queue
is polled.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path

import aiohttp

from resources.settings import PLACES, SETTINGS_VARIABLE, CloudSettings, Settings, SettingsError, load_settings
from starter.doctor import clusters, temporal
from starter.doctor.findings import Finding, Level, attempt, ok, problem, warning
from starter.sdk.client import HostlerClient
from starter.sdk.errors import HostlerError

ENDPOINT_TIMEOUT = 5.0
PACKAGES = ("hostler", "temporalio", "kubernetes", "pydantic")


async def examine(path: Path | None = None, cluster: str | None = None) -> list[Finding]:
    """Examines everything that the settings at `path` imply; if a cluster is named, only that one of the clusters."""
    try:
        settings = load_settings(path)
    except SettingsError as e:
        return [problem("settings", str(e)), versions()]
    names = [cluster] if cluster else list(settings.clusters)
    async with AsyncExitStack() as stack:
        # Temporal first: what it knows of a cluster is shown beside what the cluster says of itself.
        client, first = await _temporal(stack, settings, names)
        rest = await asyncio.gather(
            *(clusters.examine(settings, name, client.clusters if client else None) for name in names),
            attempt("secrets", partial(clusters.secrets, settings)),
            *(cloud(settings, name, it) for name, it in settings.clouds.items()),
        )
    return [*of_settings(settings, path), *first, *(f for part in rest for f in part), versions()]


async def _temporal(
    stack: AsyncExitStack, settings: Settings, names: Sequence[str]
) -> tuple[HostlerClient | None, list[Finding]]:
    try:
        client = await stack.enter_async_context(HostlerClient.connect(settings))
    except HostlerError as e:
        return None, [problem("temporal", str(e))]
    found = await temporal.examine(client.temporal, settings, names)
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
                f"the default cluster {settings.default_cluster!r} is not one of "
                f"{', '.join(sorted(settings.clusters))}",
                "set defaultCluster, or give --cluster with every command",
            )
        )
    if not settings.clouds:
        found.append(warning("settings", "no clouds: no worker of these settings makes machines", "add `clouds:`"))
    return found


def versions() -> Finding:
    """The versions of what runs here; a worker elsewhere may have others."""
    installed = [f"{package} {version(package)}" for package in PACKAGES]
    return ok("versions", ", ".join([*installed, f"Python {platform.python_version()}"]))


# -- clouds -----------------------------------------------------------------------------------------------------------


async def cloud(settings: Settings, name: str, cloud: CloudSettings) -> list[Finding]:
    subject = f"cloud {name}"
    missing = [f"{key}: {path}" for key, path in cloud.default_secret.items() if not settings.path(path).exists()]
    found = []
    if missing:
        found.append(problem(subject, f"files of defaultSecret are missing: {', '.join(missing)}", "create them"))
    if cloud.endpoint is None:
        words = "its own endpoint, which only the workers of its queue ask: what they say is in describe and events"
        return [*found, ok(subject, words)]
    return [*found, await _endpoint(subject, cloud.endpoint)]


async def _endpoint(subject: str, endpoint: str) -> Finding:
    """Whether the endpoint answers. Any answer will do: without credentials it is a refusal."""
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
            f"start the service, or correct clouds.{name_of(subject)}.endpoint in the settings",
        )


def name_of(subject: str) -> str:
    return subject.rpartition(" ")[2]
