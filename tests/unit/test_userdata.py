"""User data as a Secret has it (resources/userdata.py, activities/userdata.py)."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path

import pytest
from pydantic import SecretBytes, SecretStr

from activities.secrets import SecretData, SecretMissing
from activities.userdata import user_data_of
from drivers.errors import DriverError
from resources.errors import ErrorClass
from resources.machine.manifest import SecretRef
from resources.settings import SecretsSettings, Settings
from resources.userdata import UNPACKED_MOST, doubts
from starter.sdk.secrets import Needed, look

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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("join <<BOOTSTRAP_TOKEN>> <<MACHINE_NAME>>", []),
        ("join <<BOOTSTRAP_TOKN>>", ["<<BOOTSTRAP_TOKN>>"]),
        ("join <<bootstrap_token>>", ["<<bootstrap_token>>"]),
        ("join << BOOTSTRAP_TOKEN >> <<MACHINE-NAME>>", ["<< BOOTSTRAP_TOKEN >>", "<<MACHINE-NAME>>"]),
        ("join <<BOOTSTRAP_TOKEN>", ["<<BOOTSTRAP_TOKEN>"]),
        ("cat <<EOF >>file\n<<CUSTOM_THING>>", []),
    ],
)
def test_a_misspelled_placeholder_is_doubted(text: str, said: list[str]) -> None:
    assert [line.partition(" is no placeholder; did you mean ")[0] for line in doubts(text)] == said


def test_none_is_missing() -> None:
    with pytest.raises(SecretMissing, match="has no key 'userData'"):
        user_data_of(SecretData(version="1", values={}), REF)


async def test_the_look_of_apply_says_what_no_vm_can_join_with(tmp_path: Path) -> None:
    """In a Secret that is there already: nothing that is in it is said."""
    settings = Settings(secrets=SecretsSettings(source="directory", directory=tmp_path))
    wanted = {name: Needed("default", name, "userData") for name in ("good", "odd", "broken", "none")}
    for name, value in {"good": TEXT.encode(), "odd": b"canary <<BOOTSTRAP_TOKN>>", "broken": PACKED[:-9]}.items():
        (tmp_path / "default" / name).mkdir(parents=True)
        (tmp_path / "default" / name / "userData").write_bytes(value)
    found = await look(settings, wanted.values())
    assert found.missing.keys() == {wanted["none"]}
    assert found.odd.keys() == {wanted["odd"], wanted["broken"]}
    assert "did you mean <<BOOTSTRAP_TOKEN>>" in found.odd[wanted["odd"]]
    assert "gzip whose end is missing" in found.odd[wanted["broken"]]
    assert not any("canary" in words for words in found.odd.values())
