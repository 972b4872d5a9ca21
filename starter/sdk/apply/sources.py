"""Where Secret manifests go: the control source of secrets of the settings. Never to Temporal, never to the screen."""

from __future__ import annotations

import base64
import os
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from activities.kube.client import Kube, KubeError, secret_path
from resources.manifests import Secret
from resources.names import is_name
from resources.settings import Settings
from starter.sdk.errors import HostlerError, Refused
from starter.sdk.kube import connect_cluster
from starter.sdk.results import Json, Verb

_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_UNFINISHED = ".hostler-"
CONFLICTS = 3
"""Writes of one Secret before a conflict with another writer is given up."""


class SecretSource(Protocol):
    @property
    def place(self) -> str:
        """What people call the source."""

    async def read(self, namespace: str, name: str) -> dict[str, bytes] | None:
        """The values of a Secret, to be forgotten at once; None where there is none."""

    async def compare(self, secret: Secret) -> Verb:
        """What `write` would do."""

    async def write(self, secret: Secret) -> Verb:
        """Makes it so: the keys become those of the manifest; a key that the manifest no longer has is removed, since a
        credential that somebody took out must not stay. Safe to repeat."""


def open_source(settings: Settings) -> AbstractAsyncContextManager[SecretSource]:
    """Opens the source. Raises Refused where it cannot be written to."""
    match settings.secrets.source:
        case "kubernetes":
            return _kubernetes(settings)
        case "directory":
            return _directory(settings)
        case "environment":
            raise Refused(
                "secrets come from the worker's environment (secrets.source: environment), which cannot be written to: "
                "set the variables where the worker runs, and apply the other manifests without the Secrets"
            )


# -- Kubernetes -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _kubernetes(settings: Settings) -> AsyncIterator[SecretSource]:
    async with connect_cluster(settings, settings.secrets.cluster or settings.default_cluster) as kube:
        yield KubernetesSource(kube)


