"""Credentials of a Secret, of the environment and of a web identity; clients and endpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_helpers import secret
from driver_clouds import AwsCloud, calls, machine
from pydantic import SecretStr

from drivers.aws.calls import Clients
from drivers.aws.credentials import from_secret
from drivers.base import (
    Driver,
    DriverSettings,
    load_driver,
)
from drivers.errors import DriverError
from resources.errors import ErrorClass
from simulator.ec2 import World


def test_both_spellings_of_a_key_pair(cloud: AwsCloud) -> None:
    ((key, value),) = World().access_keys.items()
    given = machine(cloud)
    for pair in (
        secret(accessKeyID=key, secretAccessKey=value, userData="x"),
        secret(providerAccessKeyId=key, providerSecretAccessKey=value),
    ):
        assert cloud.driver.list_machines(given.listing(secret=pair)).machines == []
    assert {c.caller for c in calls(cloud)} == {key}


PARTIAL: list[tuple[dict[str, SecretStr], str]] = [
    (secret(accessKeyID="canary"), "secretAccessKey is missing"),
    (secret(secretAccessKey="canary"), "accessKeyID is missing"),
    (secret(accessKeyID="canary", secretAccessKey=""), "secretAccessKey is missing"),
    (secret(roleARN="canary"), "workloadIdentityTokenFile is missing"),
    (secret(workloadIdentityTokenFile="canary"), "roleARN is missing"),
    (secret(AccessKey="canary", userData="x"), "it holds AccessKey"),
]


@pytest.mark.parametrize(("given", "words"), PARTIAL, ids=[w for _, w in PARTIAL])
def test_a_partial_secret_is_an_auth_error_that_names_the_key(given: dict[str, SecretStr], words: str) -> None:
    with pytest.raises(DriverError, match=words) as refused:
        from_secret(given)
    assert refused.value.error_class is ErrorClass.AUTH
    assert "canary" not in str(refused.value)


def test_without_credentials_the_default_chain_serves(cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    ((key, value),) = World().access_keys.items()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", value)
    fresh = cloud.driver_with(DriverSettings())
    given = machine(cloud)
    assert fresh.list_machines(given.listing(secret=secret(userData="x"))).machines == []
    assert [c.caller for c in calls(cloud)] == [key]


def test_no_credentials_anywhere_is_an_auth_error(cloud: AwsCloud) -> None:
    fresh = cloud.driver_with(DriverSettings())
    with pytest.raises(DriverError, match="accessKeyID and secretAccessKey") as refused:
        fresh.list_machines(machine(cloud).listing(secret={}))
    assert refused.value.error_class is ErrorClass.AUTH


def web_identity(path: Path) -> dict[str, SecretStr]:
    ((role, _),) = World().web_identities.items()
    return secret(workloadIdentityTokenFile=str(path), roleARN=role)


def test_a_web_identity_assumes_its_role(cloud: AwsCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/of-the-worker")  # must not win
    ((_, token),) = World().web_identities.items()
    file = tmp_path / "token"
    file.write_text(token)
    given = machine(cloud)
    fresh = cloud.driver_with(DriverSettings())
    made = fresh.create_machine(given.creation(secret=web_identity(file)))
    fresh.get_machine_status(given.status(made.provider_id, secret=web_identity(file)))
    assert len(calls(cloud, "AssumeRoleWithWebIdentity")) == 1
    (launch,) = calls(cloud, "RunInstances")
    assert launch.caller.startswith("ASIA")


def test_a_web_identity_that_is_refused_or_unreadable(cloud: AwsCloud, tmp_path: Path) -> None:
    file = tmp_path / "token"
    given = machine(cloud)
    fresh = cloud.driver_with(DriverSettings())
    with pytest.raises(DriverError, match="workloadIdentityTokenFile cannot be read") as unreadable:
        fresh.list_machines(given.listing(secret=web_identity(file)))
    assert unreadable.value.error_class is ErrorClass.AUTH
    file.write_text("canary-token")
    with pytest.raises(DriverError, match="InvalidIdentityToken") as refused:
        fresh.list_machines(given.listing(secret=web_identity(file)))
    assert refused.value.error_class is ErrorClass.AUTH
    assert "canary" not in str(refused.value)


def test_clients_are_shared_and_bounded(cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivers.aws.calls.MAX_CLIENTS", 2)
    clients = Clients(DriverSettings(endpoint=cloud.endpoint))
    first = clients.get("eu-west-1", cloud.secret)
    assert clients.get("eu-west-1", cloud.secret) is first
    assert clients.get("eu-west-1", cloud.wrong_secret) is not first
    assert clients.get("eu-west-1", cloud.secret) is first
    clients.get("eu-central-1", cloud.secret)  # the third: the least recently used one goes
    assert len(clients._kept) == 2
    assert clients.get("eu-west-1", cloud.secret) is first


def test_the_endpoint_of_the_environment_serves_without_one_of_the_settings(
    cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", cloud.endpoint)
    plain: Driver = load_driver("AWS")
    assert plain.list_machines(machine(cloud).listing()).machines == []
    assert len(calls(cloud)) == 1
