"""The caller of a request: a bearer token, which is a service account's own signed assertion or was given for one."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from google.auth import jwt
from pydantic import BaseModel

from simulator.clouds.gce.errors import GceError
from simulator.clouds.gce.world import World

LIFETIME = 3600
"""Seconds that a token is good for."""
FEDERATED = "principal:"
"""What a caller's name begins with that has come from another identity provider."""


class Session(BaseModel):
    """A token that was given away."""

    email: str
    projects: tuple[str, ...] = ()
    expires: float
    """In seconds since the epoch."""


class Caller(BaseModel):
    email: str
    projects: tuple[str, ...]


class GceAuthenticator:
    def __init__(self, world: World) -> None:
        self._world = world
        self._keys = {
            a.key_id: load_pem_private_key(a.private_key.encode(), None)
            .public_key()
            .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            for a in world.service_accounts
        }
        self.sessions: dict[str, Session] = {}
        """Sessions by token."""
        self.disabled: set[str] = set()
        """Ids of keys that somebody has taken away."""

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Raises authError."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise _refused("Request is missing required authentication credential.")
        session = self.sessions.get(token)
        if session is not None and session.expires > time.time():
            return Caller(email=session.email, projects=session.projects)
        if session is not None or token.count(".") != 2:
            raise _refused("Request had invalid authentication credentials.")
        claims = self._claims(token)
        if not (claims.get("aud") or claims.get("scope")):
            raise _refused("The token says neither its audience nor its scope.")
        account = self._world.service_account(str(claims["iss"]))
        if account is None:
            raise _refused("Request had invalid authentication credentials.")
        return Caller(email=account.email, projects=account.projects)

    def may(self, caller: Caller, project: str, permission: str) -> None:
        """Raises forbidden for a project that the caller has no rights in, or that nobody has."""
        if project not in caller.projects or project not in self._world.projects:
            raise GceError("forbidden", f"Required '{permission}' permission for 'projects/{project}'")

    def _claims(self, assertion: str) -> dict[str, Any]:
        try:
            claims: dict[str, Any] = dict(jwt.decode(assertion, certs=self._keys))
        except ValueError:
            raise _refused("Invalid JWT Signature.") from None
        key_id = jwt.decode_header(assertion).get("kid")
        account = self._world.service_account(str(claims.get("iss")))
        if account is None or account.key_id != key_id or key_id in self.disabled:
            raise _refused("Invalid JWT Signature.")
        return claims

    # -- tokens

    def for_assertion(self, assertion: str) -> str:
        """A token for a service account's key. Raises authError."""
        account = self._world.service_account(str(self._claims(assertion)["iss"]))
        assert account is not None
        return self.give(account.email, account.projects)

    def for_subject(self, audience: str, subject_token: str) -> str:
        """A token for one of another identity provider; it may do what the first service account may."""
        expected = self._world.web_identities.get(audience)
        if expected is None or not secrets.compare_digest(expected, subject_token):
            raise _refused("The given credential is rejected by the attribute condition.")
        return self.give(f"{FEDERATED}{audience.rpartition('/')[2]}", self._world.service_accounts[0].projects)

    def for_impersonation(self, caller: Caller, email: str) -> str:
        """A token of a service account for a caller that has come from another identity provider."""
        account = self._world.service_account(email)
        if account is None or not caller.email.startswith(FEDERATED):
            raise GceError("forbidden", "Permission 'iam.serviceAccounts.getAccessToken' denied on resource.")
        return self.give(account.email, account.projects)

    def for_the_machine(self) -> str:
        """A token of the first service account, as the metadata server of a machine gives it."""
        account = self._world.service_accounts[0]
        return self.give(account.email, account.projects)

    def give(self, email: str, projects: tuple[str, ...]) -> str:
        now = time.time()
        self.sessions = {t: s for t, s in self.sessions.items() if s.expires > now}
        token = f"ya29.{secrets.token_urlsafe(48)}"
        self.sessions[token] = Session(email=email, projects=projects, expires=now + LIFETIME)
        return token


def _refused(why: str) -> GceError:
    return GceError("authError", why)
