"""Credentials of a Secret, under the keys that Gardener uses (machine-controller-manager-provider-gcp, secret.yaml),
or OpenShift (`service_account.json`).

What a Secret says is not followed anywhere: its addresses must be https, and a workload identity's token comes from a
file or an address, never from a program.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from drivers.errors import DriverError
from resources.endpoints import in_clear
from resources.errors import ErrorClass

KEY_FILE = ("serviceAccountJSON", "serviceaccount.json", "service_account.json")
FEDERATION = "credentialsConfig"
PROJECT = "projectID"
SERVICE_ACCOUNT, EXTERNAL_ACCOUNT = "service_account", "external_account"
_USER_DATA = "userData"  # the same Secret may hold it; it is no credential
_NEEDED = {
    SERVICE_ACCOUNT: ("project_id", "client_email", "private_key", "token_uri"),
    EXTERNAL_ACCOUNT: ("audience", "subject_token_type", "token_url", "credential_source"),
}
_ADDRESSES = ("token_uri", "token_url", "service_account_impersonation_url")


@dataclass(frozen=True)
class Credentials:
    """Either a service account's key, or the configuration of a workload identity federation, or nothing: the worker's
    own (GOOGLE_APPLICATION_CREDENTIALS, or the metadata server)."""

    info: Mapping[str, Any] = field(default_factory=dict)
    """As Google's libraries read it; its `type` says what it is."""
    project: str = ""
    """The project that the machines are in; "": the worker's own credentials know."""

    @property
    def digest(self) -> str:
        """Tells credentials apart without holding them."""
        parts = json.dumps([dict(self.info), self.project], sort_keys=True)
        return hashlib.sha256(parts.encode()).hexdigest()

    @property
    def hidden(self) -> tuple[str, ...]:
        """Values that no message may quote."""
        return tuple(str(v) for k in ("private_key", "private_key_id") if (v := self.info.get(k)))

    def __repr__(self) -> str:
        return "Credentials(***)"


def from_secret(secret: Mapping[str, SecretStr]) -> Credentials:
    """Raises DriverError of class auth that names the missing key, never a value."""
    values = {k: v.get_secret_value().strip() for k, v in secret.items()}
    project = values.get(PROJECT, "")
    if key := next((k for k in KEY_FILE if values.get(k)), ""):
        info = _read(key, values[key], SERVICE_ACCOUNT)
        return Credentials(info, project or str(info["project_id"]))
    if values.get(FEDERATION):
        info = _read(FEDERATION, values[FEDERATION], EXTERNAL_ACCOUNT)
        _check_source(info["credential_source"])
        if not project:
            raise _incomplete(f"{PROJECT} is missing: a {FEDERATION} does not say which project the machines are in")
        return Credentials(info, project)
    others = sorted(set(values) - {_USER_DATA, PROJECT})
    if others:
        raise _incomplete(f"it holds {', '.join(others)} but neither {' nor '.join(KEY_FILE)} nor {FEDERATION}")
    return Credentials({}, project)


def _read(key: str, text: str, kind: str) -> dict[str, Any]:
    try:
        info = json.loads(text)
    except ValueError:
        raise _incomplete(f"{key} is not JSON") from None
    if not isinstance(info, dict) or info.get("type") != kind:
        raise _incomplete(f'{key} is not a JSON object whose type is "{kind}"')
    if missing := [name for name in _NEEDED[kind] if not info.get(name)]:
        raise _incomplete(f"{key} has no {' and no '.join(missing)}")
    for name in _ADDRESSES:
        if info.get(name) and _is_unsafe(info[name]):
            raise _incomplete(f"{name} in {key} is not https, and credentials would be sent unencrypted")
    return info


def _check_source(source: Any) -> None:
    where = source if isinstance(source, dict) else {}
    if not where.get("file") and not where.get("url"):
        raise _incomplete(f"credential_source in {FEDERATION} must name a file or a url that has the identity's token")
    if where.get("executable"):
        raise _incomplete(f"credential_source in {FEDERATION} names a program, and none is run")
    if where.get("url") and _is_unsafe(where["url"]):
        raise _incomplete(f"credential_source.url in {FEDERATION} is not https")


def _is_unsafe(address: Any) -> bool:
    try:
        return not isinstance(address, str) or in_clear(address)
    except ValueError:
        return True


def _incomplete(what: str) -> DriverError:
    return DriverError(ErrorClass.AUTH, f"the Secret with the Google Cloud credentials is incomplete: {what}")
