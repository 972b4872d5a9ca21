"""A large table of texts as one short text, for payloads: Temporal takes 2 MiB, and names of nodes and machines are
very similar. A person reads it with `base64 -d | gunzip`."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, PlainSerializer

from resources.base import Key

T = TypeVar("T", str, str | None)
LEVEL = 6
MOST = 32 << 20
"""The most bytes of an unpacked table: 20,000 nodes with the longest names possible have fewer."""
FEW = 500
"""The most entries that travel as they are, so that people can read them, and older workers too."""


def pack(table: Mapping[str, T]) -> str:
    """The table as text; an empty text for an empty table. The same table gives the same text, in whatever order it was
    filled."""
    if not table:
        return ""
    plain = json.dumps(table, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(gzip.compress(plain.encode(), LEVEL, mtime=0)).decode()


def unpack(text: str) -> dict[str, Any]:
    """The table from `pack`. Raises ValueError for anything else."""
    if not text:
        return {}
    try:
        plain = zlib.decompressobj(wbits=31)  # of gzip
        content = plain.decompress(base64.b64decode(text), MOST)
    except zlib.error as e:
        raise ValueError(f"not a packed table: {e}") from None
    if not plain.eof:
        raise ValueError(f"not a packed table: it is truncated, or has more than {MOST} bytes")
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError("not a packed table")
    return found


def opened(value: Any) -> Any:
    """A table, whether it travelled packed or not; the table is a copy."""
    return unpack(value) if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else value


def closed(table: dict[str, str]) -> dict[str, str] | str:
    """The table, packed if it is large."""
    return table if len(table) <= FEW else pack(table)


Packed = Annotated[dict[Key, Key], BeforeValidator(opened), PlainSerializer(closed, when_used="json")]
"""A table that is packed on the wire if it is large."""
