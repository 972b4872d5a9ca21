"""Microsoft Entra, as far as a client library needs it: where tokens are got, and the token endpoint itself; and the
metadata service of a machine, which gives tokens for its managed identity."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from simulator.clouds.arm.auth import ArmAuthenticator, EntraError

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
SECRETS = frozenset({"client_secret", "client_assertion"})
"""Fields of a form that are never in the journal."""


def configuration(base: str, tenant: str) -> dict[str, Any]:
    """What a client library asks for first (OpenID Connect Discovery)."""
    head = f"{base}/{tenant}"
    return {
        "issuer": f"{head}/v2.0",
        "authorization_endpoint": f"{head}/oauth2/v2.0/authorize",
        "token_endpoint": f"{head}/oauth2/v2.0/token",
        "tenant_region_scope": None,
    }


def token(form: Mapping[str, str], tenant: str, authenticator: ArmAuthenticator) -> dict[str, Any]:
    """The answer of the token endpoint, for client credentials alone. Raises EntraError."""
    grant = form.get("grant_type")
    if grant != "client_credentials":
        raise EntraError("unsupported_grant_type", f"The simulator does not emulate the grant type '{grant}'.")
    client_id = form.get("client_id", "")
    if not form.get("scope"):
        raise EntraError("invalid_request", "AADSTS900144: The request must contain the parameter 'scope'.")
    if form.get("client_secret"):
        access = authenticator.by_secret(tenant, client_id, form["client_secret"])
    elif form.get("client_assertion_type") == ASSERTION and form.get("client_assertion"):
        access = authenticator.by_assertion(tenant, client_id, form["client_assertion"])
    else:
        raise EntraError(
            "invalid_client",
            "AADSTS7000216: 'client_assertion', 'client_secret' or 'request' is required for the 'client_credentials' "
            "grant type.",
            401,
        )
    lifetime = int(authenticator.lifetime)
    return {"token_type": "Bearer", "expires_in": lifetime, "ext_expires_in": lifetime, "access_token": access}


def machine_token(
    query: Mapping[str, str], headers: Mapping[str, str], authenticator: ArmAuthenticator
) -> dict[str, Any]:
    """The answer of the metadata service ("How to use managed identities … to acquire an access token")."""
    if headers.get("Metadata", "").lower() != "true":
        raise EntraError("invalid_request", "Required metadata header not specified")
    client_id, access = authenticator.by_machine(query.get("client_id"))
    lifetime = int(authenticator.lifetime)
    return {
        "access_token": access,
        "client_id": client_id,
        "expires_in": str(lifetime),
        "expires_on": str(int(time.time()) + lifetime),
        "resource": query.get("resource", ""),
        "token_type": "Bearer",
    }


def failure(error: EntraError) -> dict[str, Any]:
    code = error.description.partition(":")[0].removeprefix("AADSTS")
    return {
        "error": error.error,
        "error_description": error.description,
        "error_codes": [int(code)] if code.isdigit() else [],
    }
