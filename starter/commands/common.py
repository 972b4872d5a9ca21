"""What the commands share: options, names of kinds, and one way to run with a client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from starter.commands import candidates
from starter.commands.blocks import Block
from starter.commands.kinds import ALIASES, CLUSTER, MACHINE, ONLY, SHORT
from starter.sdk.spelling import did_you_mean

if TYPE_CHECKING:
    from datetime import timedelta

    from resources.settings import Settings
    from resources.validation import Validate
    from starter.sdk.client import HostlerClient

K = TypeVar("K")
FEW = 6
"""Kinds that an error spells out with a name."""

ForceOption = Annotated[
    bool, typer.Option("--force", help="Delete pods instead of evicting them. The clean-up is never skipped.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="The reason, for the journal.", show_default=False)]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", help="With --wait: give up after this time.", show_default="no limit")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster", help="The cluster; default: the settings' default cluster.", autocompletion=candidates.clusters
    ),
]
SettingsOption = Annotated[Path | None, typer.Option("--settings", help="Settings file.", show_default=False)]
AsOption = Annotated[
    str | None, typer.Option("--as", help=("Who makes the request, for the journal; default: user@host."))
]
MachineArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND", help="machine; also machines, machine/NAME.", autocompletion=candidates.kinds(MACHINE)
    ),
]
MachineOrPoolArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="machine, pool, controlplane or mcp; also machine/NAME.",
        autocompletion=candidates.kinds(MACHINE, "pool", "controlplane", "mcp"),
    ),
]
KindArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="machine, pool, controlplane, class, cluster or mcp; also machine/NAME, machineconfigs/CLUSTER.",
        autocompletion=candidates.kinds(MACHINE, "pool", "controlplane", "class", CLUSTER, "mcp"),
    ),
]
NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Its name.", show_default=False, autocompletion=candidates.names)
]
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", show_default=False, autocompletion=candidates.names)
]
SelectorOption = Annotated[
    str | None,
    typer.Option(
        "-l",
        "--selector",
        help="Only those with these labels, as in kubectl: pool=demo,zone!=a; 'zone in (a, b)'; gpu; !gpu.",
        show_default=False,
    ),
]
PoolArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="pool; also machinedeployment, mcd, pool/NAME.",
        autocompletion=candidates.kinds("pool"),
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="All machines of the cluster.")]
ValidateOption = Annotated[
    str,
    typer.Option(
        "--validate",
        metavar="strict|warn|ignore",
        help="Unknown fields, as in kubectl: strict (or true) refuses the manifests, warn takes the rest and says so, "
        "ignore (or false) says nothing.",
    ),
]
ForceConflictsOption = Annotated[
    bool,
    typer.Option(
        "--force-conflicts",
        help="Machine configs: take over fields that somebody else has written differently, as kubectl's server-side "
        "apply.",
    ),
]
AllClustersOption = Annotated[bool, typer.Option("-A", "--all-clusters", help="In all clusters.")]


@dataclass(frozen=True)
class Globals:
    """Options given before the command."""

    settings: Path | None = None
    cluster: str | None = None
    requested_by: str | None = None


@dataclass(frozen=True)
class Session:
    """How a command reaches everything: by the options before and after its name; the latter win."""

    file: Path | None
    cluster: str | None
    requested_by: str | None

    @cached_property
    def settings(self) -> Settings:
        from resources.settings import load_settings

        return load_settings(self.file)

    def run(
        self, body: Callable[[HostlerClient], Awaitable[None]], *, anywhere: bool = False, everywhere: bool = False
    ) -> None:
        """Runs `body` with a client. A cluster that nothing knows is mistyped, here or in the settings, and would look
        empty; `anywhere`: it may be a new one; `everywhere`: the default is not asked for."""
        import asyncio

        from pydantic import ValidationError

        from resources.base import explained
        from starter.sdk.client import HostlerClient
        from starter.sdk.connection import connected
        from starter.sdk.errors import NotFound, Refused

        async def main() -> None:
            temporal = await connected(self.settings)
            client = HostlerClient(temporal, self.settings, cluster=self.cluster, requested_by=self.requested_by)
            if self.cluster and not anywhere and (unknown := await client.clusters.stranger(self.cluster)):
                raise unknown
            asked = not (self.cluster or anywhere or everywhere) and self.settings.clusters
            if asked and (unknown := await client.clusters.stranger(self.settings.default_cluster)):
                raise NotFound(f"the settings' defaultCluster: {unknown}")
            await body(client)

        try:
            asyncio.run(main())
        except ValidationError as e:  # what was typed is too long for any name, for example
            raise Refused(explained(e)) from None


def asking(
    ctx: typer.Context, cluster: ClusterOption = None, settings: SettingsOption = None, requested_by: AsOption = None
) -> Session:
    given: Globals = ctx.obj or Globals()
    return Session(settings or given.settings, cluster or given.cluster, requested_by or given.requested_by)


def reading(ctx: typer.Context, cluster: ClusterOption = None, settings: SettingsOption = None) -> Session:
    return asking(ctx, cluster, settings)


def installing(ctx: typer.Context, settings: SettingsOption = None) -> Session:
    return asking(ctx, settings=settings)


Asking = Annotated[Session, Block(asking)]
"""The session of a command that asks for something in somebody's name."""
Reading = Annotated[Session, Block(reading)]
"""The session of a command that only looks."""
Installing = Annotated[Session, Block(installing)]
"""The session of a command that is about no cluster."""


