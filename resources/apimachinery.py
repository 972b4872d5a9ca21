"""Kubernetes' own rules for names, labels, annotations and taints, in its words (apimachinery, pkg/util/validation), so
that what an API server would refuse later is refused where it is written.

Each function says why a text is not valid; "" if it is.
"""

from __future__ import annotations

import re

LABEL_MOST = 63
SUBDOMAIN_MOST = 253

_LOWER = re.compile(r"[-a-z0-9]+")
_WORD = re.compile(r"[-A-Za-z0-9_.]+")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_EDGES = "and must start and end with an alphanumeric character"

_LABEL = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_EDGES} (e.g. 'my-name',  "
    "or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN = (
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_EDGES} (e.g. "
    r"'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NAME_PART = (
    f"must consist of alphanumeric characters, '-', '_' or '.', {_EDGES} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_QUALIFIED = (
    f"a qualified name must consist of alphanumeric characters, '-', '_' or '.', {_EDGES} (e.g. 'MyName',  or "
    "'my.name',  or '123-abc'), with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"{_EDGES} (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def _too_long(text: str, most: int) -> str:
    return f"must be no more than {most} characters; it has {len(text)}" if len(text) > most else ""


def _is_label(text: str) -> bool:
    return _LOWER.fullmatch(text) is not None and "-" not in (text[0], text[-1])


def _is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None and text[0].isalnum() and text[-1].isalnum()


def dns_label(text: str) -> str:
    """A namespace, for example (IsDNS1123Label)."""
    return _too_long(text, LABEL_MOST) or ("" if _is_label(text) else _LABEL)


def dns_subdomain(text: str) -> str:
    """The name of most objects (IsDNS1123Subdomain)."""
    return _too_long(text, SUBDOMAIN_MOST) or ("" if all(map(_is_label, text.split("."))) else _SUBDOMAIN)


def qualified_name(text: str) -> str:
    """The key of a label or a taint (IsQualifiedName)."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return _QUALIFIED
    if slash and not prefix:
        return "prefix part must be non-empty"
    if wrong := dns_subdomain(prefix) if slash else "":
        return f"prefix part {wrong}"
    if not name:
        return "name part must be non-empty"
    wrong = _too_long(name, LABEL_MOST) or ("" if _is_word(name) else _NAME_PART)
    return f"name part {wrong}" if wrong else ""


def annotation_key(text: str) -> str:
    """Like a label's key, in any case (ValidateAnnotations)."""
    return qualified_name(text.lower())


def label_value(text: str) -> str:
    """The value of a label or a taint (IsValidLabelValue)."""
    return _too_long(text, LABEL_MOST) or ("" if not text or _is_word(text) else _VALUE)


def config_key(text: str) -> str:
    """A key of a Secret (IsConfigMapKey)."""
    if wrong := _too_long(text, SUBDOMAIN_MOST):
        return wrong
    if text in (".", "..") or text.startswith(".."):
        return "must not be '.' or start with '..'"
    if _KEY.fullmatch(text):
        return ""
    return (
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
        "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
    )
