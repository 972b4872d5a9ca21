"""Bootstrap tokens: made, used and revoked inside activities; their secret part is never seen elsewhere.

A token's id derives from (uid, attempt), so that a crash finds the same Secret again and renders the same user data.
The Secret's shape is from kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import string
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from activities.kube.client import Kube, KubeError, secret_path
from resources.calls.machine import MachineRef
from resources.names import TAG_UID
from resources.userdata import PLACEHOLDER_NAME, PLACEHOLDER_TOKEN
from resources.words import kube_time

NAMESPACE = "kube-system"
_ALPHABET = string.ascii_lowercase + string.digits


def token_id(uid: str, attempt: int) -> str:
    """Six characters of [a-z0-9] with full entropy: MCM's three characters of the name clash at a hundred machines."""
    number = int.from_bytes(hashlib.sha256(f"{uid}/{attempt}".encode()).digest()[:8])
    text = ""
    for _ in range(6):
        number, digit = divmod(number, len(_ALPHABET))
        text += _ALPHABET[digit]
    return text


async def ensure_token(kube: Kube, machine: MachineRef, attempt: int, expires: datetime) -> SecretStr:
    """The attempt's token `id.secret`: read where its Secret exists, else made."""
    identity = token_id(machine.uid, attempt)
    path = secret_path(NAMESPACE, f"bootstrap-token-{identity}")
    found = await kube.find(path)
    if found is None:
        secret = "".join(secrets.choice(_ALPHABET) for _ in range(16))
        try:
            await kube.create(secret_path(NAMESPACE), _manifest(machine, identity, secret, expires))
            return SecretStr(f"{identity}.{secret}")
        except KubeError as e:
            if e.status != 409:
                raise
        # The previous attempt of this activity is still under way and was first: its secret counts.
        found = await kube.get(path)
    owner = _owner(found)
    if owner != machine.uid:
        raise KubeError(
            409, "Conflict", f"bootstrap token {identity} belongs to another machine ({owner or 'unknown'})"
        )
    await _prolong(kube, path, found, expires)
    return SecretStr(f"{identity}.{base64.b64decode(found['data']['token-secret']).decode()}")


async def keep_token(kube: Kube, machine: MachineRef, attempt: int, expires: datetime) -> bool:
    """Whether the attempt's token is there; if so, it now lives until `expires` at least. Raises KubeError.

    One that is gone is not made again: its secret part is in the VM's user data and nowhere else.
    """
    path = secret_path(NAMESPACE, f"bootstrap-token-{token_id(machine.uid, attempt)}")
    found = await kube.find(path)
    if found is None or _owner(found) != machine.uid:
        return False
    try:
        await _prolong(kube, path, found, expires)
    except KubeError as e:
        if e.status != 404:  # it went between the two calls
            raise
        return False
    return True


async def _prolong(kube: Kube, path: str, found: dict[str, Any], expires: datetime) -> None:
    """Prolongs the token, and never shortens it: another call may have a later deadline."""
    wanted = _rfc3339(expires)
    if base64.b64decode(found["data"].get("expiration", "")).decode() < wanted:
        await kube.merge_patch(path, {"stringData": {"expiration": wanted}})


async def revoke_tokens(kube: Kube, machine: MachineRef, attempts: int) -> None:
    """Revokes the machine's tokens. Every attempt up to `attempts` may have left one. Idempotent."""
    for attempt in range(1, attempts + 1):
        path = secret_path(NAMESPACE, f"bootstrap-token-{token_id(machine.uid, attempt)}")
        found = await kube.find(path)
        # Six characters may clash, and another machine's token is not ours to revoke.
        if found is not None and _owner(found) == machine.uid:
            await kube.delete(path, {"preconditions": {"uid": found["metadata"]["uid"]}})


def render(user_data: SecretStr, machine: MachineRef, token: SecretStr) -> SecretStr:
    """User data with its placeholders filled, plain and URL-encoded (machine-controller-manager, userdata.go)."""
    text = user_data.get_secret_value()
    for placeholder, value in ((PLACEHOLDER_TOKEN, token.get_secret_value()), (PLACEHOLDER_NAME, machine.name)):
        text = text.replace(placeholder, value).replace(quote(placeholder, safe=""), quote(value, safe=""))
    return SecretStr(text)


def _owner(secret: dict[str, Any]) -> str | None:
    owner: str | None = (secret["metadata"].get("annotations") or {}).get(TAG_UID)
    return owner


def _manifest(machine: MachineRef, identity: str, secret: str, expires: datetime) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {
            "name": f"bootstrap-token-{identity}",
            "namespace": NAMESPACE,
            "annotations": {TAG_UID: machine.uid},
        },
        "stringData": {
            "description": f"Bootstrap token of machine {machine.name}",
            "token-id": identity,
            "token-secret": secret,
            "expiration": _rfc3339(expires),
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
        },
    }


def _rfc3339(time: datetime) -> str:
    """The time in whole seconds, rounded up: a token must not end before the machine's deadline does."""
    return kube_time(time + timedelta(microseconds=999_999))
