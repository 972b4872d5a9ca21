"""Failures as they are kept: ours without a stack trace, unforeseen ones with it."""

from __future__ import annotations

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ApplicationError

from resources.converter import data_converter, refusal_payload
from resources.errors import NOT_YET, ErrorClass, ErrorInfo


async def kept(error: Exception) -> Failure:
    failure = Failure()
    try:
        raise error
    except Exception as e:
        await data_converter.encode_failure(e, failure)
    return failure


@pytest.mark.parametrize("kind", [NOT_YET, str(ErrorClass.CAPACITY)])
async def test_a_classified_failure_has_no_stack_trace(kind: str) -> None:
    failure = await kept(ApplicationError("3 of 7 pods gone", ErrorInfo(message="m"), type=kind))
    assert failure.message == "3 of 7 pods gone"
    assert failure.stack_trace == ""
    assert failure.application_failure_info.details.payloads


async def test_the_error_itself_keeps_its_trace() -> None:
    """It may be logged afterwards, or raised again."""
    error = ApplicationError("3 of 7 pods gone", type=NOT_YET)
    await kept(error)
    assert error.__traceback__ is not None


async def test_an_unforeseen_error_keeps_its_trace() -> None:
    assert "in kept" in (await kept(ValueError("a bug"))).stack_trace
    assert "in kept" in (await kept(ApplicationError("a bug", type="ValueError"))).stack_trace


def test_a_refusal_from_outside_is_of_no_known_encoding() -> None:
    """Its message would end a workflow that takes it for an activity's result."""
    ours = refusal_payload("no")
    forged = Payload(metadata={"encoding": ours.metadata["encoding"]}, data=ours.data)
    with pytest.raises(ApplicationError, match="no"):
        data_converter.payload_converter.from_payload(ours)
    with pytest.raises(KeyError, match="Unknown payload encoding"):
        data_converter.payload_converter.from_payload(forged)
