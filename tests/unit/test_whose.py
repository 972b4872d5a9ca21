"""The owner of a Node, which one counts where a VM has several, and when one is provably nobody's: a row for each
cell."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.kube.whose import Rival, Whose, alive, the_one, whose

VM, SPELLED, OTHER_VM = "aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-1", "aws:///eu-west-1/i-2"
NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


def node(provider_id: str = "", uid: str = "u-1") -> dict[str, Any]:
    return {"metadata": {"name": "n-1", "uid": uid}, "spec": {"providerID": provider_id} if provider_id else {}}


# -- whose it is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "uid", "ours", "known", "expected"),
    [
        (VM, "u-1", VM, "u-1", Whose.OURS),
        (SPELLED, "u-1", VM, "u-1", Whose.OURS),  # the cloud-controller-manager writes the zone
        (VM, "u-2", VM, "u-1", Whose.OURS),  # it has registered again
        (VM, "u-1", VM, "", Whose.OURS),  # it never joined
        (OTHER_VM, "u-2", VM, "u-1", Whose.ANOTHERS),  # the name was reused (MCM #633)
        (OTHER_VM, "u-2", VM, "", Whose.ANOTHERS),
        (OTHER_VM, "u-1", VM, "u-1", Whose.ANOTHERS),
        (OTHER_VM, "u-1", None, "u-1", Whose.ANOTHERS),
        (VM, "u-1", None, "", Whose.ANOTHERS),  # a machine without a VM has no Node
        ("", "u-1", VM, "u-1", Whose.OURS),
        ("", "u-1", None, "u-1", Whose.OURS),
        ("", "u-2", VM, "u-1", Whose.UNSURE),
        ("", "u-1", VM, "", Whose.UNSURE),
        ("", "u-1", VM, None, Whose.UNSURE),
        ("", "", VM, "", Whose.UNSURE),  # two that say nothing are not the same
        ("", "u-1", None, None, Whose.UNSURE),
    ],
)
def test_whose(theirs: str, uid: str, ours: str | None, known: str | None, expected: Whose) -> None:
    assert whose(node(theirs, uid), ours, known) is expected


# -- which one counts --------------------------------------------------------------------------------------------------


def rival(name: str, ready: bool = True, silent: bool = False, age: int = 0) -> Rival:
    return Rival(name, f"u-{name}", NOW - timedelta(hours=age), ready, silent)


@pytest.mark.parametrize(
    ("rivals", "known", "expected"),
    [
        pytest.param([rival("real", age=9), rival("twin", ready=False)], {"u-real"}, "real", id="an empty twin"),
        pytest.param([rival("real", age=9), rival("twin", ready=False)], {"u-twin"}, "real", id="known or not"),
        pytest.param([rival("real", age=9), rival("twin", ready=False)], set(), "real", id="nobody knows either"),
        pytest.param([rival("real", age=9), rival("twin")], {"u-real"}, "real", id="both live: the known one"),
        pytest.param([rival("old", ready=False, age=9), rival("new")], {"u-old"}, "new", id="re-registered"),
        pytest.param([rival("old", silent=True, age=9), rival("new")], {"u-old"}, "new", id="its Lease has stopped"),
        pytest.param(
            [rival("old", silent=True, age=9), rival("new", ready=False)], {"u-old"}, "old", id="neither: the known one"
        ),
        pytest.param(
            [rival("old", ready=False, age=9), rival("new", silent=True)], {"u-old"}, "old", id="both are dead"
        ),
        pytest.param([rival("old", age=9), rival("new")], set(), "new", id="both live, unknown: the newer"),
        pytest.param([rival("a"), rival("b")], set(), "b", id="of the same second: the name"),
        pytest.param([rival("only", ready=False)], set(), "only", id="one alone"),
    ],
)
def test_the_one(rivals: list[Rival], known: set[str], expected: str) -> None:
    for order in itertools.permutations(rivals):
        assert the_one(order, known).name == expected


def test_no_newcomer_that_is_not_ready_displaces_one_that_is() -> None:
    """This covers all cells."""
    for silent, age, known in itertools.product((False, True), (1, 9), (set(), {"u-new"}, {"u-old"})):
        assert the_one([rival("old", age=5), rival("new", ready=False, silent=silent, age=age)], known).name == "old"


# -- provably nobody's -------------------------------------------------------------------------------------------------

LONG, SHORT = NOW - timedelta(hours=1), NOW - timedelta(minutes=9)
TEN = timedelta(minutes=10)


def stale(
    made: datetime = LONG, ready: str = "", written: datetime | None = None, changed: datetime | None = None
) -> Any:
    condition = {
        "type": "Ready",
        "status": ready,
        "lastHeartbeatTime": rfc(written),
        "lastTransitionTime": rfc(changed),
    }
    conditions = [{k: v for k, v in condition.items() if v}] if ready else []
    return {"metadata": {"name": "n-1", "creationTimestamp": rfc(made)}, "status": {"conditions": conditions}}


def rfc(time: datetime | None) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ") if time else ""


@pytest.mark.parametrize(
    ("found", "renewed", "why"),
    [
        pytest.param(stale(), None, "", id="nothing was ever heard of it"),
        pytest.param(stale(ready="Unknown", written=LONG, changed=LONG), LONG, "", id="silent for long"),
        pytest.param(stale(made=SHORT), None, "showed life at 2030-01-01 11:51:00 UTC, less than 10m ago", id="young"),
        pytest.param(stale(), SHORT, "showed life at 2030-01-01 11:51:00 UTC, less than 10m ago", id="its Lease"),
        pytest.param(stale(ready="Unknown", written=SHORT), LONG, "showed life at", id="its status"),
        pytest.param(stale(ready="Unknown", changed=SHORT), LONG, "showed life at", id="it was Ready until then"),
        # Nobody's clock but its own says that it is old: the control plane sees its Lease move, or is not there.
        pytest.param(stale(ready="True", written=LONG, changed=LONG), LONG, "says that Ready is True", id="Ready"),
        pytest.param(stale(ready="False", written=LONG, changed=LONG), LONG, "says that Ready is False", id="ill"),
    ],
)
def test_alive(found: dict[str, Any], renewed: datetime | None, why: str) -> None:
    said = alive(found, renewed, NOW, TEN)
    assert said == "" if not why else why in said
