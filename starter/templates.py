"""kubectl's output templates: `-o jsonpath=…`, `-o custom-columns=…` and `--sort-by`.

kubectl's language (client-go, util/jsonpath) is older than JSONPath's standard and differs from it: text stands around
`{…}`, `$` may be missing, a dot within a key is escaped, the quoted keys of `['a.b', 'c']` are paths, and `$` is the
current object even within a range. Here each path is rewritten as standard queries (RFC 9535), which python-jsonpath
answers; ranges and text are ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from resources.visible import visible, visible_json

_KEY = re.compile(r"(?:\\.|[^\\\s.\[\](){}'\"=!<>&|,*?@$])+")
_INDICES = re.compile(r"-?\d*(?::-?\d*){0,2}(?:\s*,\s*-?\d+)*")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>|&&|\|\||!|\(|\)|true\b|false\b|null\b")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


class TemplateError(ValueError):
    """The template cannot be read, in words for the person who wrote it."""


# -- paths ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Path:
    """One path as kubectl writes it: `.items[*].metadata.name`."""

    text: str

    def __post_init__(self) -> None:
        _ = self._queries  # a wrong one is refused before anything is asked for

    def find(self, document: Any) -> list[Any]:
        """What it names, in order; nothing where it is not there (kubectl's --allow-missing-template-keys)."""
        return [value for query in self._queries for value in query.findall(document)]

    @cached_property
    def _queries(self) -> list[Any]:
        import jsonpath

        try:
            return [jsonpath.compile(query) for query in standard(self.text)]
        except jsonpath.JSONPathError:
            raise TemplateError(f"{self.text!r} is not a path") from None


def relaxed(text: str) -> Path:
    """The path as custom columns and --sort-by take it: `.metadata.name`, `metadata.name` or either in braces."""
    inner = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    return Path(inner if inner.startswith((".", "[", "$", "@")) else f".{inner}")


def standard(path: str) -> list[str]:
    """The path as queries of RFC 9535: several where it has a union of paths, whose answers follow one another. Raises
    TemplateError."""
    scan = _Scan(path)
    scan.take("$") or scan.take("@")
    queries = ["$" + steps for steps in _steps(scan)]
    scan.skip_space()
    if not scan.done:
        raise scan.error()
    return queries


class _Scan:
    """A text, and how far it has been read."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    @property
    def done(self) -> bool:
        return self.at >= len(self.text)

    def sees(self, word: str) -> bool:
        return self.text.startswith(word, self.at)

    def take(self, word: str) -> bool:
        found = self.sees(word)
        self.at += len(word) * found
        return found

    def match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found[0] if found else ""

    def skip_space(self) -> None:
        while not self.done and self.text[self.at].isspace():
            self.at += 1

    def quoted(self) -> str:
        """The content of a text in quotes, as it is written: escapes are the reader's."""
        begin, quote = self.at, self.text[self.at]
        self.at += 1
        while not self.done and not self.sees(quote):
            self.at += 2 if self.sees("\\") else 1
        if self.done:
            raise TemplateError(f"{self.text!r}: the text that begins at {self.text[begin:]!r} does not end")
        self.at += 1
        return self.text[begin + 1 : self.at - 1]

    def error(self, wanted: str = "a field (.name), an index ([0]) or the end") -> TemplateError:
        where = f"before {self.text[self.at :]!r}" if not self.done else "at its end"
        return TemplateError(f"{self.text!r} is not a path: {wanted} is missing {where}")


def _steps(scan: _Scan) -> list[str]:
    """Reads what follows the root; one text for each member of its unions."""
    made = [""]
    while not scan.done:
        if scan.take(".."):
            # What is sought at any depth stands there as a name, or in brackets of its own.
            found = ["*"] if scan.take("*") else _bracket(scan) if scan.sees("[") else [_name(scan)]
            found = [f"..{step}" for step in found]
        elif scan.take("."):
            if scan.take("*"):
                found = ["[*]"]
            elif scan.sees("["):
                continue  # `.['name']`
            elif (key := scan.match(_KEY)) != "":
                found = [_child(key)]
            elif made == [""]:
                break  # `{.}`, the object itself
            else:
                raise scan.error("a name")
        elif scan.sees("["):
            found = _bracket(scan)
        else:
            break
        made = [before + step for step in found for before in made]
    return made


def _name(scan: _Scan) -> str:
    if not (key := scan.match(_KEY)):
        raise scan.error("a name")
    return _child(key)


def _child(key: str) -> str:
    return f"[{json.dumps(_unescaped(key))}]"


def _unescaped(text: str) -> str:
    r"""The text without backslashes: `\n` is a newline, and any other character itself."""
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text, flags=re.DOTALL)


def _bracket(scan: _Scan) -> list[str]:
    """Reads `[…]`: all, indices, a filter, or names."""
    scan.take("[")
    scan.skip_space()
    if scan.take("*"):
        found = ["[*]"]
    elif scan.take("?"):
        found = [f"[?{_filter(scan)}]"]
    elif scan.sees("'") or scan.sees('"'):
        found = _names(scan)
    elif indices := scan.match(_INDICES):
        found = [f"[{indices}]"]
    else:
        raise scan.error("an index, *, a 'name' or a ?(@.filter)")
    scan.skip_space()
    if not scan.take("]"):
        raise scan.error("]")
    return found


def _names(scan: _Scan) -> list[str]:
    """Reads quoted names. Each is a path, as for kubectl: `['metadata.name']` is two fields, and `['a\\.b']` is one."""
    found = []
    while True:
        scan.skip_space()
        if not (scan.sees("'") or scan.sees('"')):
            raise scan.error("a 'name'")
        inner = scan.quoted()
        found.append("".join(_child(key) for key in re.findall(r"(?:\\.|[^\\.])+", inner)))
        scan.skip_space()
        if not scan.take(","):
            return found


