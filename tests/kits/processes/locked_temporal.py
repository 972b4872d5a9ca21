"""Temporal's own server behind its two locks: client certificates, and tokens with roles (its JWT authorizer).

It has SQLite in memory, and is configured by the variables of the official image.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import time
from pathlib import Path

from apiserver.certificates import write_certificates
from apiserver.simulated import new_certificate
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from paths import ROOT
from stack.programs import TEMPORAL, program
from temporalio.client import Client
from temporalio.service import TLSConfig

from processes.children import DEADLINE, HOST, free_port

NEEDED = None if shutil.which("go") else "Temporal's server is built with Go, which is not here"
NAMESPACE = "locked"
ADMIN = "temporal-system:admin"
PORTS = [
    f"{service}_{port}_PORT"
    for service in ("FRONTEND", "INTERNAL_FRONTEND", "MATCHING", "HISTORY", "WORKER")
    for port in ("GRPC", "MEMBERSHIP", "HTTP")
]


class LockedTemporal:
    """A server at `address`, whose authority's certificate is `folder`/ca.crt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: str(free_port()) for name in PORTS}
        self.address = f"{HOST}:{self.ports['FRONTEND_GRPC_PORT']}"
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        folder = self.folder
        write_certificates(folder)
        point = self.key.public_key().public_numbers()
        key = {"kty": "EC", "crv": "P-256", "x": _word(_bytes(point.x)), "y": _word(_bytes(point.y)), "kid": "1"}
        (folder / "keys.json").write_text(json.dumps({"keys": [key]}))
        variables = {
            **self.ports,
            "DB": "sqlite",
            "SQLITE_MODE": "memory",
            "SQLITE_CACHE": "shared",
            "BIND_ON_IP": HOST,
            "LOG_LEVEL": "warn",
            "DYNAMIC_CONFIG_FILE_PATH": str(ROOT / "deploy/compose/dynamicconfig.yaml"),
            # The server's own workers do not come by the door that is locked.
            "USE_INTERNAL_FRONTEND": "true",
            "TEMPORAL_TLS_FRONTEND_CERT": str(folder / "server.crt"),
            "TEMPORAL_TLS_FRONTEND_KEY": str(folder / "server.key"),
            "TEMPORAL_TLS_REQUIRE_CLIENT_AUTH": "true",
            "TEMPORAL_TLS_CLIENT1_CA_CERT": str(folder / "ca.crt"),
            "TEMPORAL_AUTH_AUTHORIZER": "default",
            "TEMPORAL_AUTH_CLAIM_MAPPER": "default",
            "TEMPORAL_JWT_KEY_SOURCE1": f"file://{folder / 'keys.json'}",
        }
        services = ("frontend", "internal-frontend", "history", "matching", "worker")
        argv = [str(program(TEMPORAL, "temporal-server")), "start", *(f"--service={each}" for each in services)]
        with (folder / "temporal.log").open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *argv, env={"PATH": os.environ["PATH"], **variables}, stdout=log, stderr=log
            )
        self.certificate(folder)
        ca, certificate, key = ((folder / name).read_bytes() for name in ("ca.crt", "client.crt", "client.key"))
        tls = TLSConfig(server_root_ca_cert=ca, client_cert=certificate, client_private_key=key)
        give_up = time.monotonic() + DEADLINE
        while True:
            try:
                await Client.connect(self.address, tls=tls, api_key=self.token(ADMIN))
                return
            except RuntimeError:  # it does not serve yet
                assert time.monotonic() < give_up, (folder / "temporal.log").read_text()[-3000:]
                await asyncio.sleep(0.1)

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
            await self.process.wait()

    def certificate(self, folder: Path) -> None:
        """Writes a client's new certificate and key there, as client.crt and client.key."""
        certificate, key = new_certificate(self.folder / "ca.crt", "hostler")
        (folder / "client.crt").write_text(certificate)
        (folder / "client.key").write_text(key)

    def token(self, *permissions: str, lasts: float = 3600) -> str:
        """A token with these permissions, `<namespace>:<role>` each, for so many seconds."""
        claims = {"sub": "somebody", "exp": time.time() + lasts, "permissions": list(permissions)}
        parts = ({"alg": "ES256", "kid": "1"}, claims)
        signed = ".".join(_word(json.dumps(part).encode()) for part in parts)
        r, s = decode_dss_signature(self.key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_word(_bytes(r) + _bytes(s))}"


def _bytes(number: int) -> bytes:
    return number.to_bytes(32, "big")


def _word(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
