"""What a pass of a deletion makes of the operations of the pass before."""

from __future__ import annotations

import pytest

from drivers.errors import OperationFailed
from drivers.operations import Course, Deletions
from resources.errors import BegunOperation, ErrorClass

BEGUN = BegunOperation(call="Disks_Delete", what="disk-1", address="1")


@pytest.mark.parametrize(("course", "goes_on"), [(Course.GOES_ON, True), (Course.OVER, False), (Course.UNKNOWN, False)])
def test_what_goes_on_is_told_the_next_pass_too(course: Course, goes_on: bool) -> None:
    asked: list[BegunOperation] = []

    def ask(begun: BegunOperation) -> Course:
        asked.append(begun)
        return course

    deletions = Deletions([BEGUN], ask)
    assert deletions.goes_on("disk-1") is goes_on
    assert deletions.goes_on("disk-2") is False
    assert (asked, deletions.begun) == ([BEGUN], [BEGUN] if goes_on else [])


@pytest.mark.parametrize("cls", ErrorClass)
def test_one_that_found_nothing_has_not_failed(cls: ErrorClass) -> None:
    def ask(begun: BegunOperation) -> Course:
        raise OperationFailed(cls, "words", provider_code="code")

    deletions = Deletions([BEGUN], ask)
    if cls is ErrorClass.NOT_FOUND:
        assert deletions.goes_on("disk-1") is False
    else:
        with pytest.raises(OperationFailed, match="words"):
            deletions.goes_on("disk-1")
    assert deletions.begun == []


def test_what_is_seen_to_go_costs_no_call() -> None:
    def ask(begun: BegunOperation) -> Course:
        raise AssertionError

    deletions = Deletions([BEGUN], ask)
    deletions.keep("disk-1")
    deletions.keep("disk-2")
    assert deletions.begun == [BEGUN]


@pytest.mark.parametrize(
    ("found", "read"),
    [
        (BEGUN.model_dump(mode="json"), BEGUN),
        (None, None),
        ("1", None),
        ({"call": "Disks_Delete"}, None),
        ({**BEGUN.model_dump(), "address": "x" * 4001}, None),
    ],
)
def test_a_heartbeat_that_somebody_else_wrote_is_as_if_there_were_none(
    found: object, read: BegunOperation | None
) -> None:
    assert BegunOperation.read(found) == read