def _filter(scan: _Scan) -> str:
    """Reads `(@.path == "text")`; as an extension also `&&`, `||` and `!`."""
    if not scan.sees("("):
        raise scan.error("(")
    made, depth = [], 0
    while True:
        scan.skip_space()
        if scan.done:
            raise scan.error(")")
        if scan.take("@") or scan.take("$") or scan.sees("."):
            steps = _steps(scan)
            if len(steps) > 1:
                raise TemplateError(f"{scan.text!r}: a filter compares one field, not several")
            made.append("@" + steps[0])
        elif scan.sees("'") or scan.sees('"'):
            made.append(json.dumps(_unescaped(scan.quoted())))
        elif word := scan.match(_OPERATOR) or scan.match(_NUMBER):
            made.append(word)
            depth += (word == "(") - (word == ")")
            if depth == 0:
                return " ".join(made)
        else:
            raise scan.error("@.field, a number, a 'text' or ==")


# -- templates --------------------------------------------------------------------------------------------------------


Part = Callable[[Any], str]
"""A part of a template: what it prints of a document."""


@dataclass(frozen=True)
class Template:
    """`{range .items[*]}{.metadata.name}{"\\n"}{end}`."""

    text: str

    def __post_init__(self) -> None:
        _ = self._parts

    def render(self, document: Any) -> str:
        """The document as the template shows it: the template's own newlines and tabs are layout, values are
        visible."""
        return "".join(part(document) for part in self._parts)

    def render_json(self, document: Any) -> str:
        """What its paths name, as a list in JSON."""
        paths = [Path(text) for braced, text in _pieces(self.text) if braced]
        return visible_json([value for path in paths for value in path.find(document)], indent=4) + "\n"

    @cached_property
    def _parts(self) -> list[Part]:
        return _block(_pieces(self.text), self.text, within=False)


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    """Literal text, and the content of each pair of braces (True)."""
    scan = _Scan(text)
    while not scan.done:
        begin = scan.at
        end = text.find("{", begin)
        if end != begin:
            scan.at = len(text) if end < 0 else end
            yield False, text[begin : scan.at]
            continue
        scan.at += 1
        while not scan.sees("}"):
            if scan.done:
                raise TemplateError(f"{text!r}: the brace that opens at {text[begin:]!r} is not closed")
            if scan.sees("'") or scan.sees('"'):
                scan.quoted()
            else:
                scan.at += 1
        scan.at += 1
        yield True, text[begin + 1 : scan.at - 1].strip()


def _block(pieces: Iterator[tuple[bool, str]], whole: str, *, within: bool) -> list[Part]:
    """Reads up to the end, or within a range up to its {end}."""
    parts: list[Part] = []
    for braced, text in pieces:
        if not braced:
            parts.append(_literal(text))
        elif text == "end":
            if not within:
                raise TemplateError(f"{whole!r}: {{end}} without a {{range}}")
            return parts
        elif text == "range" or text.startswith("range "):
            parts.append(_range(Path(text.removeprefix("range").strip()), _block(pieces, whole, within=True)))
        elif text.startswith(('"', "'")):
            scan = _Scan(text)
            quoted = _unescaped(scan.quoted())
            if not scan.done:
                raise TemplateError(f"{{{text}}}: nothing may follow a text within its braces")
            parts.append(_literal(quoted))
        else:
            parts.append(_field(Path(text)))
    if within:
        raise TemplateError(f"{whole!r}: a {{range}} has no {{end}}")
    return parts


def _literal(text: str) -> Part:
    return lambda document: text


def _range(path: Path, body: list[Part]) -> Part:
    return lambda document: "".join(part(item) for item in path.find(document) for part in body)


def _field(path: Path) -> Part:
    return lambda document: " ".join(shown(value) for value in path.find(document))


def shown(value: Any) -> str:
    """A value as kubectl prints it: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return visible(value)
    return visible_json(value, separators=(",", ":"), sort_keys=True)


# -- columns ----------------------------------------------------------------------------------------------------------


def custom_columns(text: str) -> list[tuple[str, Path]]:
    """Reads `NAME:.metadata.name,PHASE:.status.phase`. Raises TemplateError."""
    columns = []
    for part in re.findall(r"(?:\[[^\]]*\]|[^,\[])+", text):
        name, colon, path = part.partition(":")
        if not (name and colon and path):
            raise TemplateError(f"{part!r} is no column: write HEADER:.path, as in NAME:.metadata.name")
        columns.append((name, relaxed(path)))
    if not columns:
        raise TemplateError("no column is given: write HEADER:.path, as in NAME:.metadata.name")
    return columns


def custom_columns_file(text: str) -> list[tuple[str, Path]]:
    """Reads a line of headers and a line of paths below them. Raises TemplateError."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if len(lines) != 2 or len(lines[0]) != len(lines[1]):
        raise TemplateError("a file of columns has two lines: the headers, and as many paths below them")
    return [(name, relaxed(path)) for name, path in zip(*lines, strict=True)]


def cell(path: Path, document: Any) -> str:
    """What a custom column shows; several values with commas between them."""
    return ",".join(shown(value) for value in path.find(document))


# -- order ------------------------------------------------------------------------------------------------------------


def sort_keys(path: Path, documents: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What each document is sorted by: what has no such field first, then numbers, then texts with the numbers
    in them counted (kubectl's natural order). Raises TemplateError where no document has it."""
    found = [path.find(document) for document in documents]
    if documents and not any(found):
        raise TemplateError(f"no object has the field {path.text!r}")
    return [_sort_key(values[0]) if values else (0,) for values in found]


def _sort_key(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, int | float):
        return (1, value)
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return (2, [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text) if part])
