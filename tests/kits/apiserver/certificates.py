"""The certificates and keys of a control plane on loopback, as PEM files."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = timedelta(days=2)


def write_certificates(folder: Path) -> None:
    """ca.crt and ca.key (of servers and clients), server.crt and server.key (127.0.0.1), service-accounts.key."""
    ca_key, server_key, accounts_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    ca_name = _name("real-kube-ca")
    ca = (
        _certificate(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    server = (
        _certificate(_name("kube-apiserver"), ca_name, server_key.public_key())
        .add_extension(x509.SubjectAlternativeName([address, x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    for name, certificate in (("ca", ca), ("server", server)):
        (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    for name, key in (("ca", ca_key), ("server", server_key), ("service-accounts", accounts_key)):
        _write_key(folder / f"{name}.key", key)


def client_certificate(
    subject: x509.Name, key: CertificatePublicKeyTypes, ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    """Makes a client's certificate for that name: kube-apiserver takes CN for the user and O for its groups."""
    return (
        _certificate(subject, ca.subject, key)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _certificate(subject: x509.Name, issuer: x509.Name, key: CertificatePublicKeyTypes) -> x509.CertificateBuilder:
    start = datetime.now(UTC) - timedelta(minutes=5)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + LIFE)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _write_key(file: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Writes the key in the traditional form: kube-apiserver does not read the public half of a PKCS#8 file."""
    file.touch(mode=0o600)
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
