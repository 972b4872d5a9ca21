"""The one operation of STS that EC2 clients with a web identity need: AssumeRoleWithWebIdentity.

It is served on EC2's port (`AWS_ENDPOINT_URL_STS`), unsigned as in AWS.
"""

from __future__ import annotations

import secrets
from xml.sax.saxutils import escape

from simulator.ec2.auth import Authenticator
from simulator.ec2.errors import Ec2Error
from simulator.ec2.wire import encode, model

ACTION = "AssumeRoleWithWebIdentity"
NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"
REQUIRED = ("RoleArn", "RoleSessionName", "WebIdentityToken")
DEFAULT_DURATION, MIN_DURATION, MAX_DURATION = 3600, 900, 43200  # seconds (STS API reference)


def assume_role_with_web_identity(form: dict[str, str], authenticator: Authenticator, request_id: str) -> str:
    """The XML answer with fresh temporary credentials."""
    for name in REQUIRED:
        if not form.get(name):
            raise Ec2Error("MissingParameter", f"The request must contain the parameter {name}")
    for name in set(form) - {*REQUIRED, "Action", "Version", "DurationSeconds"}:
        raise Ec2Error("UnsupportedOperation", f"The simulator does not emulate {name} of {ACTION}.")
    duration = form.get("DurationSeconds", str(DEFAULT_DURATION))
    if not duration.isdigit() or not MIN_DURATION <= int(duration) <= MAX_DURATION:
        raise Ec2Error("ValidationError", f"DurationSeconds must be from {MIN_DURATION} to {MAX_DURATION}")
    role = form["RoleArn"]
    key, session = authenticator.assume_role(role, form["WebIdentityToken"], float(duration))
    result = {
        "Credentials": {
            "AccessKeyId": key,
            "SecretAccessKey": session.secret,
            "SessionToken": session.token,
            "Expiration": session.expires,
        },
        "AssumedRoleUser": {
            "AssumedRoleId": f"AROA{secrets.token_hex(8).upper()}:{form['RoleSessionName']}",
            "Arn": role.replace(":iam:", ":sts:").replace(":role/", ":assumed-role/") + f"/{form['RoleSessionName']}",
        },
    }
    body = encode(model("sts").operation_model(ACTION).output_shape, result)
    return (
        f'<{ACTION}Response xmlns="{NAMESPACE}"><{ACTION}Result>{body}</{ACTION}Result>'
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{ACTION}Response>"
    )


def error_answer(error: Ec2Error, request_id: str) -> str:
    return (
        f'<ErrorResponse xmlns="{NAMESPACE}"><Error><Type>Sender</Type><Code>{escape(error.code)}</Code>'
        f"<Message>{escape(error.message)}</Message></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    )
