"""A real API server issues certificates, not tokens: how the kubelet handles them, against a small signer of our
own."""

from __future__ import annotations

import base64
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from simulated.support import eventually, fake_vm

from simulator.kubelet import Kubelets, Timings


async def test_an_issued_certificate_is_used_as_client_certificate(tmp_path: Path) -> None:
    authority = _Authority(tmp_path)
    runner = web.AppRunner(authority.app, shutdown_timeout=0.2)
    await runner.setup()
    pool: Kubelets | None = None
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=authority.server_context())
        await site.start()
        pool = Kubelets(f"https://127.0.0.1:{runner.addresses[0][1]}", authority.ca_pem, timings=Timings.fast())
        await pool.start()
        pool.observe(fake_vm())

        async def registered_by() -> list[str]:
            return authority.registered_by

        assert await eventually(registered_by) == [f"system:node:{fake_vm().private_dns_name}"]
    finally:
        if pool is not None:
            await pool.stop()
        await runner.cleanup()


class _Authority:
    """As much of a real API server as signs one request and looks at the client certificate of one registration."""

    def __init__(self, folder: Path) -> None:
        self.registered_by: list[str] = []
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
        self._ca = self._sign(self._name, self._key.public_key(), ca=True)
        self.ca_pem = self._ca.public_bytes(serialization.Encoding.PEM).decode()
        self.app = web.Application()
        self.app.router.add_post("/apis/certificates.k8s.io/v1/certificatesigningrequests", self._issue)
        self.app.router.add_post("/api/v1/nodes", self._register)

    def server_context(self) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
        certificate = self._sign(name, key.public_key())
        (self._folder / "s.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (self._folder / "s.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / "s.crt", self._folder / "s.key")
        context.load_verify_locations(cadata=self.ca_pem)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    async def _issue(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["spec"]["usages"] == ["digital signature", "client auth"]
        csr = x509.load_pem_x509_csr(base64.b64decode(body["spec"]["request"]))
        pem = self._sign(csr.subject, csr.public_key()).public_bytes(serialization.Encoding.PEM)
        body["metadata"]["name"] = "csr-1"
        body["status"] = {"certificate": base64.b64encode(pem).decode()}
        return web.json_response(body, status=201)

    async def _register(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        shown = request.transport.get_extra_info("ssl_object").getpeercert()
        subject = {key: value for ((key, value),) in shown["subject"]}
        assert subject["organizationName"] == "system:nodes"
        self.registered_by.append(subject["commonName"])
        return web.json_response(await request.json(), status=201)

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, ca: bool = False) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if not ca:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())
