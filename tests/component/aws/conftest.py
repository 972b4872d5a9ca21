"""The simulated EC2 with the driver connected to it, and a client beside the driver, as an operator has one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from clouds.aws import ROOT_DISK, Vm
from clouds.drivers import AwsCloud, aws

from simulator.clouds.ec2 import World


@pytest.fixture(autouse=True)
def no_aws_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps out profiles, keys and endpoints of the person who runs the tests; nor is an instance's metadata service
    asked."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)


@pytest.fixture(scope="package")
def running() -> Iterator[AwsCloud]:
    with aws() as cloud:
        yield cloud


@pytest.fixture
def cloud(running: AwsCloud) -> Iterator[AwsCloud]:
    running.reset()
    yield running
    running.reset()


@pytest.fixture(scope="package")
def ec2(running: AwsCloud) -> Any:
    ((key, secret),) = World().access_keys.items()
    return boto3.client(
        "ec2",
        region_name="eu-west-1",
        endpoint_url=running.endpoint,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}),
    )


@pytest.fixture
def vm(cloud: AwsCloud, ec2: Any) -> Vm:
    return Vm(cloud, ec2, blockDevices=[ROOT_DISK])
