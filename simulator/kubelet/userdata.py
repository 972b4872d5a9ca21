"""What a VM's user data tells its kubelet: cloud-config's write_files with a bootstrap kubeconfig and kubelet flags."""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import shlex
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from simulator.node_labels import OWN_PREFIXES, kubelet_may_set

BOOTSTRAP_KUBECONFIG = "bootstrap-kubeconfig"  # the end of that file's path
KUBELET_DEFAULTS = "/etc/default/kubelet"

_TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")
_TAINT = re.compile(r"(?P<key>[^=:]+)(?:=(?P<value>[^:]*))?:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute)")
# kubelet's flags that affect neither the Node nor the joining: accepted, and without effect here. Any other is refused.
_NO_EFFECT = frozenset(
    {
        "bootstrap-kubeconfig",
        "cert-dir",
        "cloud-provider",
        "config",
        "container-runtime-endpoint",
        "image-gc-high-threshold",
        "image-gc-low-threshold",
        "kubeconfig",
        "pod-infra-container-image",
        "root-dir",
        "rotate-certificates",
        "v",
    }
)


class UserDataError(ValueError):
    """The machine cannot join with this user data; the message is what its console says. It holds no secret."""


@dataclass(frozen=True)
class NodeConfig:
    """What the kubelet knows before it has spoken to the API server."""

    token: str = field(repr=False)
    """The bootstrap token, `id.secret`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()


def parse_user_data(data: bytes) -> NodeConfig:
    """Reads cloud-config. The server address in its kubeconfig is a name in the simulated network: it is not used.

    Raises `UserDataError` for anything a machine could not join with, or that this simulation does not emulate.
    """
    files = _files(data)
    kubeconfig = next((text for path, text in files.items() if path.endswith(BOOTSTRAP_KUBECONFIG)), None)
    if kubeconfig is None:
        raise UserDataError(
            "unable to load bootstrap kubeconfig: no file whose path ends with "
            f"{BOOTSTRAP_KUBECONFIG} among write_files ({', '.join(files) or 'none'})"
        )
    flags = _flags(files.get(KUBELET_DEFAULTS, ""))
    return NodeConfig(
        token=_token(kubeconfig),
        labels=_labels(flags.get("node-labels", "")),
        taints=_taints(flags.get("register-with-taints", "")),
    )


def _files(data: bytes) -> dict[str, str]:
    if data[:2] == b"\x1f\x8b":
        data = _gunzip(data, "user data")
    text = data.decode(errors="replace")
    if not text.strip():
        raise UserDataError("no user data: nothing to configure the kubelet with")
    if not text.startswith("#cloud-config"):
        raise UserDataError(
            f"user data starts with {text.splitlines()[0][:40]!r}: the simulator reads only #cloud-config "
            "(no scripts, MIME archives or Ignition)"
        )
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as e:
        # Only the problem, not the excerpt that str(e) shows: it may be the line with the token.
        raise UserDataError(f"failed loading yaml blob: {getattr(e, 'problem', None) or 'not YAML'}") from None
    entries = config.get("write_files") if isinstance(config, dict) else None
    if not isinstance(entries, list):
        raise UserDataError("cloud-config has no write_files: the kubelet finds no bootstrap kubeconfig")
    return dict(_file(entry) for entry in entries)


def _file(entry: Any) -> tuple[str, str]:
    if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
        raise UserDataError("an entry of write_files has no path")
    path, content, encoding = entry["path"], str(entry.get("content", "")), entry.get("encoding", "text/plain")
    match encoding:
        case "text/plain":
            return path, content
        case "b64" | "base64":
            return path, _base64(content, path).decode(errors="replace")
        case "gz+b64" | "gz+base64" | "gzip+b64" | "gzip+base64":
            return path, _gunzip(_base64(content, path), path).decode(errors="replace")
        case _:
            raise UserDataError(f"{path}: unknown encoding {encoding!r} in write_files")


def _base64(content: str, path: str) -> bytes:
    try:
        return base64.b64decode("".join(content.split()), validate=True)
    except binascii.Error:
        raise UserDataError(f"{path}: content is not base64") from None


def _gunzip(data: bytes, what: str) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        raise UserDataError(f"{what}: content is not gzip") from None


def _token(kubeconfig: str) -> str:
    try:
        users = yaml.safe_load(kubeconfig)["users"]
        token = users[0]["user"]["token"]
    except (yaml.YAMLError, KeyError, IndexError, TypeError):
        raise UserDataError("unable to load bootstrap kubeconfig: it has no users[0].user.token") from None
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise UserDataError("unable to load bootstrap kubeconfig: its token is not of the form id.secret")
    return token


def _flags(defaults: str) -> dict[str, str]:
    """The flags in KUBELET_EXTRA_ARGS, without their dashes; the file is systemd's EnvironmentFile."""
    arguments: list[str] = []
    for line in defaults.splitlines():
        name, _, value = line.strip().partition("=")
        if name == "KUBELET_EXTRA_ARGS":
            quoted = value[:1] in ("'", '"')
            arguments = _words(_words(value)[0] if quoted else value)
    flags: dict[str, str] = {}
    while arguments:
        flag, equals, value = arguments.pop(0).partition("=")
        name = flag.removeprefix("--")
        if name == flag or name not in _NO_EFFECT | {"node-labels", "register-with-taints"}:
            raise UserDataError(f"kubelet flag {flag} is not emulated")
        if not equals and arguments and not arguments[0].startswith("--"):
            value = arguments.pop(0)
        flags[name] = value
    return flags


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as e:
        raise UserDataError(f"{KUBELET_DEFAULTS}: {e}") from None


def _labels(value: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in filter(None, value.split(",")):
        key, equals, content = pair.partition("=")
        if not equals:
            raise UserDataError(f"failed to parse kubelet flag --node-labels: {pair} must be formatted as key=value")
        labels[key] = content
    refused = sorted(key for key in labels if not kubelet_may_set(key))
    if refused:
        # The kubelet of a worker may not give itself a role: NodeRestriction would refuse it anyway.
        raise UserDataError(
            f"failed to validate kubelet flags: unknown 'kubernetes.io' or 'k8s.io' labels specified with "
            f"--node-labels: [{' '.join(refused)}]; those in the 'kubernetes.io' namespace must begin with an allowed "
            f"prefix ({', '.join(OWN_PREFIXES)}) or be in the specifically allowed set"
        )
    return labels


def _taints(value: str) -> tuple[dict[str, str], ...]:
    taints = []
    for text in filter(None, value.split(",")):
        match = _TAINT.fullmatch(text)
        if match is None:
            raise UserDataError(f"failed to parse kubelet flag --register-with-taints: invalid taint spec: {text}")
        taints.append({key: part for key, part in match.groupdict().items() if part is not None})
    return tuple(taints)
