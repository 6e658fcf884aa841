"""Certificate authorities of one instance, and the server and client certificates that they sign.

Their keys are ordinary files of the instance (mode 0600), so that cert-manager can later sign with the very same
authority and nothing has to be trusted twice. A certificate that is there and not near its end is kept, so processes
that run on stay trusted.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deploy.local.files import write_secret

LOCAL_NAMES = ("localhost", "127.0.0.1")
_YEAR = datetime.timedelta(days=365)
_NEAR = datetime.timedelta(days=30)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, both PEM files."""

    certificate: Path
    key: Path


def authority(folder: Path, name: str, subject: str = "") -> Pair:
    """The authority kept as `name`, made at the first call. The certificate lands last: it marks the pair whole."""
    pair = _pair(folder, name)
    if _lasting(pair) is None:
        key = ec.generate_private_key(ec.SECP256R1())
        named = _name(subject or name)
        certificate = (
            _builder(named, named, key.public_key(), 10 * _YEAR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _store(pair, certificate, key)
    return pair


def issue(
    signer: Pair,
    folder: Path,
    name: str,
    hosts: tuple[str, ...] = (),
    subject: str = "",
    groups: tuple[str, ...] = (),
) -> Pair:
    """A certificate for a server at `hosts`, or for a client when there are none. Made at the first call.

    A cluster takes a client's subject for its user and `groups` for what that user is in.
    """
    pair = _pair(folder, name)
    root = x509.load_pem_x509_certificate(signer.certificate.read_bytes())
    if (kept := _lasting(pair)) and _signed(kept, root):
        return pair
    root_key = serialization.load_pem_private_key(signer.key.read_bytes(), password=None)
    assert isinstance(root_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _builder(_name(subject or name, groups), root.subject, key.public_key(), 3 * _YEAR)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False)
    _store(pair, builder.sign(root_key, hashes.SHA256()), key)
    return pair


def _pair(folder: Path, name: str) -> Pair:
    return Pair(folder / f"{name}.crt", folder / f"{name}.key")


def _name(subject: str, groups: tuple[str, ...] = ()) -> x509.Name:
    members = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*members, x509.NameAttribute(NameOID.COMMON_NAME, subject)])


def _lasting(pair: Pair) -> x509.Certificate | None:
    """The pair's certificate, if it is there and not near its end."""
    if not (pair.certificate.exists() and pair.key.exists()):
        return None
    kept = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    return kept if kept.not_valid_after_utc - datetime.datetime.now(datetime.UTC) > _NEAR else None


def _signed(kept: x509.Certificate, root: x509.Certificate) -> bool:
    """Whether it is this very authority that signed: one that was made anew has the old one's name."""
    try:
        kept.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + lifetime)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _store(pair: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    form = serialization.PrivateFormat.PKCS8
    write_secret(pair.key, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    write_secret(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))
