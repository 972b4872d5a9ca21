"""Expands one Go template, in bounds, and says in which file and line it is wrong.

A template finds the fields of the ControllerConfig by the names that Go gives them (`{{.EtcdCAData}}` for `etcdCAData`)
or as they are written. One that is not there is an error: upstream writes `<no value>` into the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from resources.machine_config.keys import CONTROLLER
from resources.spelling import did_you_mean

_SKIPPED = re.compile(r"[_a-z]\w*\Z")
_MISSING = re.compile(r"missing key or attribute '(.*)'")
_LOWER = re.compile(r"[a-z]+")
_CAPITALS = re.compile(r"\A[A-Z]+(?![a-z])|\A[A-Z]")


class ConfigTemplateError(ValueError):
    """A template is wrong; the message begins with its file, and its line where one is known."""


class Variables(dict[str, Any]):
    """A table whose keys are also found by Go's names: EtcdCAData and ETCDCAData are etcdCAData, DNS is dns."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__({k: as_variables(v) for k, v in given.items()})
        self._spelled = {s: k for k in self for s in _spellings(k)} | {k: k for k in self}

    def __contains__(self, key: object) -> bool:
        return key in self._spelled

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(self._spelled[key])


def _spellings(key: str) -> tuple[str, str]:
    """The name with a capital, and with all letters before the first capital as capitals: `osImageURL` is
    OSImageURL."""
    return key[:1].upper() + key[1:], _LOWER.sub(lambda m: m[0].upper(), key, count=1)


def as_variables(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Variables(value)
    return [as_variables(v) for v in value] if isinstance(value, list | tuple) else value


# -- functions --------------------------------------------------------------------------------------------------------


def skip(key: str) -> str:
    """What is filled in later, by whoever serves the config: `{{.key}}`."""
    if not _SKIPPED.match(key):
        raise ValueError(
            f"{key!r} is not a name; it begins with a small letter or `_`, and has letters, digits and `_`"
        )
    return "{{." + key + "}}"


def indent(by: int, text: str) -> str:
    """Every line, moved to the right."""
    return "\n".join(" " * by + line for line in str(text).rstrip("\n").split("\n"))


def to_string(value: object) -> str:
    """The text; upstream's fields are bytes there, ours are text already."""
    return str(value)


def join(items: list[str], between: str) -> str:
    return between.join(map(str, items))


def url_host(url: str) -> str:
    return urlsplit(url).hostname or ""


def url_port(url: str) -> str:
    """The port, or the scheme's own."""
    parts = urlsplit(url)
    return str(parts.port or {"http": 80, "https": 443}.get(parts.scheme) or "")


FUNCTIONS: dict[str, Callable[..., object]] = {
    "indent": indent,
    "join": join,
    "skip": skip,
    "toString": to_string,
    "urlHost": url_host,
    "urlPort": url_port,
}
"""Upstream's common ones. Those that know clouds are not there: a template says what it means by its layer."""


# -- expanding --------------------------------------------------------------------------------------------------------


def expand(path: str, text: str, variables: Variables) -> str:
    """The text with its variables filled in. Raises ConfigTemplateError."""
    from gotpl import SandboxPolicy, Template
    from gotpl.errors import TemplateError as Fault
    from gotpl.errors import TemplateExecutionError, TemplateSyntaxError

    try:
        bounds = SandboxPolicy(allow_functions=FUNCTIONS)
        template = Template(text, name=path, functions=FUNCTIONS, missing_key="error", sandbox=bounds)
        return template.render(variables)
    except TemplateSyntaxError as e:
        words = re.sub(r"\Atemplate:\d+:\d+: ", "", str(e))
        raise ConfigTemplateError(f"{path}:{e.line}: {words}{_known(words)}") from None
    except TemplateExecutionError as e:
        line = f":{e.line}" if e.line else ""
        raise ConfigTemplateError(f"{path}{line}: {_explained(e.message, variables)}") from None
    except (Fault, RecursionError) as e:
        raise ConfigTemplateError(f"{path}: the template cannot be read: {type(e).__name__}") from None


def _known(words: str) -> str:
    return f"; there are Go's own and {', '.join(FUNCTIONS)}" if words.endswith("not defined") else ""


def _explained(words: str, variables: Variables) -> str:
    if not (found := _MISSING.search(words)):
        return words
    name = found[1]
    known = [s for k in variables for s in (k, k[:1].upper() + k[1:])]
    field = _CAPITALS.sub(lambda m: m[0].lower(), name, count=1)
    near = did_you_mean(name, known)
    return f"the variable {name} is missing: add {field} to the spec of the ControllerConfig {CONTROLLER}{near}"
