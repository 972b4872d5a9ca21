"""How arguments, results and failures are written: pydantic JSON, and classified failures without a stack trace.

Their message says it all; a trace of our own boundary would only hide it in the web UI, and Python quotes source
lines. An error that nobody foresaw keeps its trace.
"""

from __future__ import annotations

from dataclasses import replace

from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DefaultFailureConverter, PayloadConverter
from temporalio.exceptions import ApplicationError

from resources.errors import IDEMPOTENCY, MISSING_CREDENTIALS, NAME_TAKEN, NOT_YET, ErrorClass

CLASSIFIED = {NOT_YET, IDEMPOTENCY, NAME_TAKEN, MISSING_CREDENTIALS, *map(str, ErrorClass)}


class FailureConverter(DefaultFailureConverter):
    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        super().to_failure(exception, payload_converter, failure)
        if isinstance(exception, ApplicationError) and exception.type in CLASSIFIED:
            failure.stack_trace = ""


data_converter = replace(pydantic_data_converter, failure_converter_class=FailureConverter)
