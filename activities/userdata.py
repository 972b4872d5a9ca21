"""User data as a Secret has it: plain, or compressed by gzip, which cloud-init unpacks and which makes more of it fit.

Compressed user data is unpacked here, so that its placeholders are filled like any other's, and compressed again by the
driver.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass

from pydantic import SecretStr

from activities.secrets import SecretData
from drivers.errors import DriverError
from resources.errors import ErrorClass
from resources.machine.manifest import SecretRef

KEY = "userData"
UNPACKED_MOST = 1 << 20
"""Bytes; a cloud takes some tens of thousands, compressed."""
_GZIP = b"\x1f\x8b"
_GZIP_BASE64 = "H4sI"
"""How gzip begins in base64."""
_ANY_HEADER = 32 + zlib.MAX_WBITS


@dataclass(frozen=True)
class UserData:
    text: SecretStr
    """Its placeholders are not filled yet."""
    compressed: bool = False


def user_data_of(secret: SecretData, ref: SecretRef) -> UserData:
    """The Secret's user data: text, gzip, or gzip in base64 for a source that holds nothing but text.

    Raises SecretMissing where there is none, and DriverError of class invalid for what is neither.
    """
    where = f"Secret {ref.namespace}/{ref.name}: its {KEY}"
    if KEY in secret.binary:
        packed = secret.binary[KEY].get_secret_value()
        if not packed.startswith(_GZIP):
            raise DriverError(ErrorClass.INVALID, f"{where} is neither text (UTF-8) nor gzip")
        return _unpacked(packed, where)
    text = secret.require(KEY, ref)
    found = _from_base64(text.get_secret_value())
    return UserData(text) if found is None else _unpacked(found, where)


def _from_base64(text: str) -> bytes | None:
    if not text.lstrip().startswith(_GZIP_BASE64):
        return None
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        return None  # it only begins like one


def _unpacked(packed: bytes, where: str) -> UserData:
    unpacking = zlib.decompressobj(_ANY_HEADER)
    try:
        raw = unpacking.decompress(packed, UNPACKED_MOST)
        if unpacking.unconsumed_tail:
            raise DriverError(ErrorClass.INVALID, f"{where} has more than {UNPACKED_MOST} bytes when it is unpacked")
        if not unpacking.eof:
            raise DriverError(ErrorClass.INVALID, f"{where} is gzip whose end is missing")
        return UserData(SecretStr(raw.decode()), compressed=True)
    except zlib.error:
        words = f"{where} begins like gzip and cannot be unpacked"
    except UnicodeDecodeError:
        words = f"{where} is gzip of something that is no text (UTF-8)"
    raise DriverError(ErrorClass.INVALID, words)
