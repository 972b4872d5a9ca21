"""A kubelet's way to an identity of its own: TLS bootstrapping with the token of its user data.

The signer kubernetes.io/kube-apiserver-client-kubelet issues for exactly the usages *digital signature* and *client
auth*; with any other set the request stays Pending without a word. A real API server issues a client certificate, the
simulated one a bearer token in a PEM block of its own; the kubelet takes either.
"""

from __future__ import annotations

import asyncio
import base64

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import BaseModel, ConfigDict, Field

from simulator.client import CallError, KubeClient, Obj

SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
USAGES = ["digital signature", "client auth"]
BEARER_BLOCK = "HOSTLER BEARER TOKEN"
ISSUE_TIMEOUT = 900.0  # seconds a kubelet waits for its certificate before it asks again, as the real one does


class Identity(BaseModel):
    """What the kubelet keeps on its disk: it outlives a reboot, and a restart of the simulator."""

    model_config = ConfigDict(frozen=True)

    node_name: str
    token: str | None = Field(default=None, repr=False)
    certificate: str | None = Field(default=None, repr=False)
    """PEM; `key` belongs to it."""
    key: str | None = Field(default=None, repr=False)


async def bootstrap(client: KubeClient, node_name: str, poll: float) -> Identity:
    """Ask for an identity with a bootstrap client, and wait until it is issued, looking every `poll` seconds.

    Raises `ApiError`: 401 when the token is unknown or revoked (also while waiting), 403 when the request was denied,
    504 when nothing was issued within ISSUE_TIMEOUT.
    """
    key_pem, request_pem = _certificate_request(node_name)
    created = await client.create(
        "certificatesigningrequests",
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "node-csr-"},
            "spec": {"request": base64.b64encode(request_pem).decode(), "signerName": SIGNER, "usages": USAGES},
        },
    )
    name = created["metadata"]["name"]
    try:
        async with asyncio.timeout(ISSUE_TIMEOUT):
            issued = await _issued(client, name, created, poll)
    except TimeoutError:
        raise CallError(504, "Timeout", f"certificate signing request {name} was not issued in time") from None
    return _identity(node_name, issued, key_pem)


async def _issued(client: KubeClient, name: str, csr: Obj, poll: float) -> str:
    while True:
        status = csr.get("status") or {}
        for condition in status.get("conditions", ()):
            if condition["type"] in ("Denied", "Failed"):
                message = f"certificate signing request {name} is {condition['type']}: {condition.get('message', '')}"
                raise CallError(403, "Forbidden", message)
        if status.get("certificate"):
            return base64.b64decode(status["certificate"]).decode()
        await asyncio.sleep(poll)
        csr = await client.get("certificatesigningrequests", name)


def _identity(node_name: str, issued: str, key_pem: str) -> Identity:
    begin, end = f"-----BEGIN {BEARER_BLOCK}-----", f"-----END {BEARER_BLOCK}-----"
    if begin in issued:
        body = issued.split(begin, 1)[1].split(end, 1)[0]
        return Identity(node_name=node_name, token="".join(body.split()))
    return Identity(node_name=node_name, certificate=issued, key=key_pem)


def _certificate_request(node_name: str) -> tuple[str, bytes]:
    """A new key and the request for it, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node_name}"),
        ]
    )
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key_pem.decode(), request.public_bytes(serialization.Encoding.PEM)
