"""YAML as a person gives it, within bounds: its size, its depth, and what its aliases would expand to.

A scalar is what kubectl makes of it (sigs.k8s.io/yaml: goyaml.v2, resolve.go): a number, one of YAML 1.1's words for
true and false, null, or text. A time of day (`22:30`), a date and a MAC address are text, which PyYAML on its own reads
as numbers of base 60 and as dates.
"""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar

import yaml

SIZE_MOST = 4 << 20
"""The most characters of a file. The API server takes 1.5 MiB for one object, and a file may hold several."""
DEPTH_MOST = 50
EXPANDED_MOST = 8 << 20
"""The most characters, with each alias written out; what is not text counts as 8. Nine levels of nine aliases are a
billion."""


class DocumentError(ValueError):
    """The document cannot be read; the message says where in it (`:LINE`, or nothing) and why."""


_BOOL = re.compile(
    r"(?:y|Y|yes|Yes|YES|true|True|TRUE|on|On|ON|n|N|no|No|NO|false|False|FALSE|off|Off|OFF)\Z",
)
_TRUE = ("y", "yes", "true", "on")
_INT = re.compile(r"[-+]?(?:0[bB][01_]+|0[oO]?[0-7_]+|0[xX][0-9a-fA-F_]+|[1-9][0-9_]*|0)\Z")
_FLOAT = re.compile(
    r"(?:[-+]?(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9_]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_MERGE = re.compile(r"<<\Z")
_TAG = "tag:yaml.org,2002:"
_RESOLVERS = {"bool": _BOOL, "int": _INT, "float": _FLOAT, "null": _NULL, "merge": _MERGE}
"""In this order: what is no whole number may be one with a fraction."""


class _Loader(yaml.SafeLoader):
    """Counts while it composes: an alias costs what it stands for, before anything is made of it."""

    yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = {  # type: ignore[misc]
        None: [(f"{_TAG}{name}", pattern) for name, pattern in _RESOLVERS.items()]
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._size = 0
        self._sizes: dict[str, int] = {}
        """The size by anchor; missing for one whose node has not ended yet."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        alias, before = isinstance(event, yaml.AliasEvent), self._size
        self._depth += 1
        if self._depth > DEPTH_MOST:
            raise yaml.MarkedYAMLError(None, None, f"nested deeper than {DEPTH_MOST} levels", event.start_mark)
        if alias:
            if event.anchor in self.anchors and event.anchor not in self._sizes:
                raise yaml.MarkedYAMLError(None, None, f"*{event.anchor} contains itself", event.start_mark)
            self._size += self._sizes.get(event.anchor, 0)
        self._size += 8 + len(getattr(event, "value", ""))
        if self._size > EXPANDED_MOST:
            words = f"with its aliases expanded it has more than {EXPANDED_MOST} characters"
            raise yaml.MarkedYAMLError(None, None, words, event.start_mark)
        anchor = None if alias else event.anchor
        if anchor is not None:
            self._sizes.pop(anchor, None)  # given again, it is another node's
        node: yaml.Node | None = super().compose_node(parent, index)
        if anchor is not None:
            self._sizes[anchor] = self._size - before
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuses a key that is there twice: PyYAML silently takes the last of two equal keys; YAML forbids them."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        keys = set()
        for key in (k for k, _ in node.value if isinstance(k, yaml.ScalarNode)):
            if (key.tag, key.value) in keys:
                raise yaml.MarkedYAMLError(None, None, f"the key {key.value[:60]!r} is given twice", key.start_mark)
            keys.add((key.tag, key.value))
        return node

    def construct_yaml_bool(self, node: Any) -> bool:
        return str(self.construct_scalar(node)).lower() in _TRUE

    def construct_yaml_int(self, node: Any) -> int:
        digits = str(self.construct_scalar(node)).replace("_", "")
        bare = digits.lstrip("+-")
        if bare.startswith("0") and bare.isdecimal() and len(bare) > 1:
            return int(digits, 8)  # Go takes a leading zero for base 8
        return int(digits, 0)

    def construct_yaml_float(self, node: Any) -> float:
        text = str(self.construct_scalar(node)).replace("_", "")
        return float(text.replace(".", "", 1)) if text.lower().lstrip("+-") in (".inf", ".nan") else float(text)

    def construct_yaml_timestamp(self, node: Any) -> str:  # type: ignore[override]
        return str(self.construct_scalar(node))  # somebody has written !!timestamp

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Numbers as keys become text, as in JSON. A word for true or false is refused: kubectl would make the key
        `true` of `on`."""
        found = super().construct_mapping(node, deep)
        if any(isinstance(key, bool) for key in found):
            words = "a key reads as true or false; put it in quotes"
            raise yaml.MarkedYAMLError(None, None, words, node.start_mark)
        return {_as_key(key): value for key, value in found.items()}

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError, ArithmeticError, LookupError, TypeError, AttributeError) as e:
            # A nonexistent date, a number of 5,000 digits, a key that is a list.
            words = f"it cannot be read as {str(node.tag).rsplit(':', 1)[-1]} ({type(e).__name__})"
            raise yaml.MarkedYAMLError(None, None, words, node.start_mark) from None


def _as_key(key: Any) -> Any:
    if isinstance(key, float) and math.isfinite(key):
        return f"{key:g}"
    return str(key) if isinstance(key, int) else key


for _name in ("bool", "int", "float", "timestamp"):
    _Loader.add_constructor(f"{_TAG}{_name}", getattr(_Loader, f"construct_yaml_{_name}"))


def reads_as_text(scalar: str) -> bool:
    """Whether a plain scalar is read as the text that it is. Another must be written in quotes."""
    return not any(pattern.match(scalar) for _, pattern in _Loader.yaml_implicit_resolvers[None])


def documents(text: str) -> list[Any]:
    """The documents of a YAML stream, like `yaml.safe_load_all`. Raises DocumentError."""
    if len(text) > SIZE_MOST:
        raise DocumentError(f": more than {SIZE_MOST} characters; split it")
    try:
        loader = _Loader(text)
        found = []
        while loader.check_data():  # type: ignore[no-untyped-call]
            found.append(loader.get_data())
        return found
    except yaml.reader.ReaderError as e:
        line = text.count("\n", 0, e.position) + 1
        raise DocumentError(f":{line}: not YAML: the character #x{ord(text[e.position]):04x} is not allowed") from None
    except yaml.YAMLError as e:
        mark, problem = getattr(e, "problem_mark", None), getattr(e, "problem", None)
        raise DocumentError(
            f"{f':{mark.line + 1}' if mark else ''}: not YAML: {problem or 'it cannot be read'}"
        ) from None
    except RecursionError:
        raise DocumentError(": not YAML: nested too deeply") from None
