"""Gives kubelets their certificates where there is no kube-controller-manager to do it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubekit import KubeTarget, Obj
from realkube_certificates import client_certificate

from simulator.kube import csr

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


async def sign_requests(kube: KubeTarget, folder: Path) -> None:
    """Approve and sign, by the simulator's rules and with the CA in `folder`, until cancelled."""
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    ca = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    while True:
        async for event in kube.watch(REQUESTS):  # without a version: existing requests come first
            if event["type"] in ("ADDED", "MODIFIED"):
                await _advance(kube, event["object"], ca, key)


async def _advance(kube: KubeTarget, request: Obj, ca: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    path = f"{REQUESTS}/{request['metadata']['name']}"
    if not request["status"] and csr.may_be_approved(request):
        condition = {"type": "Approved", "status": "True", "reason": "AutoApproved", "message": "a kubelet's"}
        condition["lastUpdateTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        await kube.call("PUT", f"{path}/approval", {**request, "status": {"conditions": [condition]}})
    elif csr.awaits_signing(request) and csr.node_of(request) is None:
        csr.fail(request)
        await kube.call("PUT", f"{path}/status", request)
    elif csr.awaits_signing(request):
        wanted = x509.load_pem_x509_csr(base64.b64decode(request["spec"]["request"]))
        signed = client_certificate(wanted.subject, wanted.public_key(), ca, key)
        pem = signed.public_bytes(serialization.Encoding.PEM)
        request["status"]["certificate"] = base64.b64encode(pem).decode()
        await kube.call("PUT", f"{path}/status", request)
