"""What a worker refuses before it polls anything."""

from __future__ import annotations

from typing import cast

import pytest
from temporalio.client import Client

import worker
from resources.settings import CloudSettings, Settings, SettingsError


async def test_a_cloud_without_a_driver_is_refused() -> None:
    settings = Settings(clouds={"awss": CloudSettings(calls_per_second=5)})
    with pytest.raises(SettingsError, match=r"clouds\.awss: there is no driver for it; .* did you mean aws\?"):
        async with worker.running(cast(Client, None), settings):
            pass
