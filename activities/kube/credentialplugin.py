"""A kubeconfig's `exec`: a program that gives credentials, by the protocol client.authentication.k8s.io.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from resources.base import with_zone

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
PATIENCE = 30.0  # seconds that it may take; `aws eks get-token` asks STS first
PATIENCE_WITH_PEOPLE = 300.0
OUTPUT_LIMIT = 1 << 20  # bytes
HEARD = 2048  # bytes: the end of what it wrote to stderr, which is looked through for secrets
MESSAGE_LENGTH = 300  # characters quoted of what it wrote to stderr
# What could be a key, a token or a part of one; names of files, hosts and errors have no digits among so many letters.
_SECRET = re.compile(r"eyJ[\w.+/=-]+|(?=[^\s\d]*\d)[\w+/=~%-]{16,}|(?i:(?<=bearer )|(?<=basic ))\S+")
_NAMED = re.compile(r"(?i)((?:token|secret|password|passwd|api[_-]?key)[\w.-]*[\"']?\s*[:=]\s*)\S+")


class CredentialsError(Exception):
    """No credentials can be had. The message names the file or the command, and never holds a secret."""


@dataclass(frozen=True)
class PluginCredentials:
    token: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    expires_at: float = math.inf
    """On the monotonic clock."""

    @property
    def secrets(self) -> tuple[str | None, ...]:
        return self.token, self.certificate, self.key


async def run_plugin(
    config: Mapping[str, Any], folder: Path, cluster: Mapping[str, Any] | None, interactive: bool
) -> PluginCredentials:
    """Runs the command of `config`, the kubeconfig's `exec`. Raises CredentialsError.

    `folder`: what a relative path is relative to; a bare name is looked for in PATH. `cluster`: ExecCredential's
    spec.cluster, where the plugin wants to know it. `interactive`: whether there is a person to ask.
    """
    name, version = str(config.get("command") or ""), config.get("apiVersion")
    if not name:
        raise CredentialsError("its exec has no command")
    if version not in VERSIONS:
        advice = "create the kubeconfig again with a current version of its tool"
        raise CredentialsError(f"{name}: apiVersion {version} is not supported, {' or '.join(VERSIONS)} is: {advice}")
    if config.get("interactiveMode") == "Always" and not interactive:
        raise CredentialsError(
            f"{name}: it wants to prompt a user (interactiveMode Always), which is not possible here"
        )
    interactive = interactive and config.get("interactiveMode") != "Never"
    variables = {v["name"]: v["value"] for v in config.get("env") or ()}
    spec = {"interactive": interactive} | ({"cluster": dict(cluster)} if cluster is not None else {})
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    env = {**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    command = str(folder / name) if os.sep in name else name
    argv = [command, *map(str, config.get("args") or ())]
    output = await _output(name, argv, env, interactive, tuple(variables.values()), config.get("installHint"))
    return _credentials(name, version, output)


async def _output(
    name: str, argv: Sequence[str], env: Mapping[str, str], interactive: bool, hidden: Sequence[str], hint: str | None
) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=env,
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=None if interactive else asyncio.subprocess.PIPE,
            # A session of its own, so that its children end with it. One that asks a person must stay in the terminal's
            # group.
            start_new_session=not interactive,
        )
    except OSError as e:
        more = f"; {hint.strip()}" if isinstance(e, FileNotFoundError) and hint else ""
        raise CredentialsError(f"{name} cannot be run: {e.strerror}{more}") from None
    patience = PATIENCE_WITH_PEOPLE if interactive else PATIENCE
    try:
        async with asyncio.timeout(patience):
            out, err = await asyncio.gather(_read(process, process.stdout), _read(process, process.stderr))
            code = await process.wait()
    except TimeoutError:
        raise CredentialsError(f"{name} has not answered within {patience:g} s, and was killed") from None
    finally:
        if process.returncode is None:
            await _end(process)
    if max(len(out), len(err)) > OUTPUT_LIMIT:
        raise CredentialsError(f"{name} wrote more than {OUTPUT_LIMIT} bytes, and was killed")
    if code:
        raise CredentialsError(f"{name} failed with exit code {code}: {_scrubbed(err, hidden) or 'it said nothing'}")
    return out


async def _read(process: asyncio.subprocess.Process, stream: asyncio.StreamReader | None) -> bytes:
    """All of its output; a program that writes too much is killed."""
    found = b""
    while stream is not None and (chunk := await stream.read(1 << 16)):
        if len(found) <= OUTPUT_LIMIT:
            found += chunk
        else:
            _kill(process)
    return found


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends the program. Its pipes are read to the end, or nobody would hear that it has ended."""
    _kill(process)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await asyncio.gather(_read(process, process.stdout), _read(process, process.stderr))
            await process.wait()


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _scrubbed(said: bytes, hidden: Sequence[str]) -> str:
    """The end of its output, in one line, without what looks like a secret."""
    text = " ".join(said[-HEARD:].decode(errors="replace").split())
    for value in hidden:
        if len(value) >= 8:
            text = text.replace(value, "***")
    text = _SECRET.sub("***", _NAMED.sub(r"\1***", text))
    return text if len(text) <= MESSAGE_LENGTH else f"…{text[-MESSAGE_LENGTH:]}"


def _credentials(name: str, version: str, output: bytes) -> PluginCredentials:
    """The credentials in its answer. No error quotes it."""
    try:
        answer = json.loads(output)
        kind, said, status = answer["kind"], answer["apiVersion"], answer.get("status") or {}
        token, certificate, key = (status.get(k) or None for k in ("token", "clientCertificateData", "clientKeyData"))
        expires = status.get("expirationTimestamp")
        until = with_zone(datetime.fromisoformat(expires)) if expires else None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CredentialsError(f"{name}: its answer is not an ExecCredential") from None
    if (kind, said) != ("ExecCredential", version):
        raise CredentialsError(f"{name}: its answer is not an ExecCredential of {version}")
    if bool(certificate) != bool(key):
        raise CredentialsError(f"{name}: its answer has a certificate without a key, or a key without a certificate")
    if not (token or certificate):
        raise CredentialsError(f"{name}: its answer has neither a token nor a certificate")
    left = math.inf if until is None else (until - datetime.now(UTC)).total_seconds()
    return PluginCredentials(token, certificate, key, time.monotonic() + left)
