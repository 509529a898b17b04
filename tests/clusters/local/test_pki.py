from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from clusters.interface import Profile
from clusters.local.layout import Layout, Ports, write_credentials
from clusters.local.pki import CertificateAuthority, service_account_keys, write_kubeconfig
from clusters.local.state import ClusterState

DAY = datetime.timedelta(days=1)


def certificate_in(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path / "pki")


def handshake(
    authority: CertificateAuthority, server: tuple[Path, Path], client: tuple[Path, Path], host: str
) -> Any:
    """A whole TLS handshake with both sides verified, as strictly as the newest Python does it."""
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    server_side.load_cert_chain(*server)
    server_side.verify_mode = ssl.CERT_REQUIRED
    client_side = ssl.create_default_context(cafile=str(authority.certificate))
    client_side.load_cert_chain(*client)
    for context in (server_side, client_side):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client_side.wrap_bio(to_client, to_server, server_hostname=host),
        server_side.wrap_bio(to_server, to_client, server_side=True),
    ]
    left = list(ends)
    for _ in range(10):
        for end in list(left):
            try:
                end.do_handshake()
                left.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not left
    return ends[1].getpeercert()


def test_both_sides_verify_each_other_strictly(authority: CertificateAuthority) -> None:
    server = authority.issue("apiserver", "kube-apiserver", hosts=("127.0.0.1", "kubernetes"))
    client = authority.issue("admin", "somebody", organization="system:masters")
    for host in ("127.0.0.1", "kubernetes"):
        peer = handshake(authority, server, client, host)
        assert peer["subject"] == ((("commonName", "somebody"),), (("organizationName", "system:masters"),))


def test_a_name_that_was_not_asked_for_is_refused(authority: CertificateAuthority) -> None:
    server = authority.issue("apiserver", "kube-apiserver", hosts=("127.0.0.1", "kubernetes"))
    client = authority.issue("admin", "somebody")
    for host in ("127.0.0.2", "kube-apiserver"):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(authority, server, client, host)


def test_a_client_certificate_serves_nobody(authority: CertificateAuthority) -> None:
    client = authority.issue("admin", "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority, client, client, "127.0.0.1")


def test_another_authoritys_certificate_is_refused(authority: CertificateAuthority, tmp_path: Path) -> None:
    other = CertificateAuthority.create(tmp_path / "other")
    server = authority.issue("apiserver", "kube-apiserver", hosts=("127.0.0.1",))
    with pytest.raises(ssl.SSLError):
        handshake(authority, server, other.issue("admin", "somebody"), "127.0.0.1")


def test_the_chain_and_its_names(authority: CertificateAuthority) -> None:
    root = certificate_in(authority.certificate)
    path, key_path = authority.issue("x", "name", organization="group", hosts=("198.18.0.2", "node-1"))
    issued = certificate_in(path)
    issued.verify_directly_issued_by(root)
    root.verify_directly_issued_by(root)
    assert root.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not issued.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("198.18.0.2")]
    assert names.get_values_for_type(x509.DNSName) == ["node-1"]
    usages = list(issued.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert usages == [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    (common,) = issued.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    (group,) = issued.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert (common.value, group.value) == ("name", "group")
    key = serialization.load_pem_private_key(key_path.read_bytes(), None)
    assert key.public_key() == issued.public_key()
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"


def test_certificates_hold_from_before_now_for_a_month(authority: CertificateAuthority) -> None:
    now = datetime.datetime.now(datetime.UTC)
    for path in (authority.certificate, authority.issue("x", "x")[0]):
        certificate = certificate_in(path)
        assert now - DAY < certificate.not_valid_before_utc < now
        assert now + 29 * DAY < certificate.not_valid_after_utc < now + 31 * DAY


def test_nobody_else_may_read_what_is_written(authority: CertificateAuthority, tmp_path: Path) -> None:
    certificate, key = authority.issue("x", "x")
    kubeconfig = write_kubeconfig(
        tmp_path / "x.kubeconfig",
        server="https://127.0.0.1:1",
        ca=authority.certificate,
        certificate=certificate,
        key=key,
        name="c",
    )
    private, public = service_account_keys(authority.directory)
    for path in (certificate, key, kubeconfig, private, public, authority.certificate):
        assert mode(path) == "0o600"
    assert mode(authority.directory) == "0o700"
    assert [each.name for each in authority.directory.iterdir() if each.suffix == ".tmp"] == []


def test_the_key_pair_of_service_accounts(tmp_path: Path) -> None:
    private, public = service_account_keys(tmp_path)
    key = serialization.load_pem_private_key(private.read_bytes(), None)
    assert serialization.load_pem_public_key(public.read_bytes()) == key.public_key()


def test_a_kubeconfig_names_its_certificate_files(authority: CertificateAuthority, tmp_path: Path) -> None:
    certificate, key = authority.issue("admin", "somebody")
    path = write_kubeconfig(
        tmp_path / "admin.kubeconfig",
        server="https://127.0.0.1:6443",
        ca=authority.certificate,
        certificate=certificate,
        key=key,
        name="dra-harness-c",
    )
    assert yaml.safe_load(path.read_text()) == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "dra-harness-c",
                "cluster": {
                    "server": "https://127.0.0.1:6443",
                    "certificate-authority": str(authority.certificate),
                },
            }
        ],
        "users": [
            {
                "name": "admin",
                "user": {"client-certificate": str(certificate), "client-key": str(key)},
            }
        ],
        "contexts": [{"name": "dra-harness-c", "context": {"cluster": "dra-harness-c", "user": "admin"}}],
        "current-context": "dra-harness-c",
    }


def test_the_users_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_HARNESS_STATE", str(tmp_path))
    state = ClusterState(
        id="0a1b2c", name="c", kubernetes="v1.37.2", profile=Profile.GA, nodes=("node-1", "node-2"), slot=0
    )
    layout = Layout(state, {}, Ports(1001, 1002, 1003, 1004, 1005))
    write_credentials(layout)
    found = {}
    for path in (tmp_path / "clusters" / "c").glob("*.kubeconfig"):
        config = yaml.safe_load(path.read_text())
        assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1001"
        user = config["users"][0]["user"]
        certificate = certificate_in(Path(user["client-certificate"]))
        key = serialization.load_pem_private_key(Path(user["client-key"]).read_bytes(), None)
        assert key.public_key() == certificate.public_key()
        found[path.stem] = certificate.subject.rfc4514_string()
    # https://kubernetes.io/docs/setup/best-practices/certificates/
    expected = {
        "admin": "O=system:masters,CN=dra-harness-admin",
        "controller-manager-client": "CN=system:kube-controller-manager",
        "scheduler-client": "CN=system:kube-scheduler",
        "driver-client": "CN=dra-harness-driver",
        "kubelet-node-1": "O=system:nodes,CN=system:node:node-1",
        "kubelet-node-2": "O=system:nodes,CN=system:node:node-2",
    }
    assert expected.items() <= found.items()
    assert [user for user, subject in found.items() if "system:masters" in subject] == ["admin"]
    for node in ("node-1", "node-2"):
        served = certificate_in(layout.pki / f"kubelet-{node}-server.crt")
        names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
        assert names.get_values_for_type(x509.DNSName) == [node]
    assert all(mode(path) == "0o600" for path in layout.pki.iterdir())
