"""The testbed's keys and certificates: two authorities, their leaves, the service-account key pair.

The cluster's authority signs the API server, the clients and virt-api. The front-proxy authority signs only
the certificate with which the API server speaks to aggregated APIs, so that nobody else can claim to be it.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

VALID_DAYS = 30
RENEW_DAYS = 7
CLUSTER_CA = "ca"
FRONT_PROXY_CA = "front-proxy-ca"


@dataclass(frozen=True)
class Leaf:
    """One certificate: file name, who it is, who signs it, the names it serves (none: a client)."""

    name: str
    common_name: str
    ca: str = CLUSTER_CA
    organization: str = ""
    serves: tuple[str, ...] = ()


LEAVES = (
    Leaf(
        "apiserver",
        "kube-apiserver",
        serves=(
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "127.0.0.1",
            "10.0.0.1",
        ),
    ),
    Leaf("admin", "testbed-admin", organization="system:masters"),
    Leaf("controller-manager", "system:kube-controller-manager"),
    Leaf("virt-api", "virt-api", serves=("virt-api.kubevirt.svc", "localhost", "127.0.0.1")),
    Leaf("front-proxy-client", "front-proxy-client", ca=FRONT_PROXY_CA),
)


@dataclass(frozen=True)
class Authority:
    """A certificate authority: its key and its own certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def ensure(folder: Path) -> None:
    """Make all keys and certificates in `folder`, unless they are there and good for another week.

    NAME.crt and NAME.key for each authority and leaf, sa.key and sa.pub; keys readable by the owner only.
    """
    if _is_fresh(folder):
        return
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authorities = {name: _authority(name) for name in (CLUSTER_CA, FRONT_PROXY_CA)}
    for name, authority in authorities.items():
        _write(folder, name, authority.key, authority.certificate)
    for leaf in LEAVES:
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder, leaf.name, key, _sign(leaf, key.public_key(), authorities[leaf.ca]))
    _service_account_keys(folder)


def _is_fresh(folder: Path) -> bool:
    names = [CLUSTER_CA, FRONT_PROXY_CA, *(leaf.name for leaf in LEAVES)]
    if not all((folder / f"{name}.crt").exists() for name in names) or not (folder / "sa.pub").exists():
        return False
    certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    return certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=RENEW_DAYS)


def _authority(name: str) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"virtscale-testbed-{name}", "")
    usage = _key_usage(signs_certificates=True)
    builder = _builder(subject, subject, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = _add_key_identifiers(builder, key.public_key(), key.public_key())
    return Authority(key, builder.sign(key, hashes.SHA256()))


def _sign(leaf: Leaf, public_key: ec.EllipticCurvePublicKey, authority: Authority) -> x509.Certificate:
    subject = _name(leaf.common_name, leaf.organization)
    usage = ExtendedKeyUsageOID.SERVER_AUTH if leaf.serves else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = _builder(subject, authority.certificate.subject, public_key)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    builder = _add_key_identifiers(builder, public_key, authority.key.public_key())
    if leaf.serves:
        builder = builder.add_extension(_alternative_names(leaf.serves), critical=False)
    return builder.sign(authority.key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
    )


def _add_key_identifiers(
    builder: x509.CertificateBuilder, own: ec.EllipticCurvePublicKey, issuer: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    """Both identifiers: Python 3.13 and later refuse a chain without them."""
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(own), critical=False)
    return builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)


def _name(common_name: str, organization: str) -> x509.Name:
    parts: list[tuple[ObjectIdentifier, str]] = [(NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.insert(0, (NameOID.ORGANIZATION_NAME, organization))
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


def _alternative_names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_alternative_name(name) for name in names])


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _service_account_keys(folder: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_private(folder / "sa.key", key)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "sa.pub").write_bytes(public)


def _write(folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    _write_private(folder / f"{name}.key", key)
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_private(file: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    file.touch(mode=0o600)
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
