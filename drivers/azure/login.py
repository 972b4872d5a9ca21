"""How credentials become tokens, by azure-identity, which reads a token's file again before the token expires."""

from __future__ import annotations

from typing import Any

from azure.core.pipeline.transport import RequestsTransport
from azure.identity import (
    CertificateCredential,
    ClientSecretCredential,
    DefaultAzureCredential,
    ManagedIdentityCredential,
    WorkloadIdentityCredential,
)

from drivers.azure.credentials import Credentials
from drivers.base import DriverSettings
from resources.clouds.azure.spec import Realm


def credential_of(credentials: Credentials, realm: Realm, settings: DriverSettings) -> Any:
    """The credential of azure-identity. Raises ValueError for a certificate that is none."""
    seconds = settings.timeout.total_seconds()
    options: dict[str, Any] = {"retry_total": 0, "connection_timeout": seconds, "read_timeout": seconds}
    if not credentials.tenant:
        if credentials.subscription:
            return ManagedIdentityCredential(client_id=credentials.client or None, **options)
        return DefaultAzureCredential(
            authority=realm.authority,
            exclude_cli_credential=True,
            exclude_developer_cli_credential=True,
            exclude_powershell_credential=True,
            exclude_shared_token_cache_credential=True,
            exclude_visual_studio_code_credential=True,
            exclude_broker_credential=True,
            **options,
        )
    options |= _authority(realm, settings.endpoint, options)
    who = {"tenant_id": credentials.tenant, "client_id": credentials.client}
    if credentials.token_file:
        return WorkloadIdentityCredential(**who, token_file_path=credentials.token_file, **options)
    if credentials.certificate:
        password = {"password": credentials.password} if credentials.password else {}
        data = credentials.certificate.encode()
        return CertificateCredential(**who, certificate_data=data, send_certificate_chain=True, **password, **options)
    return ClientSecretCredential(**who, client_secret=credentials.secret, **options)


def _authority(realm: Realm, endpoint: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Where to log in: at an endpoint of the settings too, which knows its own principals only."""
    if endpoint is None:
        return {"authority": realm.authority}
    own: dict[str, Any] = {"authority": endpoint, "disable_instance_discovery": True}
    if endpoint.lower().startswith("http:"):
        own |= {"authority": f"https{endpoint[4:]}", "transport": LoopbackTransport(**options)}
    return own


class LoopbackTransport(RequestsTransport):  # type: ignore[misc]
    """A transport to this machine itself without TLS, which azure-identity otherwise insists on."""

    def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **options)
