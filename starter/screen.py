"""What rich draws on a terminal, made safe as `starter.outlet` makes lines safe: no markup in texts, nothing that
acts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from resources.visible import visible
from starter.outlet import no_colour


class _Screen(Console):
    """Every piece of text passes here before it is written; rich's own control codes are marked as such."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text, keep="\n"), style, control)


def screen(err: bool = False) -> Console:
    """Standard output, or standard error. A text in brackets is no markup (`[link=…]`), and `:name:` no emoji."""
    return _Screen(stderr=err, markup=False, emoji=False, highlight=False, no_color=no_colour())


def words(*parts: str | tuple[str, str], style: str = "") -> Text:
    """A line, as wide as it will look; a part may come with its style."""
    made: list[Any] = [visible(p) if isinstance(p, str) else (visible(p[0]), p[1]) for p in parts]
    return Text.assemble(*made, style=style)
