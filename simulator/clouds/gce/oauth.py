"""Where tokens come from: Google's OAuth 2.0 and STS endpoints, impersonation, and the metadata server of a machine.

All are served on the API's own port, each with the path that Google has it under.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from simulator.clouds.gce.auth import LIFETIME, GceAuthenticator
from simulator.clouds.gce.errors import GceError
from simulator.clouds.gce.names import timestamp
from simulator.clouds.gce.world import World

JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
METADATA = "computeMetadata/v1"
TOKENS = {"token": "oauth2.token", "v1/token": "sts.token"}
"""Where tokens are exchanged, with their names in fault rules and the journal."""


class OAuthError(Exception):
    """An error as OAuth 2.0 answers it (RFC 6749, 5.2)."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(f"{error}: {description}")
        self.body = {"error": error, "error_description": description}


def token(authenticator: GceAuthenticator, path: str, form: Mapping[str, str]) -> dict[str, Any]:
    """The answer of the OAuth 2.0 and STS endpoints. Raises OAuthError."""
    wanted = JWT_GRANT if path == "token" else EXCHANGE_GRANT
    if form.get("grant_type") != wanted:
        raise OAuthError("unsupported_grant_type", f"Invalid grant_type: {form.get('grant_type')}")
    try:
        if path == "token":
            given = authenticator.for_assertion(form.get("assertion", ""))
        else:
            given = authenticator.for_subject(form.get("audience", ""), form.get("subject_token", ""))
    except GceError as e:
        raise OAuthError("invalid_grant", e.message) from None
    answer: dict[str, Any] = {"access_token": given, "expires_in": LIFETIME, "token_type": "Bearer"}
    if path != "token":
        answer["issued_token_type"] = "urn:ietf:params:oauth:token-type:access_token"
    return answer


def impersonated(authenticator: GceAuthenticator, headers: Mapping[str, str], email: str) -> dict[str, Any]:
    """The answer of generateAccessToken. Raises GceError."""
    given = authenticator.for_impersonation(authenticator.caller(headers), email)
    return {"accessToken": given, "expireTime": timestamp(time.time() + LIFETIME)[:19] + "Z"}


def metadata(authenticator: GceAuthenticator, world: World, path: str, recursive: bool) -> str | None:
    """What the metadata server says below computeMetadata/v1; None: nothing is there."""
    account = world.service_accounts[0]
    project = account.projects[0]
    match path.strip("/").split("/"):
        case [""]:
            return "instance/\nproject/\n"
        case ["project", "project-id"]:
            return project
        case ["project", "numeric-project-id"]:
            return world.projects[project].number
        case ["universe", "universe-domain"]:
            return "googleapis.com"
        case ["instance", "service-accounts", name] if name in ("default", account.email) and recursive:
            scopes = ["https://www.googleapis.com/auth/cloud-platform"]
            return json.dumps({"aliases": ["default"], "email": account.email, "scopes": scopes})
        case ["instance", "service-accounts", name, "email"] if name in ("default", account.email):
            return account.email
        case ["instance", "service-accounts", name, "token"] if name in ("default", account.email):
            given = authenticator.for_the_machine()
            return json.dumps({"access_token": given, "expires_in": LIFETIME, "token_type": "Bearer"})
        case _:
            return None
