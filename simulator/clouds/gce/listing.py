"""What all list calls share: filters, pages, orders.

Of the documented grammar of filters (Compute Engine API, *instances.list*, `filter`) this is emulated: comparisons with
=, !=, <, <=, >, >= and `:` on fields by path, `*` as a wildcard in the value, AND, OR, parentheses, two parenthesised
terms in a row (AND), and the older `field eq|ne regular-expression`. Everything else is refused.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Any

from simulator.clouds.gce.context import Row
from simulator.clouds.gce.errors import GceError, invalid, unsupported

MAX_PAGE = 500
Test = Callable[[Row], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<paren>[()])
    |(?P<operator>!=|<=|>=|=|<|>|:)
    |"(?P<double>(?:[^"\\]|\\.)*)"
    |'(?P<single>(?:[^'\\]|\\.)*)'
    |(?P<word>[^\s()=!<>:"']+))""",
    re.VERBOSE,
)


def select(rows: Sequence[Row], query: dict[str, str]) -> list[Row]:
    """The rows that the parameter `filter` asks for."""
    text = query.get("filter", "").strip()
    if not text:
        return list(rows)
    test = _Parser(text).parse()
    return [row for row in rows if test(row)]


class _Parser:
    """Recursive descent: OR binds weaker than AND, which also stands between two terms in parentheses."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise self._wrong()
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()

    def parse(self) -> Test:
        test = self._any()
        if self._tokens:
            raise self._wrong()
        return test

    def _wrong(self) -> GceError:
        return invalid("filter", self._text, "Invalid list filter expression.")

    def _next(self, *kinds: str) -> str:
        if not self._tokens or self._tokens[0][0] not in kinds:
            raise self._wrong()
        return self._tokens.pop(0)[1]

    def _at(self, kind: str, *words: str) -> bool:
        return bool(self._tokens) and self._tokens[0][0] == kind and self._tokens[0][1] in words

    def _any(self) -> Test:
        tests = [self._all()]
        while self._at("word", "OR"):
            self._tokens.pop(0)
            tests.append(self._all())
        return tests[0] if len(tests) == 1 else lambda row: any(test(row) for test in tests)

    def _all(self) -> Test:
        tests = [self._term()]
        while self._at("word", "AND") or self._at("paren", "("):
            if self._at("word", "AND"):
                self._tokens.pop(0)
            tests.append(self._term())
        return tests[0] if len(tests) == 1 else lambda row: all(test(row) for test in tests)

    def _term(self) -> Test:
        if self._at("word", "NOT") or (self._tokens and self._tokens[0][1].startswith("-")):
            raise unsupported("negated terms of a filter")
        if self._at("paren", "("):
            self._tokens.pop(0)
            test = self._any()
            if not self._at("paren", ")"):
                raise self._wrong()
            self._tokens.pop(0)
            return test
        field = self._next("word", "double", "single")
        if self._at("word", "eq", "ne"):
            wanted = self._tokens.pop(0)[1] == "eq"
            return _regular(field, self._next("word", "double", "single"), wanted, self._wrong())
        operator = self._next("operator")
        return _comparison(field, operator, self._next("word", "double", "single"))


def _regular(field: str, expression: str, wanted: bool, wrong: GceError) -> Test:
    try:
        pattern = re.compile(expression)
    except re.error:
        raise wrong from None
    return lambda row: any(pattern.fullmatch(text) for text in _texts(row, field)) is wanted


def _comparison(field: str, operator: str, value: str) -> Test:
    if operator == ":" and value == "*":
        return lambda row: bool(_values(row, field))
    if operator in ("<", "<=", ">", ">="):
        return lambda row: any(_ordered(text, operator, value) for text in _texts(row, field))
    pattern = re.compile(".*".join(re.escape(part) for part in value.split("*")), re.DOTALL)
    if operator == ":":
        has = re.compile(pattern.pattern, re.IGNORECASE)
        return lambda row: any(has.search(text) for text in _texts(row, field))
    wanted = operator == "="
    return lambda row: any(pattern.fullmatch(text) for text in _texts(row, field)) is wanted


def _ordered(text: str, operator: str, value: str) -> bool:
    numbers = text.isdecimal() and value.isdecimal()
    a, b = (int(text), int(value)) if numbers else (text, value)
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]  # type: ignore[operator]


def _texts(row: Row, field: str) -> list[str]:
    return [str(v).lower() if isinstance(v, bool) else str(v) for v in _values(row, field)]


def _values(row: Any, field: str) -> list[Any]:
    """What a path finds; a list stands for each of its items. A key may have dots in quotes only, which labels have
    not."""
    found = [row]
    for part in field.split("."):
        items = [item for value in found for item in _items(value)]
        found = [item[part] for item in items if isinstance(item, dict) and part in item]
    return [item for value in found for item in _items(value)]


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def page(rows: Sequence[Row], query: dict[str, str]) -> tuple[list[Row], str | None]:
    """One page of rows, by name or the newest first, and the token of the next one.

    The token is the last row's place in that order, not an offset: a row that leaves the listing between two pages does
    not hide another one.
    """
    size = int(query.get("maxResults") or MAX_PAGE)
    if not 0 <= size <= MAX_PAGE:
        raise invalid("maxResults", size, f"Must be a value between 0 and {MAX_PAGE}.")
    order = query.get("orderBy", "name")
    if order not in ("name", "creationTimestamp desc"):
        raise invalid("orderBy", order, "Only 'name' and 'creationTimestamp desc' are supported.")

    def place(row: Row) -> tuple[str, str]:
        if order == "name":
            return "", row["selfLink"]
        made = str(row.get("creationTimestamp") or row.get("insertTime") or "")
        return "".join(chr(0x10FFFF - ord(c)) for c in made), row["selfLink"]

    token = query.get("pageToken")
    after = _read_token(token) if token else ("", "")
    rest = sorted((row for row in rows if place(row) > after), key=place)
    shown = rest[: size or MAX_PAGE]
    return shown, _token(place(shown[-1])) if len(rest) > len(shown) else None


def _token(place: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode("\n".join(place).encode()).decode()


def _read_token(token: str) -> tuple[str, str]:
    try:
        newest, _, name = base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode().partition("\n")
    except (binascii.Error, ValueError):
        raise invalid("pageToken", token, "Invalid page token.") from None
    return newest, name
