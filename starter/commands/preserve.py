"""hostler preserve, hostler release, hostler extend"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands import candidates
from starter.commands.blocks import command
from starter.commands.common import Asking, ReasonOption, Session, span, target, tell_each
from starter.commands.kinds import ALIASES, MACHINE, NODE
from starter.commands.selection import PRESERVED, Among, Others, Selection
from starter.outlet import say

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityKey
    from starter.sdk.results import Sent

TargetsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MACHINE|NODE",
        help="The name of a machine or of its node; to be explicit: machine/NAME, node/NAME.",
        show_default=False,
        autocompletion=candidates.machines_and_nodes,
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="TIME", help="A time with its zone, like 2026-12-01T18:00:00Z.", show_default=False
    ),
]


@command
def preserve(
    *,
    targets: TargetsArgument = None,
    when_failed: Annotated[bool, typer.Option("--when-failed", help="Preserve it only when it fails.")] = False,
    never: Annotated[
        bool,
        typer.Option("--never", help=("Never preserve it, not even when it fails; a preserved machine is released.")),
    ] = False,
    lasts: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TIME",
            help="How long, from the beginning of the preservation (8h, 90m).",
            show_default="machinePreserveTimeout",
        ),
    ] = None,
    until: UntilOption = None,
    among: Others,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Keep machines for inspection: cluster-autoscaler leaves them alone, and a machine that fails is drained and kept,
    not deleted, until the preservation expires. `hostler release` ends it earlier, `hostler extend` changes its end.

    The annotation node.machine.sapcloud.io/preserve on the node takes precedence over this command. A rollout of the
    pool, hibernation, fewer replicas, `hostler scale --remove` and `hostler delete` take precedence over both.
    """
    if when_failed and never:
        raise typer.BadParameter("give either --when-failed or --never")
    if never and (lasts or until):
        raise typer.BadParameter("--never takes no time: leave out --for and --until")
    long, end = _time(lasts, until)
    value = "when-failed" if when_failed else "false" if never else "now"

    async def send(client: HostlerClient, key: EntityKey) -> Sent:
        from dataclasses import replace

        from starter.sdk.pools.rehearsal import but

        sent = await client.preserve(key[1], value, lasts=long, until=end, reason=reason, cluster=key[0])
        pool = "" if never or sent.recorded else (await client.life(key[1], cluster=key[0])).summary.pool
        stronger = await but(client.pools, key[1], pool, cluster=key[0]) if pool else ""
        return replace(sent, message=f"{sent.message}; {stronger}") if stronger else sent

    _each(here, targets or [], choice_of(targets or [], among), "preservation", send)


@command
def release(
    *,
    targets: TargetsArgument = None,
    among: Others,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """End the preservation of machines early, and remove the requests for it, on the node too: a Running machine
    continues as if it had never been preserved; a Failed one is deleted, and its pool creates another.

    -l and --all skip machines that are not preserved and for which nobody has asked for it.
    """

    def send(client: HostlerClient, key: EntityKey) -> Awaitable[Sent]:
        return client.release(key[1], reason=reason, cluster=key[0])

    _each(here, targets or [], choice_of(targets or [], among), "release", send)


@command
def extend(
    *,
    targets: TargetsArgument = None,
    lasts: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long from now on (8h, 90m).", show_default=False)
    ] = None,
    until: UntilOption = None,
    among: Others,
    reason: ReasonOption = "",
    here: Asking,
) -> None:
    """Change the end of a preservation, to later or earlier: extend m1 --for 24h; extend m1 --until
    2026-12-01T18:00:00Z.

    A changed machinePreserveTimeout of a pool applies to later preservations only. -l and --all skip machines that are
    not preserved.
    """
    if lasts is None and until is None:
        raise typer.BadParameter("give --for DURATION (from now on), or --until TIME")
    long, end = _time(lasts, until)

    def send(client: HostlerClient, key: EntityKey) -> Awaitable[Sent]:
        return client.extend(key[1], lasts=long, until=end, reason=reason, cluster=key[0])

    _each(here, targets or [], choice_of(targets or [], among), "extension", send)


