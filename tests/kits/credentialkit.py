"""Kubeconfigs whose credentials rotate, and a plugin that gives them."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kube_wire import KubeTarget
from realkube_certificates import client_certificate

VERSION = "client.authentication.k8s.io/v1"

PLUGIN = """\
import json, os, pathlib, sys
here = pathlib.Path(sys.argv[1])
with (here / "asked").open("a") as asked:
    asked.write(os.environ["KUBERNETES_EXEC_INFO"] + "\\n")
exec(compile((here / "does").read_text(), "does", "exec"))
"""


def write_kubeconfig(file: Path, kube: KubeTarget, user: dict[str, Any], **cluster: Any) -> Path:
    config = yaml.safe_load(kube.kubeconfig())
    config["users"][0]["user"] = user
    config["clusters"][0]["cluster"] |= cluster
    file.write_text(yaml.safe_dump(config))
    return file


class Plugin:
    """A credential plugin as a program; what it does can be changed while it is in use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._script = folder / "plugin.py"
        self._script.write_text(PLUGIN)

    def user(self, **more: Any) -> dict[str, Any]:
        arguments = [str(self._script), str(self.folder)]
        # Without what a test environment's Python imports at its start: a plugin that is slow to begin tests nothing.
        program = {"command": sys.executable, "args": ["-I", "-S", *arguments], "interactiveMode": "Never"}
        return {"exec": {"apiVersion": VERSION, **program, **more}}

    def does(self, code: str) -> None:
        (self.folder / "does").write_text(code)

    def gives(self, expires: datetime | None = None, version: str = VERSION, **status: str) -> None:
        if expires is not None:
            status["expirationTimestamp"] = expires.isoformat().replace("+00:00", "Z")
        answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        self.does(f"print({json.dumps(answer)!r})")

    @property
    def asked(self) -> list[dict[str, Any]]:
        """What it was asked at each run."""
        file = self.folder / "asked"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def new_certificate(ca_file: Path, name: str) -> tuple[str, str]:
    """A client's certificate with its key, as PEM. The authority's key, ca.key, lies beside its certificate."""
    authority = x509.load_pem_x509_certificate(ca_file.read_bytes())
    ca_key = serialization.load_pem_private_key(ca_file.with_name("ca.key").read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = client_certificate(subject, key.public_key(), authority, ca_key)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return (
        certificate.public_bytes(encoding).decode(),
        key.private_bytes(encoding, form, serialization.NoEncryption()).decode(),
    )
