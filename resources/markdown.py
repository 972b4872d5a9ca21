"""Markdown for Temporal's web UI, in which a stranger's text is only text.

The UI renders what a workflow says of itself with gomarkdown's common extensions, including raw HTML, links of any
scheme, and prettified quotes and dashes (temporalio/ui, server/route/ui.go); its newer pages use CommonMark. A policy
keeps scripts and images off, but nothing keeps a message from drawing a heading, a table, or a link whose words lie. So
everything here escapes, once, what is not `Markdown`: a page is made of these pieces, and a plain string can only be
its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from resources.visible import visible


class Markdown(str):
    """Text whose marks are meant. An f-string made of it is a plain string again, and would be escaped."""

    __slots__ = ()


_SPACES, _TICKS = re.compile(r"\s+"), re.compile("`+")
_MARKS = re.compile(
    r"""
    [\\`*_\[\]<>|&~$^{}\#]           # marks anywhere
    | -(?=-) | (?<=-)-               # `--cluster` would become a dash,
    | \.(?=\.\.) | (?<=\.)\.         # dots one sign,
    | '(?=') | (?<=')'               # quotes one,
    | (?<=\d)/(?=\d)                 # 1/2 a fraction,
    | \((?=(?:c|r|tm)\))             # (c) what it stands for,
    | :(?=//) | (?<=mailto):         # addresses links
    """,
    re.VERBOSE | re.IGNORECASE,
)
_FIRST = re.compile(r"[+\-=:]|\d+(?=[.)])")
"""Marks where a block begins: items, definitions, underlines of headings."""


def _referred(match: re.Match[str]) -> str:
    """Character references: text for both renderers, where gomarkdown ignores a backslash before some marks."""
    return "".join(f"&#{ord(c)};" for c in match[0])


def plain(text: object) -> Markdown:
    """One line that is shown as it is written. Markdown stays as it is."""
    return text if isinstance(text, Markdown) else Markdown(_begun(str(text).strip()))


def _begun(text: str) -> str:
    """The escaped text at the beginning of a line."""
    line = _inline(text.lstrip())
    first = _FIRST.match(line)
    return _referred(first) + line[first.end() :] if first else line


def _inline(text: str) -> str:
    """The escaped text within a line: spaces at its ends stay."""
    return _MARKS.sub(_referred, visible(_SPACES.sub(" ", text)))


def code(text: str) -> Markdown:
    """Code, in which nothing is a mark but its own end, which is longer than any in the text."""
    text = visible(" ".join(text.split()))
    if not text:
        return Markdown()
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
    fence = "`" * (longest + 1)
    room = " " if longest else ""
    return Markdown(f"{fence}{room}{text}{room}{fence}")


def strong(text: str) -> Markdown:
    return Markdown(f"**{plain(text)}**" if text.strip() else "")


def join(*parts: str) -> Markdown:
    """Joins pieces of one line; spaces between them are theirs."""
    first, *more = parts
    line = [first if isinstance(first, Markdown) else _begun(first)]
    return Markdown("".join(line + [p if isinstance(p, Markdown) else _inline(p) for p in more]))


def prose(text: str) -> Markdown:
    """Our own words, with commands between backticks, as resources/reasons writes them."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return plain(text)
    return join(*(code(p) if i % 2 else p for i, p in enumerate(parts)))


def heading(text: str) -> Markdown:
    return Markdown(f"### {plain(text)}")


def items(lines: Iterable[str]) -> Markdown:
    return Markdown("\n".join(f"- {plain(line)}" for line in lines))


def page(*blocks: str) -> Markdown:
    """Joins headings, lists and paragraphs, one below the other; an empty one is left out."""
    return Markdown("\n\n".join(made for block in blocks if (made := plain(block))))
