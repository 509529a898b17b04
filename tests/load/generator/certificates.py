"""A certificate authority for the tests, with a server and a client."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """A certificate with its key, as PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs for 127.0.0.1."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        builder = _builder(name, name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.certificate = self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str) -> Pair:
        """A certificate for a server or a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = _builder(subject, self._certificate.subject, key).add_extension(
            x509.SubjectAlternativeName([address]), False
        )
        signed = builder.sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return Pair(signed.public_bytes(serialization.Encoding.PEM), private)

    def server(self, folder: Path) -> ssl.SSLContext:
        """A server's side that lets nobody in without a certificate of this authority."""
        pair = self.issue("server")
        (folder / "server.pem").write_bytes(pair.certificate + pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        context.load_verify_locations(cadata=self.certificate.decode())
        context.verify_mode = ssl.CERT_REQUIRED
        return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
    )