def with_values(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, with what kubectl takes for an option that is given without a value."""
    given = list(arguments)
    for n, word in enumerate(given):
        if word == "--":
            break
        follows = given[n + 1] if n + 1 < len(given) else "-"
        if word == "--validate" and follows.startswith("-"):
            given[n] = "--validate=strict"
    return given


def validate_of(word: str) -> Validate:
    """What `--validate` means. Raises a usage error."""
    from resources.validation import Validate

    try:
        return Validate.of(word)
    except ValueError:
        spelled = did_you_mean(word, ("strict", "warn", "ignore", "true", "false"))
        words = f"--validate is strict (or true), warn, or ignore (or false), not {word!r}{spelled}"
        raise typer.BadParameter(words) from None


def target(
    kind: str, names: Sequence[str | None], kinds: Collection[str] = (MACHINE,), *, also: Collection[str] = ()
) -> tuple[str, list[str]]:
    """Kind and names, from `machine m1 m2` or `machine/m1 machine/m2`. Raises a usage error, which names `also` too:
    words that the command takes in place of a kind."""
    found = targets(kind, names, kinds, also=also)
    if len(found) > 1:
        words = " and ".join(SHORT.get(k, k) for k, _ in found)
        raise typer.BadParameter(f"give names of one kind, not of {words}")
    return found[0]


def targets(
    kind: str, names: Sequence[str | None], kinds: Collection[str], *, also: Collection[str] = ()
) -> list[tuple[str, list[str]]]:
    """Kinds and their names, from `machine m1 m2`, `machine/m1 pool/p1` or `machines,pools`. Raises a usage error."""
    given = [n for n in names if n]
    if "/" not in kind:
        return [(_kind(word, kinds, alone=not given, also=also), given) for word in dict.fromkeys(kind.split(","))]
    found: dict[str, list[str]] = {}
    last = ""
    for word in (kind, *given):
        of, slash, name = word.partition("/")
        last, name = (_kind(of, kinds, also=also), name) if slash else (last, of)
        if not name:
            raise typer.BadParameter(f"{word!r} has no name; write {of}/NAME or {of} NAME")
        found.setdefault(last, []).append(name)
    return list(found.items())


def _kind(word: str, kinds: Collection[str], *, alone: bool = False, also: Collection[str] = ()) -> str:
    """The kind of this word. `alone`: nothing else was given, so the word may be a name."""
    known = ALIASES.get(word)
    if known in kinds and known is not None:
        return known
    spelled = did_you_mean(word, [*(alias for alias, kind in ALIASES.items() if kind in kinds), *also])
    words = [*(SHORT.get(k, k) for k in kinds), *also]
    with_names = [SHORT.get(k, k) for k in kinds if k not in ONLY]
    if known is None and alone and not spelled and len(with_names) <= FEW:  # most likely the name alone
        spelled = f"; write {' or '.join(f'{w} {word}' for w in with_names)}"
    if known is not None and known != word:
        word, spelled = f"{word} ({known})", ""
    raise typer.BadParameter(f"{word!r} is not a kind for this command; it takes {', '.join(words)}{spelled}")


def one(kind: str, name: str | None, kinds: Collection[str] = (MACHINE,)) -> tuple[str, str]:
    """Kind and the one name that the command needs."""
    known, names = target(kind, [name], kinds)
    if not names and known in ONLY:
        return known, ONLY[known]
    if len(names) != 1:
        raise typer.BadParameter(f"give one {known}: {known} NAME")
    return known, names[0]


def named(kind: str, names: Sequence[str]) -> list[str]:
    """The names. Raises a usage error where none is given, and the kind needs one."""
    if not names and kind in ONLY:
        return [ONLY[kind]]
    if not names:
        raise typer.BadParameter(f"give the names: {SHORT.get(kind, kind)} NAME...")
    return list(names)


def span(text: str | None) -> timedelta | None:
    """A duration from the command line, as Kubernetes writes it; None: no limit."""
    from datetime import timedelta

    from resources.base import LONGEST, parse_duration

    if text is None:
        return None
    try:
        value = parse_duration(text)
    except ValueError as e:
        raise typer.BadParameter(str(e)) from None
    if not isinstance(value, timedelta):
        raise typer.BadParameter(f"{text!r} is not a duration; write it like 20m, 1h30m or 90s")
    if value > LONGEST:
        raise typer.BadParameter(f"{text!r} is longer than ten years")
    return value


async def tell_each(labels: Mapping[K, str], ask: Callable[[K], Awaitable[str | list[str] | None]]) -> None:
    """Tells each of them, even after one that fails, and raises what failed at the end. Nothing is printed for one
    without an answer; an answer may have further lines."""
    from starter.output import Busy
    from starter.sdk.errors import HostlerError, Unreachable

    failures = []
    async with Busy("waiting for a worker's answer") as busy:
        for key, label in labels.items():
            try:
                if (answer := await ask(key)) is not None:
                    first, *more = [answer] if isinstance(answer, str) else answer
                    busy.say(f"{label} {first}", *more)
            except Unreachable:
                raise
            except HostlerError as e:
                failures.append(str(e))
    if failures:
        raise HostlerError("\n".join(failures))
