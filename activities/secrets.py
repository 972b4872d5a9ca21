"""Where credentials and user data come from: a Kubernetes Secret, a directory, or the environment.

Values stay inside the activity that asked for them.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretBytes, SecretStr

from activities.kube.client import ApiServers, secret_path
from resources.machine.manifest import SecretRef
from resources.names import is_name
from resources.settings import Settings, SettingsError


class SecretMissing(Exception):
    """A Secret or key is missing. The message names it and the source; never a value."""


class SecretData(BaseModel):
    model_config = ConfigDict(frozen=True)

    version: str
    """Changes with the content: resourceVersion, or a hash of a directory's or the environment's values."""
    values: Mapping[str, SecretStr]
    binary: Mapping[str, SecretBytes] = Field(default_factory=dict)
    """Values that are no text: compressed user data is one. What else lies in the same Secret is nobody's business."""

    def require(self, key: str, ref: SecretRef) -> SecretStr:
        if key not in self.values:
            raise SecretMissing(f"Secret {ref.namespace}/{ref.name} has no key {key!r}")
        return self.values[key]


class Secrets:
    def __init__(self, settings: Settings, clusters: ApiServers) -> None:
        self._settings = settings
        self._clusters = clusters

    async def get(self, ref: SecretRef) -> SecretData:
        """Returns the Secret. Raises SecretMissing; KubeError when the source cannot be reached."""
        if not (is_name(ref.namespace) and is_name(ref.name)):  # it becomes a path
            raise SecretMissing(f"Secret {ref.namespace}/{ref.name}: not a valid name for a Secret")
        source = self._settings.secrets.source
        if source == "kubernetes":
            return await self._kubernetes(ref)
        data = self._directory(ref) if source == "directory" else _environment(ref)
        if not data:
            raise SecretMissing(f"Secret {ref.namespace}/{ref.name} is not in the {source} with the secrets")
        return _secret(_hash(data), data)

    def account_default(self, provider: str) -> Mapping[str, SecretStr] | None:
        """The account's default credentials from the worker's settings, key to file."""
        cloud = self._settings.clouds.get(provider.lower())
        if cloud is None or not cloud.default_secret:
            return None
        return {k: self._default(provider, k, self._settings.path(p)) for k, p in cloud.default_secret.items()}

    @staticmethod
    def _default(provider: str, key: str, file: Path) -> SecretStr:
        try:
            return SecretStr(file.read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError):
            raise SettingsError(
                f"clouds.{provider.lower()}.defaultSecret.{key}: {file} cannot be read as text"
            ) from None

    async def _kubernetes(self, ref: SecretRef) -> SecretData:
        kube = await self._clusters.get(self._settings.secrets.cluster or self._settings.default_cluster)
        found = await kube.find(secret_path(ref.namespace, ref.name))
        if found is None:
            raise SecretMissing(f"Secret {ref.namespace}/{ref.name} does not exist in cluster {kube.name}")
        data = {k: base64.b64decode(v) for k, v in (found.get("data") or {}).items()}
        return _secret(found["metadata"]["resourceVersion"], data)

    def _directory(self, ref: SecretRef) -> dict[str, bytes]:
        root = self._settings.secrets.directory
        if root is None:
            raise SettingsError("secrets.directory: needed when secrets.source is directory")
        folder = self._settings.path(root) / ref.namespace / ref.name
        for _ in range(3):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # not there, or swapped meanwhile
                return _files(folder)
        return {}


def _files(folder: Path) -> dict[str, bytes]:
    """The files of one generation: kubelet swaps a mounted Secret as a whole, by the link `..data`, and a key pair with
    one half from before would be refused."""
    one = (folder / "..data").resolve() if (folder / "..data").exists() else folder
    return {f.name: f.read_bytes() for f in sorted(one.iterdir()) if f.is_file()}


def _secret(version: str, data: Mapping[str, bytes]) -> SecretData:
    values, binary = {}, {}
    for key, raw in data.items():
        try:
            values[key] = SecretStr(raw.decode())
        except UnicodeDecodeError:
            binary[key] = SecretBytes(raw)
    return SecretData(version=version, values=values, binary=binary)


def _environment(ref: SecretRef) -> dict[str, bytes]:
    """The variables HOSTLER_SECRET_<NAMESPACE>_<NAME>__<key>, with characters other than letters and digits as `_`."""
    prefix = "HOSTLER_SECRET_" + re.sub(r"[^A-Z0-9]", "_", f"{ref.namespace}_{ref.name}".upper()) + "__"
    return {k.removeprefix(prefix): os.fsencode(v) for k, v in os.environ.items() if k.startswith(prefix)}


def _hash(data: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for key in sorted(data):
        digest.update(b"%s\0%s\0" % (key.encode(), data[key]))
    return digest.hexdigest()[:16]
