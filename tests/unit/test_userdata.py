"""User data as a Secret has it (activities/userdata.py)."""

from __future__ import annotations

import base64
import gzip

import pytest
from pydantic import SecretBytes, SecretStr

from activities.secrets import SecretData, SecretMissing
from activities.userdata import UNPACKED_MOST, user_data_of
from drivers.errors import DriverError
from resources.errors import ErrorClass
from resources.machine.manifest import SecretRef

REF = SecretRef(name="s")
TEXT = "#cloud-config\n# canary <<BOOTSTRAP_TOKEN>> äöü\n"
PACKED = gzip.compress(TEXT.encode())


def of(value: str | bytes) -> SecretData:
    if isinstance(value, str):
        return SecretData(version="1", values={"userData": SecretStr(value)})
    return SecretData(version="1", values={}, binary={"userData": SecretBytes(value)})


@pytest.mark.parametrize(
    ("value", "compressed"),
    [
        (TEXT, False),
        (PACKED, True),
        (base64.b64encode(PACKED).decode(), True),
        (base64.encodebytes(PACKED).decode(), True),
    ],
    ids=["text", "gzip", "base64", "base64 in lines"],
)
def test_what_user_data_may_be(value: str | bytes, compressed: bool) -> None:
    found = user_data_of(of(value), REF)
    assert (found.text.get_secret_value(), found.compressed) == (TEXT, compressed)


def test_text_that_only_begins_like_gzip_in_base64_is_text() -> None:
    assert not user_data_of(of("H4sI is how it begins"), REF).compressed


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\xff\xfe", "is neither text"),
        (PACKED[:-9], "whose end is missing"),
        (b"\x1f\x8b\x08canary", "cannot be unpacked"),
        (gzip.compress(b"\xff\xfe"), "is gzip of something that is no text"),
        (gzip.compress(b" " * (UNPACKED_MOST + 1)), f"has more than {UNPACKED_MOST} bytes"),
    ],
    ids=["neither text nor gzip", "cut off", "only a header", "no text inside", "too much inside"],
)
def test_what_cannot_be_user_data_is_said_without_quoting_it(value: bytes, words: str) -> None:
    with pytest.raises(DriverError, match=words) as wrong:
        user_data_of(of(value), REF)
    assert wrong.value.error_class is ErrorClass.INVALID
    assert "Secret default/s: its userData" in wrong.value.message
    assert "canary" not in wrong.value.message


def test_none_is_missing() -> None:
    with pytest.raises(SecretMissing, match="has no key 'userData'"):
        user_data_of(SecretData(version="1", values={}), REF)
