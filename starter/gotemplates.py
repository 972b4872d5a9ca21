"""kubectl's Go templates: `-o go-template=…`, which gotpl expands. Only reading is allowed: a template calls Go's own
functions, and kubectl's `base64decode`."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from resources.visible import visible
from starter.templates import TemplateError

if TYPE_CHECKING:
    from gotpl import Template

NAME = "output"
"""kubectl's name of the template, which its errors begin with."""
_PLACE = re.compile(r"\Atemplate:(?: output:)?(\d+):\d+: ")
_NOTHING = re.compile(r"cannot index value of type _InvalidValue")


def read(text: str) -> Callable[[Any], str]:
    """What expands the template with a document. Raises TemplateError where it cannot be read.

    A missing key is `<no value>`, as with kubectl. A text of the document shows a newline as `\\n`, so that no value
    passes for a line.
    """
    from gotpl import SandboxPolicy, Template
    from gotpl.errors import TemplateError as Fault

    functions = {"base64decode": base64decode}
    try:
        bounds = SandboxPolicy(allow_functions=functions)
        made = Template(text, name=NAME, functions=functions, sandbox=bounds)
    except Fault as e:
        raise TemplateError(f"error parsing template {text}, {_words(e)}") from None
    return lambda document: _expand(made, document)


def _expand(made: Template, document: Any) -> str:
    from gotpl.errors import TemplateError as Fault

    try:
        return made.render(_shown(document))
    except (Fault, RecursionError) as e:
        raise TemplateError(f"error executing template: {_words(e)}") from None


def base64decode(text: str) -> str:
    """kubectl's own function, for what is in a Secret."""
    try:
        return visible(base64.b64decode(text, validate=True).decode())
    except (binascii.Error, UnicodeDecodeError) as e:
        raise ValueError(f"base64 decode: {e}") from None


def _words(e: Exception) -> str:
    """The words as Go has them: `template: output:1: …`."""
    return _NOTHING.sub("index of untyped nil", _PLACE.sub(rf"template: {NAME}:\1: ", str(e) or type(e).__name__))


def _shown(value: Any) -> Any:
    """The document with texts that cannot act on a terminal."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {visible(str(k)): _shown(v) for k, v in value.items()}
    return [_shown(v) for v in value] if isinstance(value, list | tuple) else value
