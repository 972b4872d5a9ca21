"""How labels and network tags are written: in Google's characters, always the same way, and never two as one."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.clouds.gcp.names import LABEL_RULES, is_name, label_key, label_value, network_tag, shortened
from resources.names import MUST_PREFIXES, TAG_UID

KEY, VALUE, TAG = r"[a-z][a-z0-9_-]{0,62}", r"[a-z0-9_-]{0,63}", r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
WRITERS = [(label_key, KEY), (label_value, VALUE), (network_tag, TAG)]
TEXTS = st.one_of(
    st.text(min_size=1, max_size=120),
    st.text("aA1._/-", min_size=1, max_size=80),
    st.builds("{}{}".format, st.sampled_from([*MUST_PREFIXES, "hostler.io/"]), st.text("ab._/-", max_size=70)),
).filter(str.strip)


@pytest.mark.parametrize(("write", "form"), WRITERS)
@given(text=TEXTS)
def test_it_is_what_google_takes_and_writing_it_again_changes_nothing(
    write: Callable[[str], str], form: str, text: str
) -> None:
    written = write(text)
    assert re.fullmatch(form, written)
    assert write(written) == written
    assert written == text or not re.fullmatch(form, text)  # what Google takes stays


@pytest.mark.parametrize("write", [write for write, _ in WRITERS])
@given(texts=st.tuples(TEXTS, TEXTS))
def test_two_texts_become_one_only_where_one_is_the_other_as_google_has_it(
    write: Callable[[str], str], texts: tuple[str, str]
) -> None:
    one, other = texts
    if one != other and write(one) == write(other):
        assert write(one) in texts


ALIKE = ["a.b", "a/b", "a b", "A.b", "a:b", "a..b"]


@pytest.mark.parametrize("write", [write for write, _ in WRITERS])
def test_texts_that_look_alike_stay_apart(write: Callable[[str], str]) -> None:
    assert len({write(text) for text in ALIKE}) == len(ALIKE)
    long = ["x" * 63 + end for end in ("a", "b")]
    assert len({write(text) for text in long}) == 2


def test_what_tools_must_be_able_to_guess_has_no_digits() -> None:
    assert label_key("kubernetes.io/cluster/shoot--a--b") == "kubernetes-io-cluster-shoot--a--b"
    assert network_tag(label_key("kubernetes.io/role/node")) == "kubernetes-io-role-node"
    assert label_key(TAG_UID) == "hostler-io-uid"
    assert LABEL_RULES.must_prefixes == ("kubernetes-io-cluster-", "kubernetes-io-role-")
    long = label_key(f"kubernetes.io/cluster/{'x' * 60}")
    assert LABEL_RULES.is_must(long)
    assert len(long) == 63


def test_names_of_disks_fit() -> None:
    assert shortened("worker-1", "0-0a1b2c3d") == "worker-1-0-0a1b2c3d"
    assert is_name(shortened("w" * 63, "10-0a1b2c3d"))
