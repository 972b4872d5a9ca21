"""A driver that counts and times its calls: what the cloud answers, and how long it takes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from temporalio.common import MetricMeter

from drivers.base import (
    CreateMachineRequest,
    DeleteMachineRequest,
    DeleteMachineResponse,
    Driver,
    GetAccountRequest,
    GetMachineStatusRequest,
    GetVolumeIDsRequest,
    GetVolumeIDsResponse,
    ListMachinesRequest,
    ListMachinesResponse,
    MachineStatus,
    Making,
    Request,
    UpdateMachineRequest,
    UpdateMachineResponse,
)
from drivers.errors import DriverError, Unimplemented
from resources.errors import ErrorClass

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Request)
T = TypeVar("T")

FINE = ""
UNIMPLEMENTED = "unimplemented"
"""Not the exception's class, which is `invalid`: a cloud that has nothing to update is no trouble."""
DEFECT = "defect"
"""Any exception but a DriverError, which the contract does not allow: an error in the driver's own code."""
HOT_UPDATE = "hot_update"
"""One method of the driver does two things; the post-start update, done once, keeps the method's name."""


class MeteredDriver:
    """The driver behind `hostler_driver_calls` and `hostler_driver_call_duration`; it changes no answer and no error.

    A call is measured in the thread that makes it: without the wait for a thread, and even when its activity has been
    cancelled meanwhile, for the cloud was called all the same.
    """

    def __init__(self, provider: str, driver: Driver, meter: MetricMeter) -> None:
        self._provider = provider
        self._driver = driver
        self._calls = meter.create_counter("hostler_driver_calls", "Calls of drivers by error class")
        self._durations = meter.create_histogram_timedelta(
            "hostler_driver_call_duration", "How long calls of drivers took, failed ones too"
        )

    def create_machine(self, request: CreateMachineRequest) -> MachineStatus | Making:
        return self._measure(self._driver.create_machine, request)

    def update_machine(self, request: UpdateMachineRequest) -> UpdateMachineResponse:
        hot = request.last_applied_provider_spec is not None
        return self._measure(self._driver.update_machine, request, HOT_UPDATE if hot else "")

    def delete_machine(self, request: DeleteMachineRequest) -> DeleteMachineResponse:
        return self._measure(self._driver.delete_machine, request)

    def get_machine_status(self, request: GetMachineStatusRequest) -> MachineStatus:
        return self._measure(self._driver.get_machine_status, request)

    def list_machines(self, request: ListMachinesRequest) -> ListMachinesResponse:
        return self._measure(self._driver.list_machines, request)

    def get_account(self, request: GetAccountRequest) -> str:
        return self._measure(self._driver.get_account, request)

    def get_volume_ids(self, request: GetVolumeIDsRequest) -> GetVolumeIDsResponse:
        return self._measure(self._driver.get_volume_ids, request)

    def _measure(self, method: Callable[[R], T], request: R, operation: str = "") -> T:
        started, error_class = time.monotonic(), DEFECT
        try:
            answer = method(request)
            error_class = FINE
            return answer
        except DriverError as e:
            error_class = UNIMPLEMENTED if isinstance(e, Unimplemented) else str(e.error_class)
            if e.error_class is ErrorClass.UNKNOWN:
                words = (
                    "%s: %s failed with the code %s, which no table of errors has; it is tried again with long waits"
                )
                log.warning(words, self._provider, method.__name__, e.provider_code or "(none)")
            raise
        finally:
            labels = {"provider": self._provider, "operation": operation or method.__name__}
            self._calls.add(1, {**labels, "error_class": error_class})
            self._durations.record(timedelta(seconds=time.monotonic() - started), labels)
