"""Credentials of a Secret: service account key, workload identity federation, metadata server; how they rotate."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from clouds.drivers import calls, machine
from clouds.gcp import GcpCloud, key_of
from pydantic import SecretStr

from drivers.base import DriverSettings, load_driver
from drivers.errors import DriverError
from drivers.gcp.credentials import from_secret
from resources.errors import ErrorClass
from simulator.clouds.gce.world import POOL

KEY = {
    "type": "service_account",
    "project_id": "p",
    "client_email": "a@p",
    "private_key": "canary",
    "token_uri": "https://x.googleapis.com/token",
}
POOL_CONFIG = {
    "type": "external_account",
    "audience": POOL,
    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
    "token_url": "https://sts.googleapis.com/v1/token",
    "credential_source": {"file": "/canary"},
}


def secret(**values: Any) -> dict[str, SecretStr]:
    return {k: SecretStr(v if isinstance(v, str) else json.dumps(v)) for k, v in values.items()}


WRONG: list[tuple[dict[str, SecretStr], str]] = [
    (secret(serviceAccountJSON="canary"), "serviceAccountJSON is not JSON"),
    (secret(serviceAccountJSON={**KEY, "type": "authorized_user"}), 'type is "service_account"'),
    (secret(serviceAccountJSON={k: v for k, v in KEY.items() if k != "private_key"}), "has no private_key"),
    (secret(serviceAccountJSON={**KEY, "token_uri": "http://canary.example/token"}), "token_uri .* is not https"),
    (secret(credentialsConfig=POOL_CONFIG), "projectID is missing"),
    (secret(credentialsConfig={**POOL_CONFIG, "token_url": "http://canary.example"}, projectID="p"), "is not https"),
    (
        secret(credentialsConfig={**POOL_CONFIG, "credential_source": {"executable": "canary"}}, projectID="p"),
        "must name a file or a url",
    ),
    (
        secret(
            credentialsConfig={**POOL_CONFIG, "credential_source": {"file": "x", "executable": {"command": "canary"}}},
            projectID="p",
        ),
        "names a program",
    ),
    (secret(accessKeyID="canary", userData="x"), "it holds accessKeyID but neither serviceAccountJSON"),
]


@pytest.mark.parametrize(("given", "words"), WRONG, ids=[w for _, w in WRONG])
def test_a_secret_that_does_not_do_is_an_auth_error_that_names_the_key(given: dict[str, SecretStr], words: str) -> None:
    with pytest.raises(DriverError, match=words) as refused:
        from_secret(given)
    assert refused.value.error_class is ErrorClass.AUTH
    assert "canary" not in str(refused.value)


def test_a_key_that_cannot_be_read_is_an_auth_error_without_it(cloud: GcpCloud) -> None:
    with pytest.raises(DriverError, match=r"private_key .* cannot be read") as refused:
        cloud.driver.list_machines(machine(cloud).listing(secret=secret(serviceAccountJSON=KEY)))
    assert refused.value.error_class is ErrorClass.AUTH
    assert "canary" not in str(refused.value)


def test_both_spellings_of_a_key_file_and_another_project(cloud: GcpCloud) -> None:
    (text,) = (v.get_secret_value() for v in cloud.secret.values())
    given = machine(cloud)
    spellings = [{key: SecretStr(text)} for key in ("serviceaccount.json", "service_account.json")]
    for spelled in (secret(serviceAccountJSON=text, userData="x"), *spellings):
        assert cloud.driver.list_machines(given.listing(secret=spelled)).machines == []
    with pytest.raises(DriverError, match="hostler-other") as elsewhere:
        cloud.driver.list_machines(given.listing(secret=secret(serviceAccountJSON=text, projectID="hostler-other")))
    assert elsewhere.value.error_class is ErrorClass.AUTH


def test_workload_identity_federation_reads_its_token_again_as_it_rotates(cloud: GcpCloud, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("rotated-away")
    config = {**POOL_CONFIG, "token_url": f"{cloud.endpoint}/v1/token", "credential_source": {"file": str(token)}}
    identity = secret(credentialsConfig=config, projectID="hostler-simulator")
    given = machine(cloud)
    with pytest.raises(DriverError) as refused:
        cloud.driver.list_machines(given.listing(secret=identity))
    assert refused.value.error_class is ErrorClass.AUTH
    token.write_text("hostler-web-identity-token")
    assert cloud.driver.list_machines(given.listing(secret=identity)).machines == []
    assert cloud.driver.get_account(given.whose(secret=identity)) == "hostler-simulator"
    token.unlink()
    with pytest.raises(DriverError, match="was not found") as missing:
        cloud.driver_with(DriverSettings()).list_machines(given.listing(secret=identity))
    assert missing.value.error_class is ErrorClass.AUTH


def test_without_credentials_the_metadata_server_serves(cloud: GcpCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    host = cloud.endpoint.removeprefix("http://")
    monkeypatch.setattr("google.auth.compute_engine._metadata._NO_GCE_CHECK", False)
    monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", host)  # GCE_METADATA_HOST, likewise
    monkeypatch.setenv("GCE_METADATA_IP", host)
    fresh, given = cloud.driver_with(DriverSettings()), machine(cloud)
    assert fresh.get_account(given.whose(secret=secret(userData="x"))) == "hostler-simulator"


def test_no_credentials_anywhere_is_an_auth_error(cloud: GcpCloud) -> None:
    with pytest.raises(DriverError, match="serviceAccountJSON") as refused:
        cloud.driver_with(DriverSettings()).list_machines(machine(cloud).listing(secret={}))
    assert refused.value.error_class is ErrorClass.AUTH


def test_another_key_in_the_secret_serves_the_next_call(cloud: GcpCloud) -> None:
    given = machine(cloud)
    made = cloud.driver.create_machine(given.creation())
    cloud.driver.get_machine_status(given.status(made.provider_id, secret=key_of(0, cloud.endpoint)))
    cloud.driver.list_machines(given.listing(secret=cloud.other_secret))
    assert len({c.caller for c in calls(cloud)}) == 2


def test_an_endpoint_in_the_clear_is_refused(cloud: GcpCloud) -> None:
    elsewhere = load_driver("GCP", DriverSettings(endpoint="http://compute.example"))
    with pytest.raises(DriverError, match="not https"):
        elsewhere.list_machines(machine(cloud).listing())


def test_no_secret_is_logged(cloud: GcpCloud, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    given = machine(cloud)
    given.user_data = "#cloud-config\ntoken: canary-of-user-data\n"
    cloud.driver.create_machine(given.creation())
    logging.getLogger("test").info("heard")
    assert "heard" in caplog.text
    assert "canary" not in caplog.text
    assert "PRIVATE KEY" not in caplog.text
