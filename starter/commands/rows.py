"""What `hostler get` prints: rows of a table, objects, or what a template makes of them; once, or whenever they
change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from starter.commands.forms import Form, Manner, Shape
from starter.outlet import Piece, say, say_painted, say_template, say_text, warn, width

if TYPE_CHECKING:
    from starter.output import Table
    from starter.sdk.results import Json

T = TypeVar("T")

INTERVAL = 2.0
"""Seconds between two looks of `-w`."""
AGE = "AGE"
OF = "CLUSTER"
"""The first column under -A."""
GONE = "Gone"
Cell = str | int | datetime | None
"""A time is shown as its distance from now: under AGE how long ago, elsewhere when it comes."""
GOOD = frozenset({"Running", "Ready", "Watching", "Updated", "Complete"})
BAD = frozenset(
    {"Failed", "CrashLoopBackOff", "Stopped", "Parked", "APIUnreachable", "APIRefused", "NotReady", "Undone"}
)


def _plain(_: Any) -> str:
    return ""


def _second(pair: tuple[Any, Json]) -> Json:
    return pair[1]


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a table: one line where a kind lists its own."""

    name: str
    value: Callable[[T], Cell]
    wide: bool = False
    """Only with `-o wide`."""
    drop: int = 0
    """On a terminal that is too narrow, the columns with the greatest number go first; those with 0 stay."""
    style: Callable[[T], str] = _plain


def phase_style(phase: str) -> str:
    """The colour of a phase: a preserved machine's is that of its phase."""
    words = {word for part in phase.split(",") for word in part.split(":")}
    if words & BAD:
        return "red"
    return "green" if words <= GOOD | {"Preserved"} else "yellow" if phase else ""


@dataclass(frozen=True)
class Row:
    key: tuple[str, ...]
    """What the row is, for `-o name`: kind, cluster where there may be several, name."""
    cells: Mapping[str, Cell]
    styles: Mapping[str, str] = field(default_factory=dict)

    def piece(self, column: str) -> Piece:
        return cell_text(column, self.cells[column]), self.styles.get(column, "")


def cell_text(column: str, value: Cell) -> str:
    from starter.output import age, relative

    if isinstance(value, datetime):
        now = datetime.now(UTC)
        return age(now - value) if column == AGE else relative(value, now)
    return "" if value is None else str(value)


@dataclass(frozen=True)
class Listing(Generic[T]):
    """What is to be shown of one kind."""

    columns: Sequence[Column[T]]
    find: Callable[[], Awaitable[list[T]]]
    key: Callable[[T], tuple[str, ...]]
    objects: Callable[[list[T]], Awaitable[list[Json | None]]]
    """The same things in Kubernetes' form, in the same order; None for what has gone meanwhile."""
    nothing: str
    """What is said where there is none."""
    state: str = "PHASE"
    """The column that says Gone under -w."""
    widened: Callable[[list[T]], Awaitable[list[T]]] | None = None
    """Asks the things for what only `-o wide` shows."""
    doubts: Callable[[list[T]], Awaitable[str]] | None = None
    """Says what speaks against the table, where something does; it is a warning before the table."""
    missing: list[str] = field(default_factory=list)
    """Why things that were named are not there, after `find`. The others are shown, as kubectl does it."""

    def row(self, thing: T, labels: Mapping[str, str]) -> Row:
        cells = {c.name: c.value(thing) for c in self.columns} | dict(labels)
        styles = {c.name: c.style(thing) for c in self.columns}
        return Row(self.key(thing), cells, styles)

    async def rows(self, form: Form, manner: Manner, *, first: bool = False) -> list[Row]:
        """`first`: a warning that belongs to them has not been said yet."""
        things = await self.find()
        if first and self.doubts is not None and not manner.needs_objects and (words := await self.doubts(things)):
            warn(words)  # an object says it for itself
        if self.widened is not None and form.shape is Shape.WIDE:
            things = await self.widened(things)
        if not manner.needs_objects:
            return [self.row(thing, {}) for thing in things]
        objects = await self.objects(things)
        there = [(thing, o) for thing, o in zip(things, objects, strict=True) if o is not None]
        return [self.row(thing, manner.label_cells(o)) for thing, o in manner.sorted(there, _second)]


async def those_named(names: Sequence[str], one: Callable[[str], Awaitable[T]], missing: list[str]) -> list[T]:
    """Those that there are; why the others are missing is added to `missing`."""
    from starter.sdk.errors import NotFound

    missing.clear()
    found = []
    for name in names:
        try:
            found.append(await one(name))
        except NotFound as e:
            missing.append(str(e))
    return found


class Named(Protocol):
    """What has a name within a cluster."""

    @property
    def cluster(self) -> str: ...
    @property
    def name(self) -> str: ...


def key_of(kind: str, everywhere: bool) -> Callable[[Named], tuple[str, ...]]:
    """The key of rows of a kind; with the cluster where there may be several."""
    return lambda thing: (kind, thing.cluster, thing.name) if everywhere else (kind, thing.name)


def listed(columns: Sequence[Column[Any]], everywhere: bool) -> Sequence[Column[Any]]:
    """The columns; below -A each row begins with its cluster."""
    return (Column(OF, lambda thing: thing.cluster), *columns) if everywhere else columns


async def show(listings: Sequence[Listing[Any]], form: Form, manner: Manner, *, single: bool = False) -> None:
    """Prints them. `single`: one thing is meant, and its object stands for itself, not in a List. Raises Refused where
    nothing has the field to sort by."""
    if form.rows:
        await _show_rows(listings, form, manner)
    else:
        await _show_objects(listings, form, manner, single)
    _refuse(listings)