def _time(lasts: str | None, until: str | None) -> tuple[timedelta | None, datetime | None]:
    """The time. Raises a usage error for what cannot be read; the SDK refuses a time that has passed."""
    from starter.sdk.machines.preservation import parse_time

    if lasts is not None and until is not None:
        raise typer.BadParameter("give either --for or --until")
    try:
        return span(lasts), parse_time(until) if until is not None else None
    except ValueError as e:
        raise typer.BadParameter(f"--until: {e}") from None


def choice_of(targets: Sequence[str], among: Among) -> Selection:
    """The machines that are chosen. Raises a usage error."""
    if not targets and not among.some:
        raise typer.BadParameter("give names (MACHINE or NODE...), -l SELECTOR, or --all")
    return among.choice([name for _, name in parse_targets(targets)])


def parse_targets(words: Sequence[str]) -> list[tuple[str, str]]:
    """Kind ("": not given) and name, from `m1`, `node/n1`, `machine m1 m2`. Raises a usage error."""
    if len(words) > 1 and words[0] in ALIASES:
        kind, names = target(words[0], words[1:], (MACHINE, NODE))
        return [(kind, name) for name in names]
    found = []
    for word in words:
        if "/" in word or word in ALIASES:
            kind, names = target(word, [], (MACHINE, NODE))
            if not names:
                raise typer.BadParameter(f"{word!r} has no name; write {word} NAME")
            found.append((kind, names[0]))
        else:
            found.append(("", word))
    return found


def _each(
    here: Session,
    targets: Sequence[str],
    chosen: Selection,
    noun: str,
    send: Callable[[HostlerClient, EntityKey], Awaitable[Sent]],
) -> None:
    """Prints `machine/m1 preservation: …` with the machine's own words, for all of them, even after one that fails. In
    a selection, those that have nothing to end or to move are left alone."""
    named = parse_targets(targets)
    left: list[EntityKey] = []

    async def ask(client: HostlerClient, key: EntityKey) -> str | None:
        from starter.sdk.errors import NotPreserved

        try:
            return f"{noun}: {(await send(client, key)).message}"
        except NotPreserved:
            if named:
                raise
            left.append(key)
            return None

    async def body(client: HostlerClient) -> None:
        from starter.sdk.errors import HostlerError, Unreachable

        machines, failures = await _resolved(client, named)
        if not named:
            machines = chosen.labelled(await chosen.keys(client))
        if not machines and not named:
            say(chosen.nothing(client), err=True)
        try:
            await tell_each(machines, lambda key: ask(client, key))
        except Unreachable:
            raise
        except HostlerError as e:
            failures.append(str(e))
        if machines and len(left) == len(machines):
            say(chosen.nothing(client, PRESERVED), err=True)
        if failures:
            raise HostlerError("\n".join(failures))

    here.run(body)


async def _resolved(client: HostlerClient, named: Sequence[tuple[str, str]]) -> tuple[dict[EntityKey, str], list[str]]:
    """The machines with their names as printed, and the errors of the others."""
    from starter.sdk.errors import HostlerError, Unreachable

    machines: dict[EntityKey, str] = {}
    failures = []
    for kind, name in named:
        try:
            machine = await _machine(client, kind, name)
        except Unreachable:
            raise
        except HostlerError as e:
            failures.append(str(e))
        else:
            node = f" (node {name})" if machine != name else ""
            machines.setdefault((client.cluster, machine), f"{MACHINE}/{machine}{node}")
    return machines, failures


async def _machine(client: HostlerClient, kind: str, name: str) -> str:
    """The machine of a bare name, or else the machine of that node. Raises NotFound, Refused."""
    if kind == MACHINE:
        return name
    if kind == NODE:
        return await client.machine_of(name)
    return await client.machine_or_node(name)
