"""What logs in: a certificate too, and a secret that rotates; what no error and no log may quote."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import ClientAuthenticationError
from clouds.azure import AzureCloud
from clouds.drivers import fault, machine, mark
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

from drivers.azure.failures import translate
from drivers.base import DriverSettings, load_driver
from drivers.errors import DriverError
from resources.errors import ErrorClass


def certificate(password: str = "") -> tuple[str, str]:
    """A certificate, and the same with its private key."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hostler")])
    now = datetime.now(UTC).replace(tzinfo=None)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now)
    signed = made.not_valid_after(now + timedelta(days=1)).sign(key, hashes.SHA256())
    public = signed.public_bytes(Encoding.PEM).decode()
    locked = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return public, public + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked).decode()


def with_certificate(cloud: AzureCloud, pem: str, password: str = "") -> dict[str, SecretStr]:
    plain = {k: v for k, v in cloud.secret.items() if k != "clientSecret"}
    more = {"clientCertificatePassword": SecretStr(password)} if password else {}
    return {**plain, "clientCertificate": SecretStr(pem), **more}


@pytest.mark.parametrize("password", ["", "canary-password"])
def test_a_certificate_opens_its_subscription_and_another_one_does_not(cloud: AzureCloud, password: str) -> None:
    (known, pem), (_, alien) = certificate(password), certificate()
    client = cloud.arm.authenticator.clients[cloud.secret["clientID"].get_secret_value()]
    client.certificates.append(known)
    given = machine(cloud)
    assert cloud.driver.get_account(given.whose(secret=with_certificate(cloud, pem, password))) == cloud.account
    with pytest.raises(DriverError, match="AADSTS700027") as refused:
        cloud.driver.get_account(given.whose(secret=with_certificate(cloud, alien)))
    assert refused.value.error_class is ErrorClass.AUTH


def test_a_certificate_that_cannot_be_read_is_an_auth_error_without_it(cloud: AzureCloud) -> None:
    _, locked = certificate("canary-password")
    for secret in (with_certificate(cloud, "canary"), with_certificate(cloud, locked, "canary-wrong")):
        with pytest.raises(DriverError, match="cannot be used") as refused:
            cloud.driver.get_account(machine(cloud).whose(secret=secret))
        assert refused.value.error_class is ErrorClass.AUTH
        assert "canary" not in refused.value.message
        assert "PRIVATE KEY" not in refused.value.message


def test_a_managed_identity_logs_in_at_the_metadata_service(cloud: AzureCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The identity of the machine that the worker runs on: a Secret names the subscription, or also which identity."""
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", cloud.endpoint)
    (managed,) = [c for c, client in cloud.arm.authenticator.clients.items() if client.managed]
    given, since = machine(cloud), mark(cloud)
    for named in ({}, {"clientID": SecretStr(managed)}):
        secret = {"subscriptionID": cloud.secret["subscriptionID"], **named}
        assert cloud.driver_with(DriverSettings()).get_account(given.whose(secret=secret)) == cloud.account
    asked = [c for c in cloud.frame.calls(operation=cloud.login, since=since) if "resource" in c.request]
    assert [c.request.get("client_id") for c in asked] == [None, managed]
    stranger = {"subscriptionID": cloud.secret["subscriptionID"], "clientID": SecretStr("nobody")}
    with pytest.raises(DriverError, match="Identity not found") as refused:
        cloud.driver_with(DriverSettings()).get_account(given.whose(secret=stranger))
    assert refused.value.error_class is ErrorClass.AUTH


def test_another_secret_serves_the_next_call(cloud: AzureCloud) -> None:
    given, driver = machine(cloud), cloud.driver_with(DriverSettings())
    made = driver.create_machine(given.creation())
    cloud.arm.authenticator.clients[cloud.secret["clientID"].get_secret_value()].secrets = ["rotated"]
    cloud.do(cloud.arm.authenticator.tokens.clear)
    with pytest.raises(DriverError, match="AADSTS7000215") as refused:
        driver.get_machine_status(given.status(made.provider_id))
    assert refused.value.error_class is ErrorClass.AUTH
    rotated = {**cloud.secret, "clientSecret": SecretStr("rotated")}
    assert driver.get_machine_status(given.status(made.provider_id, secret=rotated)).uid == given.machine.uid


@pytest.mark.parametrize("code", ["InternalServerError", "ServiceUnavailable"])
def test_a_login_that_is_down_says_nothing_about_the_credentials(cloud: AzureCloud, code: str) -> None:
    """A person would look for what is wrong with a Secret that is right."""
    given = machine(cloud)
    fault(cloud, cloud.login, code)
    with pytest.raises(DriverError, match="login") as down:
        cloud.driver_with(DriverSettings()).get_account(given.whose())
    assert down.value.error_class is ErrorClass.TRANSIENT
    assert cloud.driver_with(DriverSettings()).get_account(given.whose()) == cloud.account


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("AADSTS90055", ErrorClass.THROTTLED),
        ("AADSTS90024", ErrorClass.TRANSIENT),
        ("AADSTS90033", ErrorClass.TRANSIENT),
        ("AADSTS7000222", ErrorClass.AUTH),
    ],
)
def test_entras_codes(code: str, wanted: ErrorClass) -> None:
    words = f"Authentication failed: {code}: words. Trace ID: 1 Correlation ID: 2 Timestamp: 2026-01-01 00:00:00Z"
    error = translate("x", ClientAuthenticationError(message=words))
    assert (error.error_class, error.provider_code) == (wanted, code)
    assert "Trace ID" not in error.message


def test_an_endpoint_in_the_clear_is_refused(cloud: AzureCloud) -> None:
    elsewhere = load_driver("Azure", DriverSettings(endpoint="http://management.example"))
    with pytest.raises(DriverError, match="not https"):
        elsewhere.list_machines(machine(cloud).listing())


def test_no_secret_is_logged(cloud: AzureCloud, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    given = machine(cloud)
    given.user_data = "#cloud-config\ntoken: canary-of-user-data\n"
    cloud.driver_with(DriverSettings()).create_machine(given.creation())
    logging.getLogger("test").info("heard")
    assert "heard" in caplog.text
    for secret in ("canary", cloud.secret["clientSecret"].get_secret_value(), *cloud.arm.authenticator.tokens):
        assert secret not in caplog.text
