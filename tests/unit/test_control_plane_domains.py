"""Which failure domain each index has: OpenShift's C-F cases, and what holds for any input."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planners.control_plane.domains import Placed, assign

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def placed(domains: dict[int, str], leaving: str = "") -> list[Placed]:
    return [Placed(i, d, NOW + timedelta(seconds=i), str(i) in leaving) for i, d in domains.items()]


def in_order(domains: str) -> dict[int, str]:
    return dict(enumerate(domains))


@pytest.mark.parametrize(
    ("machines", "replicas", "domains", "leaving", "then"),
    [
        pytest.param(in_order("abc"), 3, "abc", "", in_order("abc"), id="C-F01"),
        pytest.param(in_order("bcacb"), 5, "abc", "", in_order("bcacb"), id="C-F03"),
        pytest.param(in_order("bacca"), 5, "abc", "", in_order("bacca"), id="C-F03, other machines"),
        pytest.param(in_order("abc"), 3, "a", "", in_order("aaa"), id="C-F05"),
        pytest.param(in_order("abc"), 3, "aabbc", "", in_order("abc"), id="C-F07"),
        pytest.param({3: "a", 4: "b", 5: "c"}, 3, "abc", "", {3: "a", 4: "b", 5: "c"}, id="C-F11"),
        pytest.param({0: "a", 2: "b", 4: "c"}, 3, "abc", "", {0: "a", 2: "b", 4: "c"}, id="C-F11, with gaps"),
        pytest.param(in_order("dcb"), 5, "abcde", "", {0: "d", 1: "c", 2: "b", 3: "a", 4: "e"}, id="C-F17"),
        pytest.param(in_order("baa"), 3, "abc", "", in_order("bac"), id="C-F19"),
        pytest.param(in_order("baa"), 3, "abc", "1", in_order("bca"), id="C-F19, one leaves"),
        pytest.param({0: "b", 2: "c"}, 3, "abc", "", in_order("bac"), id="C-F21"),
        pytest.param({0: "a", 3: "a", 4: "b", 5: "c"}, 3, "abc", "", {0: "a", 3: "a", 4: "b", 5: "c"}, id="C-F13"),
        pytest.param(in_order("aaa"), 3, "abc", "", in_order("abc"), id="C-F25"),
        pytest.param({}, 3, "abc", "", in_order("abc"), id="none yet"),
        pytest.param(in_order("abc"), 3, "", "", {}, id="no domains"),
    ],
)
def test_assign(machines: dict[int, str], replicas: int, domains: str, leaving: str, then: dict[int, str]) -> None:
    assert assign(placed(machines, leaving), replicas, list(domains)) == then


def test_of_two_in_an_index_the_newer_counts() -> None:
    """C-F23."""
    two = [Placed(0, "a", NOW), Placed(0, "b", NOW + timedelta(seconds=1)), Placed(1, "a", NOW), Placed(2, "c", NOW)]
    assert assign(two, 3, ["a", "b", "c"]) == {0: "b", 1: "a", 2: "c"}


def test_no_replicas_is_an_error() -> None:
    """C-F15."""
    with pytest.raises(ValueError, match="0 machines"):
        assign([], 0, ["a"])


SETS = st.dictionaries(st.integers(0, 8), st.sampled_from("abcdx"), max_size=7)


@given(SETS, st.sampled_from([3, 5]), st.lists(st.sampled_from("abcde"), min_size=1, max_size=6), st.randoms())
def test_any_input(machines: dict[int, str], replicas: int, domains: list[str], random: object) -> None:
    """Balanced, stable, and independent of the order of what is given."""
    there = placed(machines)
    made = assign(there, replicas, domains)
    assert set(made.values()) <= set(domains)
    assert len(made) == max(replicas, len(machines))
    assert made.keys() >= machines.keys()
    most = -(-len(made) // len(set(domains)))
    assert max(Counter(made.values()).values()) <= most
    assert assign(placed(made), replicas, domains) == made
    random.shuffle(there)  # type: ignore[attr-defined]
    random.shuffle(domains)  # type: ignore[attr-defined]
    assert assign(there, replicas, domains) == made
