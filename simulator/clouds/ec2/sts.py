"""What clients of EC2 need of STS: who they are, and roles.

It is served on EC2's port (`AWS_ENDPOINT_URL_STS`). AssumeRoleWithWebIdentity is unsigned, as in AWS; the others are
signed. GetCallerIdentity needs no permission there either.
"""

from __future__ import annotations

import secrets
from typing import Any
from xml.sax.saxutils import escape

from simulator.clouds.ec2.auth import Caller, Ec2Authenticator, Session, assumed
from simulator.clouds.ec2.errors import Ec2Error
from simulator.clouds.ec2.wire import encode, model

WEB_IDENTITY = "AssumeRoleWithWebIdentity"
_ROLE = ("RoleArn", "RoleSessionName")
REQUIRED = {"GetCallerIdentity": (), "AssumeRole": _ROLE, WEB_IDENTITY: (*_ROLE, "WebIdentityToken")}
ACTIONS = frozenset(REQUIRED)
NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"
DEFAULT_DURATION, MIN_DURATION, MAX_DURATION = 3600, 900, 43200  # seconds (STS API reference)
_CODES = {"AuthFailure": ("InvalidClientTokenId", 403), "RequestExpired": ("ExpiredToken", 403)}
"""What EC2 says of credentials, in STS's words (STS API reference, *Common errors*)."""


def answer(
    action: str, form: dict[str, str], caller: Caller | None, authenticator: Ec2Authenticator, request: str
) -> str:
    """The XML answer. `caller` is None for an unsigned request."""
    for name in REQUIRED[action]:
        if not form.get(name):
            raise Ec2Error("MissingParameter", f"The request must contain the parameter {name}")
    duration = {"DurationSeconds"} if REQUIRED[action] else set()
    for name in set(form) - {*REQUIRED[action], *duration, "Action", "Version"}:
        raise Ec2Error("UnsupportedOperation", f"The simulator does not emulate {name} of {action}.")
    if action == "GetCallerIdentity":
        assert caller is not None
        user = f"AIDA{caller.account}"
        return _xml(action, {"UserId": user, "Account": caller.account, "Arn": caller.arn}, request)
    role, seconds = form["RoleArn"], _duration(form)
    if action == WEB_IDENTITY:
        key, session = authenticator.assume_role(role, form["WebIdentityToken"], seconds)
    else:
        key, session = authenticator.assume_role_by_key(role, seconds)
    return _xml(action, _credentials(form, key, session), request)


def _duration(form: dict[str, str]) -> float:
    duration = form.get("DurationSeconds", str(DEFAULT_DURATION))
    if not duration.isdigit() or not MIN_DURATION <= int(duration) <= MAX_DURATION:
        raise Ec2Error("ValidationError", f"DurationSeconds must be from {MIN_DURATION} to {MAX_DURATION}")
    return float(duration)


def _credentials(form: dict[str, str], key: str, session: Session) -> dict[str, Any]:
    return {
        "Credentials": {
            "AccessKeyId": key,
            "SecretAccessKey": session.secret,
            "SessionToken": session.token,
            "Expiration": session.expires,
        },
        "AssumedRoleUser": {
            "AssumedRoleId": f"AROA{secrets.token_hex(8).upper()}:{form['RoleSessionName']}",
            "Arn": f"{assumed(form['RoleArn'])}/{form['RoleSessionName']}",
        },
    }


def _xml(action: str, result: dict[str, Any], request: str) -> str:
    body = encode(model("sts").operation_model(action).output_shape, result)
    return (
        f'<{action}Response xmlns="{NAMESPACE}"><{action}Result>{body}</{action}Result>'
        f"<ResponseMetadata><RequestId>{request}</RequestId></ResponseMetadata></{action}Response>"
    )


def refusal(error: Ec2Error) -> Ec2Error:
    """EC2's refusal of credentials, as STS says it."""
    if error.code not in _CODES:
        return error
    code, status = _CODES[error.code]
    return Ec2Error(code, "The security token included in the request is invalid or expired.", status)


def error_answer(error: Ec2Error, request_id: str) -> str:
    return (
        f'<ErrorResponse xmlns="{NAMESPACE}"><Error><Type>Sender</Type><Code>{escape(error.code)}</Code>'
        f"<Message>{escape(error.message)}</Message></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    )