class KubernetesSource:
    """Secrets of the control cluster, by merge patch: labels and annotations of others stay."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    @property
    def place(self) -> str:
        return f"cluster {self._kube.name}"

    async def read(self, namespace: str, name: str) -> dict[str, bytes] | None:
        found = await self._kube.find(secret_path(namespace, name))
        data = None if found is None else found.get("data") or {}
        return None if data is None else {key: base64.b64decode(value) for key, value in data.items()}

    async def compare(self, secret: Secret) -> Verb:
        current = await self._kube.find(secret_path(secret.metadata.namespace, secret.metadata.name))
        if current is None:
            return Verb.CREATED
        return Verb.CONFIGURED if _patch(secret, current) else Verb.UNCHANGED

    async def write(self, secret: Secret) -> Verb:
        namespace, name = secret.metadata.namespace, secret.metadata.name
        for _ in range(CONFLICTS):
            current = await self._kube.find(secret_path(namespace, name))
            try:
                if current is None:
                    await self._kube.create(secret_path(namespace), _body(secret))
                    return Verb.CREATED
                patch = _patch(secret, current)
                if not patch:
                    return Verb.UNCHANGED
                # The removed keys are computed from what was read: without its version, a key that another writer has
                # just added would be removed by old news.
                patch["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"]
                await self._kube.merge_patch(secret_path(namespace, name), patch)
                return Verb.CONFIGURED
            except KubeError as e:
                if e.status == 0:
                    raise
                if e.status == 404:
                    raise HostlerError(
                        f"{e}: does the namespace {namespace!r} exist? (kubectl create namespace)"
                    ) from None
                if e.status != 409:
                    # The server's own message may quote what was sent.
                    wrong = f": wrong fields: {', '.join(e.fields)}" if e.fields else ""
                    words = f"cluster {self._kube.name}: secret {namespace}/{name}: {e.status} {e.reason}{wrong}"
                    raise HostlerError(words) from None
        raise HostlerError(f"secret {namespace}/{name}: somebody else keeps changing it; apply again")


def _body(secret: Secret) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": secret.type,
        "metadata": {
            "name": secret.metadata.name,
            "namespace": secret.metadata.namespace,
            "labels": secret.metadata.labels,
            "annotations": secret.metadata.annotations,
        },
        "data": {k: base64.b64encode(v).decode() for k, v in secret.plain().items()},
    }


def _patch(secret: Secret, current: Json) -> Json:
    """The merge patch from `current` to the manifest; empty when there is nothing to do."""
    wanted = _body(secret)
    data = current.get("data") or {}
    changed: Json = {k: v for k, v in wanted["data"].items() if data.get(k) != v}
    changed |= {k: None for k in data if k not in wanted["data"]}
    metadata: Json = {}
    for part in ("labels", "annotations"):
        have = current["metadata"].get(part) or {}
        new = {k: v for k, v in wanted["metadata"][part].items() if have.get(k) != v}
        if new:
            metadata[part] = new
    if not changed and not metadata and current.get("type", "Opaque") == secret.type:
        return {}
    return {"metadata": metadata, "data": changed, "type": secret.type}


# -- a directory ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _directory(settings: Settings) -> AsyncIterator[SecretSource]:
    if settings.secrets.directory is None:
        raise Refused("secrets.source is directory, but secrets.directory is not set in the settings")
    yield DirectorySource(settings.path(settings.secrets.directory))


class DirectorySource:
    """Files <directory>/<namespace>/<name>/<key>, readable by their owner only."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def place(self) -> str:
        return f"directory {self._directory}"

    async def read(self, namespace: str, name: str) -> dict[str, bytes] | None:
        if not (is_name(namespace) and is_name(name)):  # it becomes a path
            return None
        return self._values(self._directory / namespace / name) or None

    async def compare(self, secret: Secret) -> Verb:
        folder, current = self._read(secret)
        if not folder.exists():
            return Verb.CREATED
        return Verb.UNCHANGED if current == secret.plain() else Verb.CONFIGURED

    async def write(self, secret: Secret) -> Verb:
        verb = await self.compare(secret)
        if verb is Verb.UNCHANGED:
            return verb
        folder, current = self._read(secret)
        wanted = secret.plain()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for key, value in wanted.items():
                if current.get(key) != value:
                    _replace(folder / key, value)
            for key in current.keys() - wanted.keys():
                (folder / key).unlink(missing_ok=True)
        except OSError as e:
            raise HostlerError(f"{e.filename or folder}: cannot be written: {e.strerror}") from None
        return verb

    def _read(self, secret: Secret) -> tuple[Path, dict[str, bytes]]:
        _check(secret)
        folder = self._directory / secret.metadata.namespace / secret.metadata.name
        return folder, self._values(folder)

    def _values(self, folder: Path) -> dict[str, bytes]:
        try:
            return {name: file.read_bytes() for name, file in self._files(folder).items()}
        except OSError as e:
            raise HostlerError(f"{e.filename or folder}: cannot be read: {e.strerror}") from None

    @staticmethod
    def _files(folder: Path) -> dict[str, Path]:
        """The Secret's keys; none where it does not exist."""
        if not folder.exists():
            return {}
        try:
            return {p.name: p for p in folder.iterdir() if p.is_file() and not p.name.startswith(("..", _UNFINISHED))}
        except OSError as e:
            raise HostlerError(f"{e.filename or folder}: cannot be read: {e.strerror}") from None


def _check(secret: Secret) -> None:
    """Checks keys by the API server's own rules (IsConfigMapKey), which also keep every file inside the directory."""
    namespace, name = secret.metadata.namespace, secret.metadata.name
    if not is_name(namespace):
        raise Refused(f"secret {name}: {namespace!r} is not a namespace: use lower-case letters, digits and '-'")
    for key in secret.plain():
        if not _KEY.fullmatch(key) or key.startswith(".."):
            raise Refused(f"secret {namespace}/{name}: {key!r} is not a key: use letters, digits, '-', '_' and '.'")


def _replace(file: Path, value: bytes) -> None:
    """Replaces the file in one step, so that a worker never reads half a value; 0600 from the first byte."""
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=_UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(value)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
