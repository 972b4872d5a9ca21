"""Strangers' text made safe to look at: what would act on a terminal, or be invisible, is written as an escape.

Consoles, kubelets, API servers and anybody who names a reason may send anything: escape sequences that clear a screen
or set its title, carriage returns and backspaces that overwrite a line, marks that reverse the direction of writing
(CVE-2021-42574), characters without a width. What remains is letters: this does not notice that two of them look alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

# Python says that they are printable, and yet nothing is drawn: the rest of Unicode's Default_Ignorable_Code_Point
# (joiners, fillers, variation selectors), and the blank pattern of Braille.
_UNSEEN = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)


def _escape(c: str) -> str:
    return c.encode("unicode_escape").decode()


def visible(text: str, keep: str = "", escape: Callable[[str], str] = _escape) -> str:
    r"""`text` as one line that can be printed: what does not print is written as Python does (`\x1b`, `\u202e`, `\n`).
    Applying it twice changes nothing more.

    `keep`: characters that make the layout (a newline, a tab). `escape`: another way to write one character. The line
    end of consoles and Windows, `\r\n`, counts as a newline.
    """
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return "".join(c if c in keep or (c.isprintable() and c not in _UNSEEN) else escape(c) for c in text)


def visible_lines(text: str) -> list[str]:
    """The text's lines, each as `visible` writes it; only a newline ends one."""
    return visible(text, keep="\n").rstrip("\n").split("\n")


def is_visible(text: str, keep: str = "") -> bool:
    """Whether `visible` leaves it unchanged."""
    return visible(text, keep) == text


def visible_json(value: Any, indent: int | None = None, **form: Any) -> str:
    """JSON in which nothing is hidden and which parses to the true value; letters of all languages stay as they are.
    `form`: as `json.dumps` takes it."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, **form)
    # Outside its strings JSON has nothing to escape but the newlines of the layout.
    return visible(text, keep="\n", escape=lambda c: json.dumps(c)[1:-1])
