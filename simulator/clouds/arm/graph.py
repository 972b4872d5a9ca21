"""Resource Graph: a few fixed shapes of its query language, and everything else is refused by name, never guessed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from simulator.clouds.arm.errors import ArmError
from simulator.clouds.arm.wire import Answer, ArmCall, Row, read_token, token_of

MOST = 1000
"""Rows of one answer."""
SHAPES = (
    "Resources | where <field> =~ 'x' (or ==, in~ ('x', 'y'), contains) | where tags['k'] =~ 'v' | "
    "project <fields> | order by id asc"
)
_FIELD = r"(?P<field>[A-Za-z]\w*(?:\.\w+)*)(?:\[(?:'(?P<item>[^']*)'|\"(?P<item2>[^\"]*)\")\])?"
_WHERE = re.compile(rf"where\s+{_FIELD}\s*(?P<op>=~|==|contains|in~)\s*(?P<value>.+)", re.DOTALL)
_PROJECT = re.compile(r"project\s+(?P<fields>\w+(?:\s*,\s*\w+)*)")
_ORDER = re.compile(r"order\s+by\s+id(?:\s+asc)?")
_TEXT = re.compile(r"'([^']*)'|\"([^\"]*)\"")


class Graph:
    """`rows` gives everything in a subscription that calls see, as its own API answers it."""

    def __init__(self, rows: Callable[[str], Iterable[Row]], may: Callable[[ArmCall, str], None]) -> None:
        self._rows = rows
        self._may = may

    def resources(self, call: ArmCall) -> Answer:
        subscriptions, options = call.body.get("subscriptions") or [], call.body.get("options") or {}
        if options.get("resultFormat", "objectArray") != "objectArray":
            raise _invalid("options.resultFormat is objectArray, and nothing else here")
        for subscription in subscriptions:
            self._may(call, subscription)
        rows = [_flat(row) for s in subscriptions for row in self._rows(s)]
        rows.sort(key=lambda row: str(row["id"]).lower())
        wanted = select(rows, str(call.body.get("query", "")))
        size = min(MOST, int(options.get("$top", MOST)))
        after = read_token(options["$skipToken"]) if options.get("$skipToken") else ""
        rest = [row for row in wanted if str(row["id"]).lower() > after]
        shown = rest[:size]
        body: Row = {
            "totalRecords": len(wanted),
            "count": len(shown),
            "resultTruncated": "false",
            "facets": [],
            "data": shown,
        }
        if len(rest) > size:
            body["$skipToken"] = token_of(str(shown[-1]["id"]).lower())
        return Answer(body=body)


def select(rows: list[Row], query: str) -> list[Row]:
    """The rows that a query wants. Raises BadRequest for a shape that is not one of SHAPES."""
    table, *clauses = [c.strip() for c in re.split(r"\|(?=(?:[^'\"]|'[^']*'|\"[^\"]*\")*$)", query)]
    if table.lower() != "resources":
        raise _invalid(f"the table '{table}'")
    fields: list[str] | None = None
    for clause in clauses:
        if where := _WHERE.fullmatch(clause):
            field, item = where["field"], where["item"] if where["item"] is not None else where["item2"]
            passes = _operator(where["op"], where["value"].strip(), clause)
            rows = [row for row in rows if passes(_text(_value(row, field, item)))]
        elif project := _PROJECT.fullmatch(clause):
            fields = [f.strip() for f in project["fields"].split(",")]
        elif not _ORDER.fullmatch(clause):
            raise _invalid(clause)
    if fields is None:
        return rows
    if "id" not in fields:
        raise _invalid("a projection without id, by which pages are told apart")
    return [{f: row.get(f) for f in fields} for row in rows]


def _operator(op: str, value: str, clause: str) -> Callable[[str], bool]:
    if op == "in~":
        if not (value.startswith("(") and value.endswith(")")):
            raise _invalid(clause)
        several = {_read(part.strip(), clause).lower() for part in value[1:-1].split(",")}
        return lambda text: text.lower() in several
    one = _read(value, clause)
    match op:
        case "==":
            return lambda text: text == one
        case "=~":
            return lambda text: text.lower() == one.lower()
        case _:
            return lambda text: one.lower() in text.lower()


def _read(value: str, clause: str) -> str:
    match = _TEXT.fullmatch(value)
    if match is None:
        raise _invalid(clause)
    return match[1] if match[1] is not None else match[2]


def _value(row: Row, field: str, item: str | None) -> Any:
    value: Any = row
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if item is not None:
        value = value.get(item) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _flat(row: Row) -> Row:
    """A resource as the graph has it: types and groups in lower case, and what the other APIs say by the id alone."""
    _, _, subscription, _, group, *_ = str(row["id"]).split("/")
    return {
        **row,
        "type": str(row["type"]).lower(),
        "resourceGroup": group.lower(),
        "subscriptionId": subscription,
        "zones": row.get("zones"),
        "tags": row.get("tags") or None,
    }


def _invalid(what: str) -> ArmError:
    message = f"The simulator does not emulate {what}; it knows: {SHAPES}."
    return ArmError(
        "BadRequest",
        "Please provide below info when asking for support: query is invalid. " + message,
        details=[{"code": "InvalidQuery", "message": message}],
    )
