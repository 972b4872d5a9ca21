"""Who did not answer, as a failed call says it: for that a creation deadline stands still, and for nothing else."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from activities.boundary import translated
from activities.kube.client import KubeError
from drivers.errors import DriverError
from resources.errors import API, CLOUD, ErrorClass, ErrorInfo
from workflows.calls import Failure

TRANSIENT = ErrorClass.TRANSIENT


@pytest.mark.parametrize(
    ("error", "silent", "reason"),
    [
        pytest.param(KubeError(0, "Unreachable", "refused"), API, "APIUnreachable", id="no answer"),
        pytest.param(KubeError(503, "", "no etcd"), API, "APIUnreachable", id="a server that knows nothing"),
        pytest.param(KubeError(401, "Unauthorized", "who?"), API, "APIRefused", id="it does not know us"),
        pytest.param(KubeError(403, "Forbidden", "no"), "", "NotAuthorized", id="a right that is missing is an answer"),
        pytest.param(KubeError(429, "", "busy", 1.0), "", "Throttled", id="a busy one answers"),
        pytest.param(DriverError(TRANSIENT, "refused"), CLOUD, "ProviderUnavailable", id="no cloud"),
        pytest.param(
            DriverError(TRANSIENT, "503", provider_code="503"),
            CLOUD,
            "ProviderUnavailable",
            id="a proxy without a cloud",
        ),
        pytest.param(
            DriverError(TRANSIENT, "oops", provider_code="InternalError"), "", "ProviderUnavailable", id="its own error"
        ),
        pytest.param(DriverError(ErrorClass.CAPACITY, "none"), "", "OutOfCapacity", id="an answer"),
    ],
)
def test_who_is_silent(error: Exception, silent: str, reason: str) -> None:
    with pytest.raises(ApplicationError) as raised, translated():
        raise error
    info = raised.value.details[0]
    assert isinstance(info, ErrorInfo)
    assert info.silent == silent
    assert Failure(raised.value.type or "", info).reason == reason
