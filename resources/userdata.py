"""User data as a Secret has it: plain, or compressed by gzip, which cloud-init unpacks and which makes more of it fit;
and the placeholders that are filled at each launch."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from dataclasses import dataclass

from resources.spelling import did_you_mean

PLACEHOLDER_TOKEN = "<<BOOTSTRAP_TOKEN>>"
PLACEHOLDER_NAME = "<<MACHINE_NAME>>"
UNPACKED_MOST = 1 << 20
"""Bytes; a cloud takes some tens of thousands, compressed."""
_GZIP = b"\x1f\x8b"
_GZIP_BASE64 = b"H4sI"
"""How gzip begins in base64."""
_ANY_HEADER = 32 + zlib.MAX_WBITS
_LIKE_ONE = re.compile(r"<<[ ]?[A-Za-z][A-Za-z_-]{2,30}[ ]?>>?")


class UserDataError(ValueError):
    """It is none; the message, which follows its name, says why and quotes nothing."""


@dataclass(frozen=True)
class Unpacked:
    text: str
    """Its placeholders are not filled yet. A secret."""
    compressed: bool


def unpack(data: bytes) -> Unpacked:
    """The text of user data: text, gzip, or gzip in base64 for a source that holds nothing but text. Raises
    UserDataError."""
    if data.startswith(_GZIP):
        return Unpacked(_unpacked(data), True)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UserDataError("is neither text (UTF-8) nor gzip") from None
    packed = _from_base64(data)
    return Unpacked(text, False) if packed is None else Unpacked(_unpacked(packed), True)


def doubts(text: str) -> list[str]:
    """What looks like a placeholder and is none, in words. A VM that gets it as it is does not join."""
    found = dict.fromkeys(_LIKE_ONE.findall(text))
    odd = [word for word in found if word not in (PLACEHOLDER_TOKEN, PLACEHOLDER_NAME)]
    meant = {word: did_you_mean(word.upper(), (PLACEHOLDER_TOKEN, PLACEHOLDER_NAME)) for word in odd}
    return [f"{word} is no placeholder{words}" for word, words in meant.items() if words]


def _from_base64(data: bytes) -> bytes | None:
    if not data.lstrip().startswith(_GZIP_BASE64):
        return None
    try:
        return base64.b64decode(b"".join(data.split()), validate=True)
    except binascii.Error:
        return None  # it only begins like one


def _unpacked(packed: bytes) -> str:
    unpacking = zlib.decompressobj(_ANY_HEADER)
    try:
        raw = unpacking.decompress(packed, UNPACKED_MOST)
        if unpacking.unconsumed_tail:
            raise UserDataError(f"has more than {UNPACKED_MOST} bytes when it is unpacked")
        if not unpacking.eof:
            raise UserDataError("is gzip whose end is missing")
        return raw.decode()
    except zlib.error:
        words = "begins like gzip and cannot be unpacked"
    except UnicodeDecodeError:
        words = "is gzip of something that is no text (UTF-8)"
    raise UserDataError(words)
