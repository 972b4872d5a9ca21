"""The simulated Resource Manager with the driver connected to it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from clouds.azure import AzureCloud, azure


@pytest.fixture(autouse=True)
def no_azure_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps out the credentials of the person who runs the tests."""
    for name in [n for n in os.environ if n.startswith(("AZURE_", "ARM_", "IDENTITY_", "MSI_"))]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="package")
def running() -> Iterator[AzureCloud]:
    with azure() as cloud:
        yield cloud


@pytest.fixture
def cloud(running: AzureCloud) -> Iterator[AzureCloud]:
    running.reset()
    yield running
    running.reset()
