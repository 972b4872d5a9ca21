"""Looks for secrets where none may be: in every byte that Temporal keeps of a workflow (I11).

A canary is found as it is, JSON- and URL-escaped, in base64 at every alignment, and in all of these inside gzip.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from lifekit import Stack
from temporalio.client import Client

GZIP = b"\x1f\x8b\x08"
BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}={0,2}")
NESTING = 3


def disguises(canary: str) -> set[bytes]:
    """The forms in which a secret can stand in a text. Base64: the part that does not depend on what is around it."""
    plain = canary.encode()
    found = {plain, json.dumps(canary)[1:-1].encode(), quote(canary, safe="").encode()}
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + plain)
        inner = encoded[4 * (shift > 0) : len(encoded) - 4]
        if len(inner) >= 8:  # a shorter one would be found everywhere
            found |= {inner, inner.replace(b"+", b"-").replace(b"/", b"_")}
    return found


def layers(data: bytes, depth: int = NESTING) -> Iterator[bytes]:
    """The bytes, and what is compressed in them, plainly or in base64."""
    yield data
    if not depth:
        return
    start = data.find(GZIP)
    while start >= 0:
        with contextlib.suppress(zlib.error):
            # Tolerates what follows, and a cut end: base64 may have lost its last characters.
            yield from layers(zlib.decompressobj(wbits=31).decompress(data[start:]), depth - 1)
        start = data.find(GZIP, start + 1)
    for match in BASE64.finditer(data):
        text = match.group().replace(b"-", b"+").replace(b"_", b"/").rstrip(b"=")
        for shift in range(4):
            piece = text[shift:]
            decoded = base64.b64decode(piece[: len(piece) // 4 * 4])
            if GZIP in decoded:
                yield from layers(decoded, depth - 1)


def found_in(canaries: Iterable[str], texts: Iterable[bytes]) -> list[str]:
    """The canaries that occur in the texts."""
    forms = {c: disguises(c) for c in canaries}
    seen = [layer for text in texts for layer in layers(text)]
    return [c for c, shapes in forms.items() if any(s in layer for s in shapes for layer in seen)]


def assert_no_canary(canaries: Iterable[str], texts: list[bytes]) -> None:
    assert texts, "nothing was searched"
    assert not (found := found_in(canaries, texts)), f"I11: {len(found)} secrets are in a history"


async def canaries_of(stack: Stack) -> list[str]:
    """The secret values of the machines' Secret: credentials, and the marked line of the user data."""
    return [stack.canary, stack.secret_key]


async def tokens_of(stack: Stack) -> list[str]:
    """The secret parts of the bootstrap tokens that exist now."""
    found = json.loads(stack.kubectl("get", "secrets", "-n", "kube-system", "-o", "json"))["items"]
    return [base64.b64decode(s["data"]["token-secret"]).decode() for s in found if "token-secret" in s.get("data", {})]


async def texts_of(client: Client, *workflow_ids: str) -> list[bytes]:
    """Every event of every run, and what describe says: pending activities with failures and heartbeats, memo."""
    texts: list[bytes] = []
    for workflow_id in workflow_ids:
        handle = client.get_workflow_handle(workflow_id)
        texts.append((await handle.describe()).raw_description.SerializeToString())
        async for event in handle.fetch_history_events():
            texts.append(event.SerializeToString())
    return texts