def _refuse(listings: Sequence[Listing[Any]]) -> None:
    """Raises NotFound for what was named and is not there."""
    from starter.sdk.errors import NotFound

    if missing := [words for each in listings for words in each.missing]:
        raise NotFound("\n".join(missing))


async def _show_objects(listings: Sequence[Listing[Any]], form: Form, manner: Manner, single: bool) -> None:
    found = [o for some in await asyncio.gather(*map(_objects, listings)) for o in some if o]
    objects = manner.sorted(found, lambda o: o)
    if not objects:
        _refuse(listings)
    if form.shape is Shape.COLUMNS:
        _show_columns(objects, form, manner)
        return
    from starter.output import dump, whole

    single = single and bool(objects)
    if form.shape is Shape.TEMPLATE:
        say_template(_rendered(form, whole(objects, single=single)))
    else:
        say_text(dump(objects, form.shape, single=single))


async def _objects(listing: Listing[Any]) -> list[Json | None]:
    return await listing.objects(await listing.find())


def _rendered(form: Form, document: Any) -> str:
    """The template's text. Raises Refused where the object does not have what it asks for."""
    from starter.sdk.errors import Refused
    from starter.templates import TemplateError

    try:
        return form.render(document)
    except TemplateError as e:
        raise Refused(str(e)) from None


def _show_columns(objects: Sequence[Json], form: Form, manner: Manner) -> None:
    from starter.output import Table
    from starter.templates import cell

    table = Table([name for name, _ in form.columns])
    rows = [[cell(path, o) for _, path in form.columns] for o in objects]
    say(*table.lines(rows, header=manner.headers))


# -- tables -----------------------------------------------------------------------------------------------------------


async def _show_rows(listings: Sequence[Listing[Any]], form: Form, manner: Manner) -> None:
    several = len(listings) > 1
    # All kinds at once: where nobody answers, each waits for as long.
    found = list(
        zip(listings, await asyncio.gather(*(each.rows(form, manner, first=True) for each in listings)), strict=True)
    )
    empty = [each.nothing for each, rows in found if not rows]
    if len(empty) == len(found):
        _refuse(listings)
        say(*empty, err=True)
    shown = [_Sheet(each, form, manner, several) for each, _ in found]
    begun = False
    for sheet, (_, rows) in zip(shown, found, strict=True):
        if not rows and not manner.watch:
            continue
        if begun and form.shape is not Shape.NAME:
            say("")
        sheet.show(rows, manner.headers)
        begun = True
    seen = {r.key: r for _, rows in found for r in rows}
    _refuse(listings)
    while manner.watch:
        await asyncio.sleep(INTERVAL)
        seen = await _changes(listings[0], manner, seen, shown[0])


class _Head(NamedTuple):
    key: str
    header: str
    drop: int = 0


class _Sheet:
    """The table of one kind on the screen."""

    def __init__(self, listing: Listing[Any], form: Form, manner: Manner, several: bool) -> None:
        self.form, self._several = form, several
        wanted = [c for c in listing.columns if form.shape is Shape.WIDE or not c.wide]
        self._columns = [_Head(c.name, c.name, c.drop) for c in wanted]
        self._columns += [_Head(key, name) for key, name in manner.label_names]
        self._table: Table | None = None

    def show(self, rows: list[Row], header: bool) -> None:
        if self.form.shape is Shape.NAME:
            say(*("/".join(row.key) for row in rows))
            return
        if self._table is None:  # what is shown first decides which columns there is room for
            self._table = self._fitted(rows)
        say_painted(self._table.pieces([self._pieces(row) for row in rows], header=header))

    def _fitted(self, rows: list[Row]) -> Table:
        from starter.output import Table, fitting

        texts = [[text for text, _ in self._pieces(row)] for row in rows]
        room = width() if self.form.shape is Shape.TABLE else None
        left = fitting([c.header for c in self._columns], texts, [c.drop for c in self._columns], room)
        self._columns = [self._columns[i] for i in left]
        return Table([c.header for c in self._columns])

    def _pieces(self, row: Row) -> list[Piece]:
        """The cells; where several kinds are shown, the name says which, as `kubectl get all` does."""
        pieces = [row.piece(c.key) for c in self._columns]
        if self._several:
            at = next(i for i, c in enumerate(self._columns) if c.key != OF)
            pieces[at] = (f"{row.key[0]}/{pieces[at][0]}", pieces[at][1])
        return pieces


async def _changes(
    listing: Listing[Any], manner: Manner, seen: dict[tuple[str, ...], Row], sheet: _Sheet
) -> dict[tuple[str, ...], Row]:
    """Prints what is new, changed or gone since `seen`, and answers with what is there now."""
    from starter.sdk.errors import NotFound
    from starter.sdk.patience import patiently

    async def rows() -> list[Row]:
        return await listing.rows(sheet.form, manner)

    try:
        now = {r.key: r for r in await patiently(rows)}
    except NotFound:
        now = {}  # the one that was named is gone
    # A remaining time is its end, which does not change.
    changed = [r for key, r in now.items() if key not in seen or r.cells != seen[key].cells]
    gone = [Row(key, {**r.cells, listing.state: GONE}) for key, r in seen.items() if key not in now]
    if changed or gone:
        sheet.show(changed + gone, False)
    return now
