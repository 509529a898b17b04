"""Certificates of a local cluster: one CA, short-lived, ECDSA P-256, keys 0600."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from harness.files import write_atomically

_LIFETIME = datetime.timedelta(days=30)
_CLOCK_SKEW = datetime.timedelta(minutes=5)


SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class CertificateAuthority:
    """Issues the cluster's certificates into its `pki` folder."""

    def __init__(self, directory: Path, key: SigningKey, certificate: x509.Certificate) -> None:
        self.directory = directory
        self.certificate = directory / "ca.crt"
        self._key = key
        self._name = certificate.subject
        self._key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self.certificate, _pem(certificate))

    @classmethod
    def create(cls, directory: Path) -> CertificateAuthority:
        """A new authority; its key is in memory only."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dra-harness-ca")])
        key_usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(key_usage, critical=True)
            .add_extension(key_id, critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(directory, key, certificate)

    @classmethod
    def of(cls, directory: Path, certificate: bytes, key: bytes) -> CertificateAuthority:
        """An authority that is there, of its certificate and key as PEM; the key is kept in memory only.

        Raises:
            ValueError: they are no certificate and no ECDSA or RSA key.
        """
        loaded = serialization.load_pem_private_key(key, password=None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise ValueError(f"the authority's key is a {type(loaded).__name__}")
        return cls(directory, loaded, x509.load_pem_x509_certificate(certificate))

    def issue(
        self, file_name: str, common_name: str, *, organization: str = "", hosts: Sequence[str] = ()
    ) -> tuple[Path, Path]:
        """Write `<file_name>.crt` and `.key`; `hosts` (names, addresses) make it a server's too."""
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(x509.Name(attributes), self._name, key.public_key())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            # Python 3.13 and later refuse a certificate that doesn't name its issuer's key.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._key_id), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        certificate_path = self.directory / f"{file_name}.crt"
        write_atomically(certificate_path, _pem(certificate))
        return certificate_path, write_key(self.directory / f"{file_name}.key", key)


def service_account_keys(directory: Path) -> tuple[Path, Path]:
    """The key pair that signs and verifies service account tokens: (private, public)."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = write_key(directory / "service-account.key", key)
    public = directory / "service-account.pub"
    pem = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    write_atomically(public, pem.decode())
    return private, public


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    """Write a private key as PEM, 0600."""
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    write_atomically(path, pem.decode())
    return path


def write_kubeconfig(path: Path, *, server: str, ca: Path, certificate: Path, key: Path, name: str) -> Path:
    """Write a kubeconfig for one user of one cluster, 0600.

    It names the certificate files: clients would write embedded ones to temporary files of their own.
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [
            {
                "name": path.stem,
                "user": {"client-certificate": str(certificate), "client-key": str(key)},
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": path.stem}}],
        "current-context": name,
    }
    write_atomically(path, yaml.safe_dump(config, sort_keys=False))
    return path


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
