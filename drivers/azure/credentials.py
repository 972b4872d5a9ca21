"""Credentials of a Secret, under the keys that Gardener uses (machine-controller-manager-provider-azure,
pkg/azure/api/providerspec.go), those of its earlier manifests among them, or OpenShift (`azure_…`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass

from pydantic import SecretStr

from drivers.errors import DriverError
from resources.errors import ErrorClass

SUBSCRIPTION = ("subscriptionID", "azureSubscriptionId", "azure_subscription_id")
TENANT = ("tenantID", "azureTenantId", "azure_tenant_id")
CLIENT = ("clientID", "azureClientId", "azure_client_id")
CLIENT_SECRET = ("clientSecret", "azureClientSecret", "azure_client_secret")
CERTIFICATE = "clientCertificate"
"""PEM, the certificate and its private key."""
CERTIFICATE_PASSWORD = "clientCertificatePassword"  # a key's name
TOKEN_FILE = "workloadIdentityTokenFile"  # a key's name
_USER_DATA = "userData"  # the same Secret may hold it; it is no credential


@dataclass(frozen=True)
class Credentials:
    """A service principal with a secret, a certificate or the file of a workload identity's token; else the managed
    identity `client` (""; the VM's own); else, with no subscription either, whatever the worker itself has."""

    subscription: str = ""
    tenant: str = ""
    client: str = ""
    secret: str = ""
    certificate: str = ""
    password: str = ""
    token_file: str = ""

    @property
    def digest(self) -> str:
        """Tells credentials apart without holding them."""
        return hashlib.sha256("\0".join(astuple(self)).encode()).hexdigest()

    @property
    def hidden(self) -> tuple[str, ...]:
        """Values that no message may quote."""
        return tuple(v for v in (self.secret, self.certificate, self.password) if v)

    def __repr__(self) -> str:
        return "Credentials(***)"


def from_secret(secret: Mapping[str, SecretStr]) -> Credentials:
    """Raises DriverError of class auth that names the missing key, never a value."""
    values = {k: v.get_secret_value().strip() for k, v in secret.items()}

    def first(*keys: str) -> str:
        return next((values[k] for k in keys if values.get(k)), "")

    found = Credentials(
        subscription=first(*SUBSCRIPTION),
        tenant=first(*TENANT),
        client=first(*CLIENT),
        secret=first(*CLIENT_SECRET),
        certificate=first(CERTIFICATE),
        password=first(CERTIFICATE_PASSWORD),
        token_file=first(TOKEN_FILE),
    )
    if not found.subscription:
        if others := sorted(set(values) - {_USER_DATA}):
            raise _missing(f"{SUBSCRIPTION[0]} is missing, although it has {', '.join(others)}")
        return found
    proofs = {CLIENT_SECRET[0]: found.secret, CERTIFICATE: found.certificate, TOKEN_FILE: found.token_file}
    given = [key for key, value in proofs.items() if value]
    if len(given) > 1:
        raise _missing(f"it has {' and '.join(given)}: give one of them")
    for name, value in ((TENANT[0], found.tenant), (CLIENT[0], found.client)):
        if given and not value:
            raise _missing(f"{name} is missing, although it has {given[0]}")
    if found.tenant and not given:
        raise _missing(f"{', '.join(proofs)} are missing: give one of them, or no {TENANT[0]} for a managed identity")
    return found


def _missing(what: str) -> DriverError:
    return DriverError(ErrorClass.AUTH, f"the Secret with the Azure credentials is incomplete: {what}")
