"""The caller of a request: a bearer token that Entra has issued, and what its application may open."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import secrets
import time
from collections.abc import Iterable, Mapping

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from pydantic import BaseModel

from simulator.clouds.arm.errors import ArmError
from simulator.clouds.arm.world import Principal, World

LIFETIME = 3600.0
"""Seconds that a token is good for."""


class Client(BaseModel):
    """An application as it is now: its secrets may be changed at any time."""

    tenant: str
    secrets: list[str]
    federated_tokens: list[str] = []
    certificates: list[str] = []
    subscriptions: list[str]
    managed: bool = False


class Token(BaseModel):
    client_id: str
    expires: float
    """Seconds since the epoch."""


class EntraError(Exception):
    """What the token endpoint answers in OAuth's words (RFC 6749, §5.2), with Entra's code."""

    def __init__(self, error: str, description: str, status: int = 400) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status


class ArmAuthenticator:
    def __init__(self, world: World) -> None:
        self._world = world
        self.clients = {p.client_id: _client(p) for p in world.principals}
        """Clients by client id."""
        self.tokens: dict[str, Token] = {}
        self.lifetime = LIFETIME
        """Seconds that the next tokens are good for."""

    # -------------------------------------------------------------------------------------------- at each call

    def caller(self, headers: Mapping[str, str]) -> str:
        """The client id of whoever has sent a request. Raises what Azure answers to one that it does not believe."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if not token:
            raise ArmError("AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
        found = self.tokens.get(token.strip())
        if scheme.lower() != "bearer" or found is None or found.client_id not in self.clients:
            raise ArmError("InvalidAuthenticationToken", "The access token is invalid.")
        if found.expires <= time.time():
            raise ArmError("ExpiredAuthenticationToken", "The access token expiry UTC time is in the past.")
        return found.client_id

    def check(self, client_id: str, subscription: str, operation: str) -> None:
        """Raises SubscriptionNotFound, and AuthorizationFailed for a subscription that the caller may not open."""
        known = {s.lower(): s for s in self._world.subscriptions}
        if subscription.lower() not in known:
            raise ArmError("SubscriptionNotFound", f"The subscription '{subscription}' could not be found.")
        if known[subscription.lower()] not in self.clients[client_id].subscriptions:
            raise ArmError(
                "AuthorizationFailed",
                f"The client '{client_id}' with object id '{client_id}' does not have authorization to perform action "
                f"'{operation}' over scope '/subscriptions/{subscription}' or the scope is invalid. If access was "
                "recently "
                "granted, please refresh your credentials.",
            )

    # ----------------------------------------------------------------------------------------------- at Entra

    def by_secret(self, tenant: str, client_id: str, secret: str) -> str:
        client = self._client(tenant, client_id)
        if not _one_of(client.secrets, secret):
            raise EntraError(
                "invalid_client",
                "AADSTS7000215: Invalid client secret provided. Ensure the secret being sent in the request is "
                "the client "
                f"secret value, not the client secret ID, for a secret added to app '{client_id}'.",
                401,
            )
        return self._issue(client_id)

    def by_assertion(self, tenant: str, client_id: str, assertion: str) -> str:
        """Logs in by a federated token, or by a JWT that a certificate of the application has signed."""
        client = self._client(tenant, client_id)
        if not _one_of(client.federated_tokens, assertion) and not _signed(client.certificates, assertion, client_id):
            raise EntraError(
                "invalid_client",
                "AADSTS700027: The certificate with identifier used to sign the client assertion is not registered on "
                "application, or AADSTS700211: No matching federated identity record found for presented assertion.",
                401,
            )
        return self._issue(client_id)

    def by_machine(self, client_id: str | None) -> tuple[str, str]:
        """A token of the managed identity of the machine that the caller runs on, and its client id."""
        managed = [c for c, client in self.clients.items() if client.managed and client_id in (None, c)]
        if not managed:
            raise EntraError("invalid_request", "Identity not found")
        return managed[0], self._issue(managed[0])

    def _client(self, tenant: str, client_id: str) -> Client:
        if tenant.lower() != self._world.tenant:
            raise EntraError("invalid_request", f"AADSTS90002: Tenant '{tenant}' not found.")
        client = self.clients.get(client_id)
        if client is None:
            raise EntraError(
                "unauthorized_client",
                f"AADSTS700016: Application with identifier '{client_id}' was not found in the directory '{tenant}'.",
            )
        return client

    def _issue(self, client_id: str) -> str:
        token = f"simulated.{secrets.token_urlsafe(48)}"
        now = time.time()
        self.tokens = {t: of for t, of in self.tokens.items() if of.expires + LIFETIME > now}
        self.tokens[token] = Token(client_id=client_id, expires=now + self.lifetime)
        return token


def _client(principal: Principal) -> Client:
    return Client(
        tenant=principal.tenant,
        secrets=[principal.secret],
        federated_tokens=list(principal.federated_tokens),
        certificates=list(principal.certificates),
        subscriptions=list(principal.subscriptions),
        managed=principal.managed,
    )


def _one_of(known: Iterable[str], given: str) -> bool:
    return any(hmac.compare_digest(k.encode(), given.encode()) for k in known)


def _signed(certificates: Iterable[str], assertion: str, client_id: str) -> bool:
    """Whether a certificate's key has signed this JWT about the client, and it has not expired."""
    try:
        signed, _, signature = assertion.rpartition(".")
        header, claims = (json.loads(_unbase(part)) for part in signed.split("."))
        if claims["iss"] != client_id or claims["exp"] < time.time():
            return False
        return any(_verifies(pem, header["alg"], signed.encode(), _unbase(signature)) for pem in certificates)
    except (ValueError, KeyError, TypeError, binascii.Error):
        return False


def _verifies(pem: str, algorithm: str, signed: bytes, signature: bytes) -> bool:
    key = x509.load_pem_x509_certificate(pem.encode()).public_key()
    pss = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)
    paddings = {"RS256": padding.PKCS1v15(), "PS256": pss}
    if not isinstance(key, rsa.RSAPublicKey) or algorithm not in paddings:
        return False
    try:
        key.verify(signature, signed, paddings[algorithm], hashes.SHA256())
    except InvalidSignature:
        return False
    return True


def _unbase(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
