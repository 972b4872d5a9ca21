"""A certificate authority of its own and a server certificate for this machine's loopback addresses."""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from simulator.kube.objects import Obj

_BACKDATED = timedelta(minutes=5)  # a client whose clock is a little behind must not refuse a certificate just made
_CA_LIFE = timedelta(days=3650)
_SERVER_LIFE = timedelta(days=365)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


class Pki:
    """The CA is kept with the server's state, so that kubeconfigs outlive a restart; server certificates are not."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        start = datetime.now(UTC) - _BACKDATED
        name = _name("hostler-simulator-ca")
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + _CA_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def ca_pem(self) -> str:
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def dump(self) -> Obj:
        return {"ca": self.ca_pem, "key": _key_pem(self._key).decode()}

    def load(self, state: Obj) -> None:
        key = serialization.load_pem_private_key(state["key"].encode(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of the simulator's CA is not an elliptic-curve key")
        self._key = key
        self._certificate = x509.load_pem_x509_certificate(state["ca"].encode())

    def ssl_context(self) -> ssl.SSLContext:
        """A server context with a certificate for 127.0.0.1 and localhost, newly issued."""
        key = ec.generate_private_key(ec.SECP256R1())
        chain = self._issue(key).public_bytes(serialization.Encoding.PEM) + self.ca_pem.encode()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        with tempfile.TemporaryDirectory() as folder:  # the ssl module reads files only
            file = Path(folder) / "server.pem"
            file.touch(mode=0o600)
            file.write_bytes(_key_pem(key) + chain)
            context.load_cert_chain(file)
        return context

    def _issue(self, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
        start = datetime.now(UTC) - _BACKDATED
        names: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.DNSName("localhost"),
        ]
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(_name("kube-apiserver"))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + _SERVER_LIFE)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )
