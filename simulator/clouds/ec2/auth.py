"""The caller of a request: Signature Version 4, checked by computing it again; access keys, and temporary credentials
of roles."""

from __future__ import annotations

import datetime
import hmac
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from pydantic import BaseModel

from simulator.clouds.ec2.errors import Ec2Error
from simulator.clouds.ec2.world import World

REFUSED = "AWS was not able to validate the provided access credentials"
MAX_CLOCK_SKEW = 900.0
"""Seconds that a request's date may be off (EC2 API reference, RequestExpired)."""
AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,\s]+)/(?P<date>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request,"
    r"\s*SignedHeaders=(?P<signed>[^,\s]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)


class AccessKey(BaseModel):
    """Credentials of a user, until somebody deletes them."""

    secret: str
    account: str


class Session(BaseModel):
    """Temporary credentials."""

    secret: str
    token: str
    role: str
    expires: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class Caller:
    account: str
    arn: str


class Ec2Authenticator:
    def __init__(self, world: World) -> None:
        self._world = world
        own = {world.account_id: world.access_keys}
        self.access_keys = {
            key: AccessKey(secret=secret, account=account)
            for account, keys in (own | world.other_accounts).items()
            for key, secret in keys.items()
        }
        """Keys by access key id; somebody who rotates one adds another and deletes it."""
        self.sessions: dict[str, Session] = {}
        """Sessions by access key id."""
        self.longest_session: float | None = None
        """Seconds that a session lasts at most, whatever was asked for."""

    def caller(self, method: str, url: str, headers: Mapping[str, str], body: bytes, service: str = "ec2") -> Caller:
        """The caller who has signed a request. Raises what EC2 answers to a request that it does not believe."""
        header = headers.get("Authorization")
        if not header:
            raise Ec2Error("MissingAuthenticationToken", "Request is missing Authentication Token")
        match = AUTHORIZATION.fullmatch(header.strip())
        date = headers.get("X-Amz-Date", "")
        if match is None or not date:
            raise Ec2Error(
                "AuthFailure", "The request has no Signature Version 4 in its Authorization header, or no X-Amz-Date"
            )
        credentials = self._credentials(match["key"], headers.get("X-Amz-Security-Token"))
        if (match["region"], match["service"]) != (self._world.region, service):
            raise Ec2Error(
                "SignatureDoesNotMatch",
                f"Credential should be scoped to region '{self._world.region}' and service '{service}', "
                f"not '{match['region']}' and '{match['service']}'.",
            )
        _check_date(date)
        signed = {k: v for k, v in headers.items() if k.lower() in match["signed"].split(";")}
        request = AWSRequest(method=method, url=url, headers=signed, data=body)
        expected = _signature(request, date, credentials, self._world.region, service)
        if not hmac.compare_digest(expected, match["signature"]):
            raise Ec2Error(
                "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you provided. "
                "Check your AWS Secret Access Key and signing method.",
            )
        return self._caller(match["key"])

    def _caller(self, key: str) -> Caller:
        if key in self.access_keys:
            account = self.access_keys[key].account
            return Caller(account, f"arn:aws:iam::{account}:user/hostler")
        role = self.sessions[key].role
        return Caller(role.split(":")[4], f"{assumed(role)}/hostler")

    def _credentials(self, key: str, token: str | None) -> Credentials:
        session = self.sessions.get(key)
        if session is not None and token is not None and hmac.compare_digest(session.token, token):
            if session.expires <= time.time():
                raise Ec2Error("RequestExpired", "Request has expired.")
            return Credentials(key, session.secret)
        if token is None and key in self.access_keys:
            return Credentials(key, self.access_keys[key].secret)
        raise Ec2Error("AuthFailure", REFUSED)

    def assume_role_by_key(self, role: str, duration: float) -> tuple[str, Session]:
        """New temporary credentials for a role that every access key may assume."""
        if role not in self._world.roles:
            raise Ec2Error(
                "AccessDenied", f"User is not authorized to perform: sts:AssumeRole on resource: {role}", 403
            )
        return self._begin(role, duration)

    def assume_role(self, role: str, web_identity_token: str, duration: float) -> tuple[str, Session]:
        """New temporary credentials for a role: access key id and the rest."""
        known = self._world.web_identities.get(role)
        if known is None:
            raise Ec2Error("AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity", 403)
        if not hmac.compare_digest(known, web_identity_token):
            raise Ec2Error("InvalidIdentityToken", "The web identity token that was passed could not be validated")
        return self._begin(role, duration)

    def _begin(self, role: str, duration: float) -> tuple[str, Session]:
        key = f"ASIA{secrets.token_hex(8).upper()}"
        session = Session(
            secret=secrets.token_urlsafe(30),
            token=secrets.token_urlsafe(60),
            role=role,
            expires=time.time() + min(duration, self.longest_session or duration),
        )
        self.sessions[key] = session
        return key, session


def assumed(role: str) -> str:
    """The ARN of a role as its sessions have it, without the session's name."""
    return role.replace(":iam:", ":sts:").replace(":role/", ":assumed-role/")


def claimed_key(headers: Mapping[str, str]) -> str:
    """The access key id that a request names, believed or not; for the journal."""
    match = AUTHORIZATION.fullmatch(headers.get("Authorization", "").strip())
    return match["key"] if match else ""


def _check_date(date: str) -> None:
    try:
        sent = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    except ValueError:
        raise Ec2Error("AuthFailure", f"X-Amz-Date '{date}' is not a date of the form YYYYMMDDTHHMMSSZ") from None
    if abs(time.time() - sent.timestamp()) > MAX_CLOCK_SKEW:
        raise Ec2Error("RequestExpired", f"Request has expired: it is dated {date}.")


def _signature(request: Any, date: str, credentials: Credentials, region: str, service: str) -> str:
    """The signature that botocore itself would have made of the request at that date."""
    signer = SigV4Auth(credentials, service, region)
    request.context["timestamp"] = date
    to_sign = signer.string_to_sign(request, signer.canonical_request(request))
    return str(signer.signature(to_sign, request))
