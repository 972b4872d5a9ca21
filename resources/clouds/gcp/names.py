"""How labels, network tags and providerIDs are written on Google Cloud (docs/gcp.md, *Labels and network tags*).

What Google takes as it is stays as it is. Anything else is written in the characters that Google takes, and ends with
eight digits of its SHA-256, so that two texts never become one: `a.b` and `a/b` are different labels. Only the keys
that tools must be able to guess have no digits: those of Gardener's must-tags and our own, `kubernetes.io/cluster/x` is
`kubernetes-io-cluster-x`.
"""

from __future__ import annotations

import hashlib
import re

from resources.clouds.base import ProviderIDs, TagRules
from resources.names import MUST_PREFIXES

LENGTH = 63
"""The most characters of a label's key, a label's value, a network tag, and the name of a VM or a disk."""
LABELS_MOST = 64
"""Labels of a resource (Google Cloud, *Requirements for labels*)."""
NETWORK_TAGS_MOST = 64
"""Network tags of a VM (Google Cloud, *Restrictions* of network tags)."""
_DIGITS = 8
_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_KNOWN = (*MUST_PREFIXES, "hostler.io/")


def label_key(text: str) -> str:
    """A label's key: lower-case letters, digits, `_` and `-`, beginning with a letter."""
    for prefix in _KNOWN:
        written = re.sub(r"[./]", "-", prefix)
        if text.startswith(prefix) and _KEY.fullmatch(written + text.removeprefix(prefix)):
            return written + text.removeprefix(prefix)
        if text.startswith(prefix):
            return _digested(text, written + _replaced(text.removeprefix(prefix), "_"))
    if not text.strip() or _KEY.fullmatch(text):
        return text
    written = _replaced(text, "_")
    return _digested(text, written if written[0].isalpha() else f"k{written}")


def label_value(text: str) -> str:
    """A label's value: lower-case letters, digits, `_` and `-`; it may be empty."""
    return text if _VALUE.fullmatch(text) else _digested(text, _replaced(text, "_"))


def network_tag(text: str) -> str:
    """A network tag: a name as RFC 1035 has it, lower-case letters, digits and `-`."""
    if not text.strip() or is_name(text):
        return text
    written = _replaced(text, "-").replace("_", "-")
    return _digested(text, written if written[0].isalpha() else f"t{written}")


def is_name(text: str) -> bool:
    """Whether a VM, a disk or a network tag may have this name (RFC 1035, 63 characters)."""
    return _NAME.fullmatch(text) is not None


def shortened(text: str, ending: str) -> str:
    """A resource's name: `text`, cut where that is needed, and `ending`."""
    return f"{text[: LENGTH - len(ending) - 1].rstrip('-')}-{ending}"


def _replaced(text: str, by: str) -> str:
    return re.sub(r"[^a-z0-9_-]", by, text.lower())


def _digested(text: str, written: str) -> str:
    digits = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_DIGITS]
    return f"{written[: LENGTH - _DIGITS - 1]}-{digits}"


LABEL_RULES = TagRules(
    limit=LABELS_MOST, key=label_key, value=label_value, key_length=LENGTH, value_length=LENGTH, uncounted=("goog-",)
)
"""Labels of Google's own begin with `goog-`."""


# -- providerIDs -------------------------------------------------------------------------------------------------------


def _key(provider_id: str) -> str:
    """Gardener writes `gce:///<project>/<zone>/<name>`, the cloud-controller-manager `gce://<project>/<zone>/<name>`.
    A name is unique in its project and zone."""
    return f"gce/{provider_id.partition('://')[2].strip('/')}"


def _indexed(provider_id: str) -> str:
    return f"gce:///{provider_id.partition('://')[2].strip('/')}"


IDS = ProviderIDs("gce", _key, _indexed)
