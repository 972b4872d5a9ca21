"""Credentials of a Secret, of the environment and of a web identity; clients and endpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from clouds.aws import secret
from clouds.drivers import AwsCloud, calls, fault, machine, mark
from pydantic import SecretStr

from drivers.aws.calls import Clients
from drivers.aws.credentials import from_secret
from drivers.base import Driver, DriverSettings, load_driver
from drivers.errors import DriverError
from resources.errors import ErrorClass
from simulator.clouds.ec2 import World


def test_both_spellings_of_a_key_pair(cloud: AwsCloud) -> None:
    ((key, value),) = World().access_keys.items()
    given = machine(cloud)
    for pair in (
        secret(accessKeyID=key, secretAccessKey=value, userData="x"),
        secret(providerAccessKeyId=key, providerSecretAccessKey=value),
        secret(aws_access_key_id=key, aws_secret_access_key=value),  # OpenShift's
    ):
        assert cloud.driver.list_machines(given.listing(secret=pair)).machines == []
    assert {c.caller for c in calls(cloud)} == {key}


PARTIAL: list[tuple[dict[str, SecretStr], str]] = [
    (secret(accessKeyID="canary"), "secretAccessKey is missing"),
    (secret(secretAccessKey="canary"), "accessKeyID is missing"),
    (secret(accessKeyID="canary", secretAccessKey=""), "secretAccessKey is missing"),
    (secret(aws_access_key_id="canary"), "aws_secret_access_key is missing, although it has aws_access_key_id"),
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
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/of-the-worker")  # this must not win
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


# -- credentials that change ---------------------------------------------------------------------------------------


def test_a_rotated_secret_serves_at_the_next_call(cloud: AwsCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    rotated = cloud.rotate("AKIAHOSTLERROTATED01")
    assert cloud.driver.get_machine_status(given.status(made.provider_id, secret=rotated)).account_id == cloud.account
    seen = mark(cloud)
    with pytest.raises(DriverError, match="AuthFailure"):
        cloud.driver.get_machine_status(given.status(made.provider_id))
    assert len(calls(cloud, since=seen)) == 1  # a key pair that was refused is not asked again


def test_a_profile_that_was_rewritten_serves_once_its_former_keys_are_refused(
    cloud: AwsCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))

    def write(pair: dict[str, SecretStr]) -> None:
        key, value = (v.get_secret_value() for v in pair.values())
        file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {value}\n")

    write(cloud.secret)
    fresh, given = cloud.driver_with(DriverSettings()), machine(cloud)
    listing = given.listing(secret=secret(userData="x"))
    assert fresh.list_machines(listing).machines == []
    rotated = cloud.rotate("AKIAHOSTLERROTATED02")
    with pytest.raises(DriverError, match="AuthFailure"):  # read again once, and they are the same
        fresh.list_machines(listing)
    write(rotated)
    seen = mark(cloud)
    assert fresh.list_machines(listing).machines == []
    assert fresh.get_account(given.whose(secret=secret(userData="x"))) == cloud.account
    assert [(c.error, c.caller) for c in calls(cloud, "DescribeInstances", since=seen)] == [
        ("AuthFailure", cloud.secret["accessKeyID"].get_secret_value()),
        (None, "AKIAHOSTLERROTATED02"),
    ]


@pytest.fixture(params=["web identity", "profile"])
def role(
    request: pytest.FixtureRequest, cloud: AwsCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, SecretStr], str]:
    """A Secret whose credentials are those of a role, and the operation that assumes it."""
    if request.param == "web identity":
        ((_, token),) = World().web_identities.items()
        (tmp_path / "token").write_text(token)
        return web_identity(tmp_path / "token"), "AssumeRoleWithWebIdentity"
    key, value = (v.get_secret_value() for v in cloud.secret.values())
    (tmp_path / "config").write_text(
        f"[profile hostler]\nrole_arn = {World().roles[0]}\nsource_profile = keys\n"
        f"[profile keys]\naws_access_key_id = {key}\naws_secret_access_key = {value}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "hostler")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", cloud.endpoint)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    return {}, "AssumeRole"


def test_a_role_is_assumed_anew_before_its_session_expires(
    cloud: AwsCloud, role: tuple[dict[str, SecretStr], str]
) -> None:
    of_role, assume = role
    fresh, given = cloud.driver_with(DriverSettings()), machine(cloud)
    for _ in range(2):
        assert fresh.list_machines(given.listing(secret=of_role)).machines == []
    assert len(calls(cloud, assume)) == 1
    # Like a session that has five minutes left: botocore does not begin a call with it.
    cloud.do(lambda: setattr(cloud.ec2.authenticator, "longest_session", 300.0))
    young = cloud.driver_with(DriverSettings())
    for _ in range(3):
        assert young.list_machines(given.listing(secret=of_role)).machines == []
    assert len({c.caller for c in calls(cloud, "DescribeInstances")}) == 4
    assert not any(c.error for c in calls(cloud))


def test_a_role_whose_session_was_revoked_is_assumed_anew_once(
    cloud: AwsCloud, role: tuple[dict[str, SecretStr], str]
) -> None:
    of_role, assume = role
    fresh, given = cloud.driver_with(DriverSettings()), machine(cloud)
    made = fresh.create_machine(given.creation(secret=of_role))
    assert fresh.get_account(given.whose(secret=of_role)) == cloud.account
    cloud.do(cloud.ec2.authenticator.sessions.clear)
    assert fresh.get_machine_status(given.status(made.provider_id, secret=of_role)).provider_id == made.provider_id
    assert len(calls(cloud, assume)) == 2
    assert [c.error for c in calls(cloud, "DescribeInstances")] == ["AuthFailure", None]
    fault(cloud, "DescribeInstances", "AuthFailure", times=None)
    seen = mark(cloud)
    with pytest.raises(DriverError, match="AuthFailure"):
        fresh.list_machines(given.listing(secret=of_role))
    assert len(calls(cloud, "DescribeInstances", since=seen)) == 2
    # Nothing is made with other credentials than those whose account was asked for.
    fault(cloud, "RunInstances", "AuthFailure")
    with pytest.raises(DriverError, match="AuthFailure"):
        fresh.create_machine(machine(cloud).creation(secret=of_role))
    assert len(calls(cloud, "RunInstances", since=seen)) == 1


def test_a_token_file_is_read_at_each_session(cloud: AwsCloud, tmp_path: Path) -> None:
    ((_, token),) = World().web_identities.items()
    file = tmp_path / "token"
    file.write_text("of-yesterday")
    fresh, given = cloud.driver_with(DriverSettings()), machine(cloud)
    with pytest.raises(DriverError, match="InvalidIdentityToken"):
        fresh.list_machines(given.listing(secret=web_identity(file)))
    file.write_text(token)
    assert fresh.list_machines(given.listing(secret=web_identity(file))).machines == []


def test_clients_are_shared_and_bounded(cloud: AwsCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivers.aws.calls.MAX_SESSIONS", 2)
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


# -- where credentials may go -------------------------------------------------------------------------------------


def test_no_credentials_go_anywhere_in_clear(cloud: AwsCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, token),) = World().web_identities.items()
    file = tmp_path / "token"
    file.write_text(token)
    given = machine(cloud)
    elsewhere = load_driver("AWS", DriverSettings(endpoint="http://ec2.example:80"))
    for secret_ in (web_identity(file), secret(accessKeyID="AKIAEXAMPLE", secretAccessKey="x")):
        with pytest.raises(DriverError, match="is not https, and credentials would be sent unencrypted") as refused:
            elsewhere.list_machines(given.listing(secret=secret_))
        assert refused.value.error_class is ErrorClass.AUTH
    # The settings are right, and the environment leads the token of the web identity somewhere else.
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://sts.example")
    with pytest.raises(DriverError, match=r"http://sts\.example"):
        cloud.driver_with(DriverSettings()).list_machines(given.listing(secret=web_identity(file)))
    assert calls(cloud) == []
    monkeypatch.delenv("AWS_ENDPOINT_URL_STS")
    cloud.driver_with(DriverSettings()).list_machines(given.listing(secret=web_identity(file)))
    assert calls(cloud) != []
