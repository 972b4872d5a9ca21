"""How arguments, results and failures are written: pydantic JSON, and classified failures without a stack trace.

Their message says it all; a trace of our own boundary would only hide it in the web UI, and Python quotes source lines.
An unforeseen error keeps its trace.

This module also defines how a message is refused before Temporal's SDK has decoded it (workflows/inbound.py): as a
payload with an encoding of its own, which raises the words when it is decoded. One from outside has an unknown
encoding.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import (
    CompositePayloadConverter,
    DefaultFailureConverter,
    EncodingPayloadConverter,
    PayloadConverter,
)
from temporalio.exceptions import ApplicationError

from resources.errors import IDEMPOTENCY, MISSING_CREDENTIALS, NAME_TAKEN, NOT_YET, ErrorClass

REFUSED = "Refused"
"""The failure type of what is not taken; its message says why."""
REFUSAL_ENCODING = "hostler/refused"
_OURS = os.urandom(16)
"""Marks this process's own refusals: one from outside, as an activity's result, would end the workflow."""
CLASSIFIED = {REFUSED, NOT_YET, IDEMPOTENCY, NAME_TAKEN, MISSING_CREDENTIALS, *map(str, ErrorClass)}


class FailureConverter(DefaultFailureConverter):
    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        if not isinstance(exception, ApplicationError) or exception.type not in CLASSIFIED:
            return super().to_failure(exception, payload_converter, failure)
        # To write a trace takes a millisecond and more: it is put aside, and not written to be thrown away.
        trace, exception.__traceback__ = exception.__traceback__, None
        try:
            super().to_failure(exception, payload_converter, failure)
        finally:
            exception.__traceback__ = trace
        failure.stack_trace = ""  # of one that has come from elsewhere, and is passed on as it was written there


def refusal_payload(words: str) -> Payload:
    return Payload(metadata={"encoding": REFUSAL_ENCODING.encode(), "by": _OURS}, data=words.encode())


class _Refusal(EncodingPayloadConverter):
    encoding = REFUSAL_ENCODING

    def to_payload(self, value: Any) -> Payload | None:
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """Raises ApplicationError of type REFUSED. The SDK gives it to the sender of an update or a query, and ends a
        workflow that was started that way."""
        if payload.metadata.get("by") != _OURS:
            raise KeyError(f"Unknown payload encoding {REFUSAL_ENCODING}")
        raise ApplicationError(payload.data.decode(errors="replace"), type=REFUSED, non_retryable=True)


class Converter(CompositePayloadConverter):
    def __init__(self) -> None:
        super().__init__(*PydanticPayloadConverter().converters.values(), _Refusal())


data_converter = replace(
    pydantic_data_converter, payload_converter_class=Converter, failure_converter_class=FailureConverter
)
