"""A simulated API server of a test's own, with access to its frame, and nodes that join it."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kube_wire import ADMIN_TOKEN, KubeTarget, Obj, serving

from simulator.frame import Call, Frame
from simulator.kube import KubeApi

SECRETS = "/api/v1/namespaces/kube-system/secrets"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TOKEN_ID, TOKEN_SECRET = "abcdef", "0123456789abcdef"
TOKEN = f"{TOKEN_ID}.{TOKEN_SECRET}"
BEGIN, END = "-----BEGIN HOSTLER BEARER TOKEN-----\n", "\n-----END HOSTLER BEARER TOKEN-----\n"


class World:
    def __init__(self, frame: Frame, api: KubeApi, kube: KubeTarget) -> None:
        self.frame = frame
        self.api = api
        self.kube = kube

    def last(self, operation: str) -> Call:
        return self.frame.calls(operation=operation)[-1]

    async def kubelet(self, name: str) -> str:
        """The token of a kubelet that joined as it should."""
        await bootstrap_secret(self.kube)
        made = await self.kube.call("POST", REQUESTS, signing_request(name), token=TOKEN)
        certificate = (await self.kube.get(f"{REQUESTS}/{made.ok()['metadata']['name']}"))["status"]["certificate"]
        return issued(certificate)


@contextlib.asynccontextmanager
async def new_world() -> AsyncIterator[World]:
    frame = Frame()
    api = KubeApi(frame, admin_token=ADMIN_TOKEN)
    async with serving(api) as kube:
        yield World(frame, api, kube)


async def bootstrap_secret(kube: KubeTarget, kind: str = "bootstrap.kubernetes.io/token", **data: str) -> None:
    name = f"bootstrap-token-{TOKEN_ID}"
    content = {"token-id": TOKEN_ID, "token-secret": TOKEN_SECRET, "usage-bootstrap-authentication": "true", **data}
    await kube.call("DELETE", f"{SECRETS}/{name}")
    await kube.create(SECRETS, {"metadata": {"name": name}, "type": kind, "stringData": content})


def signing_request(name: str, *, organization: str = "system:nodes", usages: tuple[str, ...] = ()) -> Obj:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{name}"),
        ]
    )
    key = ec.generate_private_key(ec.SECP256R1())
    pem = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    return {
        "metadata": {"generateName": "csr-"},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": list(usages or ("digital signature", "client auth")),
        },
    }


def issued(certificate: str) -> str:
    block = base64.b64decode(certificate).decode()
    assert block.startswith(BEGIN)
    assert block.endswith(END)
    return block.removeprefix(BEGIN).removesuffix(END)
