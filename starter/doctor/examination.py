"""What `hostler doctor` looks at. Nothing is changed, no secret is shown.

temporal.py asks Temporal, workers.py who polls the task queues, builds.py what is pinned to a build, clusters.py the
API servers, configs.py what machine configs need there, etcd.py an etcd that is guarded, secrets.py the source of
secrets; waiting.py says what waits for a person. Only workers ask a cloud: credentials are where its queue is polled.
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

from resources.names import workflow_queue
from resources.queues import queues
from resources.settings import PLACES, SETTINGS_VARIABLE, CloudSettings, Settings, SettingsError, load_settings
from resources.words import cause
from starter.doctor import builds, clusters, configs, etcd, secrets, temporal, waiting, workers
from starter.doctor.findings import Finding, Level, attempt, by_gravity, ok, problem, verdict, warning
from starter.doctor.waiting import Waiting
from starter.sdk.client import HostlerClient
from starter.sdk.errors import HostlerError

ENDPOINT_TIMEOUT = 5.0
CLOUD = "cloud "
"""How the subject of a cloud begins."""
PACKAGES = ("hostler", "temporalio", "kubernetes", "pydantic")


async def examine(path: Path | None = None, cluster: str | None = None) -> list[Finding]:
    """Examines everything that the settings at `path` imply; if a cluster is named, only that one of the clusters."""
    try:
        settings = load_settings(path)
    except SettingsError as e:
        return [*(problem("settings", line) for line in str(e).splitlines()), versions()]
    names = [cluster] if cluster else list(settings.clusters)
    async with AsyncExitStack() as stack:
        # Temporal first: what it knows of a cluster is shown beside what the cluster says of itself.
        client, first = await _temporal(stack, settings)
        if cluster and client and (unknown := await client.clusters.stranger(cluster)):
            return [problem(f"cluster {cluster}", str(unknown))]
        served, queues = await _workers(client, settings, names)
        # Side by side: what hangs, hangs together.
        endpoints, of_clusters, of_configs, of_etcds, waiting = await asyncio.gather(
            asyncio.gather(*(_endpoint(f"{CLOUD}{name}", of.endpoint) for name, of in settings.clouds.items())),
            asyncio.gather(
                *(clusters.examine(settings, name, client.clusters if client else None, served) for name in names)
            ),
            asyncio.gather(*(configs.examine(settings, name, client, served) for name in names)),
            asyncio.gather(
                *(attempt(f"etcd of {n}", partial(etcd.examine, settings, n, client)) for n in names if client)
            ),
            _secrets_and_waits(settings, client, names, served),
        )
    found = [*(f for part in (*of_clusters, *of_configs, *of_etcds) for f in part), *waiting]
    of_clouds = [f for f in found if f.subject.startswith(CLOUD)]
    found = [f for f in found if f not in of_clouds]
    answers = dict(zip(settings.clouds, endpoints, strict=True))
    for name in dict.fromkeys([*settings.clouds, *(name_of(f.subject) for f in of_clouds)]):
        said = [f for f in of_clouds if name_of(f.subject) == name]
        if name in answers:
            said = cloud(settings, name, settings.clouds[name], [*said, answers[name]])
        found += said
    return by_gravity([*of_settings(settings, path), *first, *queues, *found, versions()])


async def _temporal(stack: AsyncExitStack, settings: Settings) -> tuple[HostlerClient | None, list[Finding]]:
    try:
        client = await stack.enter_async_context(HostlerClient.connect(settings))
    except (HostlerError, SettingsError) as e:
        return None, [problem("temporal", str(e))]
    found = await temporal.examine(client.temporal, settings)
    usable = all(f.level is not Level.PROBLEM for f in found if f.subject == "temporal")
    return client if usable else None, found


async def _workers(
    client: HostlerClient | None, settings: Settings, names: Sequence[str]
) -> tuple[bool, list[Finding]]:
    """Whether a worker runs workflows, and what is said of all workers."""
    if client is None:
        return False, []
    found = await workers.examine(client.temporal, list(queues(settings, names)))
    queue = workflow_queue(settings.queue_prefix)
    pinned = await attempt("workflows", partial(builds.examine, client.temporal, queue, found.versions))
    return queue not in found.idle, [*found.found, *pinned]


async def _secrets_and_waits(
    settings: Settings, client: HostlerClient | None, names: Sequence[str], served: bool
) -> list[Finding]:
    """What is missing together with what waits for it, and then what else waits."""
    waits: dict[str, list[Waiting]] = {}
    told: set[Waiting] = set()
    failed: list[Finding] = []

    async def look(of: HostlerClient, name: str) -> list[Finding]:
        waits[name] = await waiting.look(of, name, served)
        return []

    async def missing() -> list[Finding]:
        classes = [of for name in names for of in await client.classes.snapshots(name)] if client else []
        everything = [w for some in waits.values() for w in some]
        return await secrets.examine(settings, classes, names, everything, told)

    if client is not None:
        looks = (attempt(f"waiting in {name}", partial(look, client, name)) for name in names)
        failed = [f for part in await asyncio.gather(*looks) for f in part]
    found = await attempt("secrets", missing)
    return [*found, *failed, *(f for name, some in waits.items() for f in waiting.examine(some, told, name, served))]


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


def cloud(settings: Settings, name: str, cloud: CloudSettings, looks: Sequence[Finding] = ()) -> list[Finding]:
    """`looks`: what is said of its accounts and its endpoint; one verdict, for an endpoint that answers does not help a
    worker that cannot use it."""
    subject = f"{CLOUD}{name}"
    missing = [f"{key}: {path}" for key, path in cloud.default_secret.items() if not settings.path(path).exists()]
    found = []
    if missing:
        found.append(problem(subject, f"files of defaultSecret are missing: {', '.join(missing)}", "create them"))
    return [*found, *verdict(looks)]


async def _endpoint(subject: str, endpoint: str | None) -> Finding:
    """Whether the endpoint answers. Without credentials that is a refusal; an error of its own is none."""
    if endpoint is None:
        return ok(
            subject,
            "its own endpoint, which only the workers of its queue ask: what they say is in describe and events",
        )
    timeout = aiohttp.ClientTimeout(total=ENDPOINT_TIMEOUT)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as http,
            http.get(endpoint, allow_redirects=False) as answer,
        ):
            words = f"{endpoint} answers (HTTP {answer.status} without credentials)"
            if answer.status >= 500:
                return problem(subject, words, "look at the service's own log, or its status page")
            return ok(subject, words)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as e:
        return problem(
            subject,
            f"{endpoint} cannot be reached from here: {cause(e)}",
            f"start the service, or correct clouds.{name_of(subject)}.endpoint in the settings",
        )


def name_of(subject: str) -> str:
    return subject.rpartition(" ")[2]
