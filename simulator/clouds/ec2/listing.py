"""Filters and pages of the describe operations."""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from simulator.clouds.ec2.errors import Ec2Error
from simulator.clouds.ec2.wire import Params, Row

Fields = Mapping[str, str]
"""Filter name to the dotted path of its value in an answer; lists on the way are searched through."""

MAX_FILTER_VALUES = 200
MIN_PAGE, MAX_PAGE = 5, 1000


@functools.lru_cache(maxsize=1024)
def _pattern(value: str) -> re.Pattern[str]:
    r"""`*` and `?` are wildcards, a backslash takes the next character literally; case counts (EC2 user guide)."""
    out, escaped = [], False
    for character in value:
        if escaped:
            out.append(re.escape(character))
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            out.append({"*": ".*", "?": "."}.get(character) or re.escape(character))
    return re.compile("".join(out), re.DOTALL)


def _values(thing: Any, path: Sequence[str]) -> list[str]:
    if thing is None:
        return []
    if isinstance(thing, list):
        return [v for item in thing for v in _values(item, path)]
    if path:
        return _values(thing.get(path[0]), path[1:])
    return [str(thing).lower() if isinstance(thing, bool) else str(thing)]


def _have(row: Row, name: str, fields: Fields) -> list[str]:
    tags = row.get("Tags") or row.get("TagSet") or []
    if name.startswith("tag:"):
        return [t["Value"] for t in tags if t["Key"] == name[4:]]
    if name == "tag-key":
        return [t["Key"] for t in tags]
    return _values(row, fields[name].split("."))


def may_pass(params: Params, **known: str) -> bool:
    """Whether a thing passes those filters of a call that ask for what is `known` of it: filters by name, with
    underscores.

    Asked before a row is made, which costs more than all filters. The other filters, and what is wrong with any, are
    for `select`.
    """
    filters = [(f.get("Name", "").replace("-", "_"), f.get("Values", [])) for f in params.get("Filters", [])]
    return all(any(_pattern(v).fullmatch(known[name]) for v in values) for name, values in filters if name in known)


def select(rows: Sequence[Row], params: Params, fields: Fields) -> list[Row]:
    """Rows that pass all filters of a call; a filter passes when any of its values matches any value of the row."""
    kept = list(rows)
    for f in params.get("Filters", []):
        name, wanted = f.get("Name", ""), f.get("Values", [])
        if name not in fields and name != "tag-key" and not name.startswith("tag:"):
            raise Ec2Error(
                "InvalidParameterValue", f"The filter '{name}' is invalid, or the simulator does not emulate it"
            )
        if not wanted:
            raise Ec2Error("InvalidParameterValue", f"The filter '{name}' has no values")
        if len(wanted) > MAX_FILTER_VALUES:
            raise Ec2Error("FilterLimitExceeded", f"The filter '{name}' has more than {MAX_FILTER_VALUES} values")
        patterns = [_pattern(v) for v in wanted]
        kept = [r for r in kept if any(p.fullmatch(h) for h in _have(r, name, fields) for p in patterns)]
    return kept


def page(rows: Sequence[Row], params: Params, key: Sequence[str], ids: str = "") -> tuple[list[Row], str | None]:
    """One page of rows and the token of the next.

    `key` names the members that identify a row; rows are in a stable order by it. The token is the key of the last
    row of the page, not an offset: a row that leaves the listing between two pages does not hide another one.
    `ids` is the parameter that may not be combined with MaxResults.
    """
    size, token = params.get("MaxResults"), params.get("NextToken")
    if size is None and token is None:
        return list(rows), None
    if ids and params.get(ids):
        raise Ec2Error(
            "InvalidParameterCombination", f"The parameter {ids} cannot be used with the parameter MaxResults"
        )
    size = MAX_PAGE if size is None else size
    if not MIN_PAGE <= size <= MAX_PAGE:
        raise Ec2Error(
            "InvalidParameterValue",
            f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value from {MIN_PAGE} to {MAX_PAGE}.",
        )

    def cursor(row: Row) -> str:
        return "\n".join(str(row[k]) for k in key)

    after = _read_token(token) if token else ""
    rest = sorted((r for r in rows if cursor(r) > after), key=cursor)
    shown = rest[:size]
    more = base64.urlsafe_b64encode(cursor(shown[-1]).encode()).decode() if len(rest) > size else None
    return shown, more


def _read_token(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise Ec2Error("InvalidNextToken", "The specified token is not valid") from None


def describe(
    output: str, rows: Sequence[Row], params: Params, fields: Fields, key: Sequence[str], ids: str = ""
) -> Row:
    """The answer of a describe operation: `rows` filtered and paged under the member `output`."""
    shown, more = page(select(rows, params, fields), params, key, ids)
    return {output: shown, "NextToken": more}
