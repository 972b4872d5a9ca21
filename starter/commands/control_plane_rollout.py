"""`hostler rollout status controlplane`: how a control plane comes to what its template says, index by index."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from starter.commands.kinds import CONTROL_PLANE, ONLY
from starter.outlet import say

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient
    from starter.sdk.control_plane.results import ControlPlaneDescription

NAME = ONLY[CONTROL_PLANE]


async def follow(client: HostlerClient, limit: timedelta | None) -> None:
    """Follows it to its end, with a line for each thing that is news. Raises HostlerError where it stops for a person,
    or is not done in time."""
    from starter.sdk.control_plane.results import judge
    from starter.sdk.errors import HostlerError, WaitTimeout

    shown = set[str]()

    async def progress(found: ControlPlaneDescription) -> None:
        lines = list(_now(found))
        say(*[line for line in lines if line not in shown])
        shown.clear()
        shown.update(lines)

    try:
        found = await client.control_planes.wait(NAME, timeout=limit, progress=progress)
    except WaitTimeout as e:
        raise HostlerError(str(e)) from None  # exit code 1, as for a pool and in kubectl
    say(judge(found).words)


def _now(found: ControlPlaneDescription) -> Iterator[str]:
    from starter.sdk.control_plane.results import judge, numbers

    s = found.summary
    if s is None:
        yield judge(found).words
        return
    yield f"controlplane: {numbers(s)}"
    for index in s.indexes:
        if index.waits:
            yield f"index {index.index}: waits for {index.waits}"
    for wait in s.waits:
        yield f"waits: {wait.reason}: {wait.message}"


async def once(client: HostlerClient) -> None:
    """Shows how it stands. Raises HostlerError where it is stopped, NoAnswer without a worker."""
    from starter.commands.control_plane_page import indexes
    from starter.commands.fleet_page import troubles
    from starter.output import fields
    from starter.sdk.control_plane.results import judge, numbers
    from starter.sdk.errors import HostlerError, NoAnswer
    from starter.sdk.fleet.waiting import Stand

    found = await client.control_planes.describe(NAME)
    verdict, s = judge(found), found.summary
    if s is None or not found.running:
        raise NoAnswer(verdict.words) if found.running else HostlerError(verdict.words)
    stand = {Stand.DONE: "done", Stand.GOING: "continues on its own", Stand.STANDS: "blocked"}[verdict.stand]
    head = [("Control plane", f"of cluster {s.cluster}"), ("Rollout", stand), ("Machines", numbers(s))]
    say(*fields(head), *troubles(s, found.trouble, datetime.now(UTC), "controlplane"), *indexes(s))
    if verdict.stand is Stand.STANDS:
        raise HostlerError(verdict.words.splitlines()[0])
