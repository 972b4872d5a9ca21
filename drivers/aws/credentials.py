"""Credentials of a Secret, under the keys that Gardener uses (machine-controller-manager-provider-aws, secret.yaml), or
OpenShift (`aws_…`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import SecretStr

from drivers.errors import DriverError
from resources.errors import ErrorClass

ACCESS_KEY = ("providerAccessKeyId", "accessKeyID", "aws_access_key_id")
# Each of these belongs to the one at the same place above.
SECRET_KEY = ("providerSecretAccessKey", "secretAccessKey", "aws_secret_access_key")
TOKEN_FILE = "workloadIdentityTokenFile"
ROLE = "roleARN"
_USER_DATA = "userData"  # the same Secret may hold it; it is no credential


@dataclass(frozen=True)
class Credentials:
    """Either a key pair, or a role and the file of its web identity token, or nothing: the account's default chain."""

    access_key: str = ""
    secret_key: str = ""
    role_arn: str = ""
    token_file: str = ""

    @property
    def digest(self) -> str:
        """Tells credentials apart without holding them."""
        parts = "\0".join((self.access_key, self.secret_key, self.role_arn, self.token_file))
        return hashlib.sha256(parts.encode()).hexdigest()

    @property
    def hidden(self) -> tuple[str, ...]:
        """Values that no message may quote."""
        return tuple(v for v in (self.access_key, self.secret_key) if v)

    def __repr__(self) -> str:
        return "Credentials(***)"


def from_secret(secret: Mapping[str, SecretStr]) -> Credentials:
    """Raises DriverError of class auth that names the missing key, never a value."""
    values = {k: v.get_secret_value().strip() for k, v in secret.items()}

    def first(keys: tuple[str, ...]) -> str:
        return next((values[k] for k in keys if values.get(k)), "")

    if values.get(TOKEN_FILE) or values.get(ROLE):
        for key in (TOKEN_FILE, ROLE):
            if not values.get(key):
                raise _missing(f"{key} is missing: a web identity needs {TOKEN_FILE} and {ROLE}")
        return Credentials(role_arn=values[ROLE], token_file=values[TOKEN_FILE])
    access, key = first(ACCESS_KEY), first(SECRET_KEY)
    if access and key:
        return Credentials(access_key=access, secret_key=key)
    if access or key:
        there, missing = (ACCESS_KEY, SECRET_KEY) if access else (SECRET_KEY, ACCESS_KEY)
        spelling = next(n for n, name in enumerate(there) if values.get(name))
        raise _missing(f"{missing[spelling]} is missing, although it has {there[spelling]}")
    others = sorted(set(values) - {_USER_DATA})
    if others:
        raise _missing(
            f"it holds {', '.join(others)} but neither accessKeyID and secretAccessKey nor {TOKEN_FILE} and {ROLE}"
        )
    return Credentials()


def _missing(what: str) -> DriverError:
    return DriverError(ErrorClass.AUTH, f"the Secret with the AWS credentials is incomplete: {what}")
