"""What a command is about, usually machines: those named, those with some labels, or all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.blocks import Block
from starter.commands.common import AllClustersOption, AllOption, SelectorOption
from starter.commands.kinds import MACHINE

if TYPE_CHECKING:
    from starter.sdk.client import HostlerClient
    from starter.sdk.entity import EntityKey
    from starter.sdk.machines.selectors import Selector

PRESERVED = "preserved machines"


@dataclass(frozen=True)
class Selection:
    names: tuple[str, ...] = ()
    selector: Selector | None = None
    """Neither names nor a selector: all."""
    all_clusters: bool = False
    kind: str = MACHINE
    """Only machines are chosen otherwise than by name."""

    def label(self, key: EntityKey) -> str:
        """`machine/m1`; where several clusters are meant, as its workflow's id has it: `machine/demo/m1`."""
        return f"{self.kind}/{'/'.join(key) if self.all_clusters else key[1]}"

    def labelled(self, keys: Iterable[EntityKey]) -> dict[EntityKey, str]:
        return {key: self.label(key) for key in keys}

    def nothing(self, client: HostlerClient, kind: str = "machines") -> str:
        where = "any cluster" if self.all_clusters else f"cluster {client.cluster}"
        return f"No {kind} found in {where}" + (f" with labels {self.selector}." if self.selector else ".")

    async def keys(self, client: HostlerClient) -> list[EntityKey]:
        """The machines meant, by cluster and name; those named are not looked up. Raises Unreachable when a selector
        cannot be evaluated for sure."""
        if self.names:
            return [(client.cluster, name) for name in self.names]
        if self.selector is not None:
            found = await client.select(self.selector, all_clusters=self.all_clusters)
            return [(m.summary.cluster, m.summary.name) for m in found]
        return [(m.cluster, m.name) for m in await client.list(all_clusters=self.all_clusters)]


@dataclass(frozen=True)
class Among:
    """-l, --all and -A, for a command that changes or waits: it takes all only where that is asked for."""

    selector: str | None
    everything: bool
    all_clusters: bool

    def __bool__(self) -> bool:
        return self.some or self.all_clusters

    @property
    def some(self) -> bool:
        """Whether machines are meant that are not named."""
        return self.selector is not None or self.everything

    def choice(self, names: list[str]) -> Selection:
        """The selection. Raises a usage error."""
        if names and self.some:
            raise typer.BadParameter("give names, -l or --all, and only one of them")
        if self.selector is not None and self.everything:
            raise typer.BadParameter("give either -l or --all")
        if not names and not self.some:
            raise typer.BadParameter("give names (machine NAME...), -l SELECTOR, or --all")
        return listing(names, self.selector, self.all_clusters)


def _among(
    ctx: typer.Context,
    selector: SelectorOption = None,
    everything: AllOption = False,
    all_clusters: AllClustersOption = False,
) -> Among:
    return Among(selector, everything, all_clusters)


Others = Annotated[Among, Block(_among)]


def listing(names: list[str], selector: str | None, all_clusters: bool) -> Selection:
    """The selection of a command that only shows: all unless told otherwise. Raises a usage error."""
    if names and selector is not None:
        raise typer.BadParameter("give either names or -l")
    if names and all_clusters:
        raise typer.BadParameter("names need one cluster: use --cluster instead of -A")
    return Selection(tuple(names), labels(selector), all_clusters)


def labels(selector: str | None) -> Selector | None:
    """The selector of `-l`. Raises a usage error."""
    from starter.sdk.machines.selectors import SelectorError, parse

    if selector is None:
        return None
    try:
        return parse(selector)
    except SelectorError as e:
        raise typer.BadParameter(f"-l: {e}") from None
