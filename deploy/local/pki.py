"""Keys and certificates of the stack's API servers: one authority for each cluster, made once per instance.

A file is written whole or not at all (temporary name, then rename), so a killed run leaves no half key behind; and a
certificate that is there and not near its end is kept, so processes that run on stay trusted.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deploy.local.part import Stack

YEAR = datetime.timedelta(days=365)


def write_secret(path: Path, data: bytes) -> None:
    """Writes a file that only we may read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    half.replace(path)


def folder(stack: Stack, cluster: str) -> Path:
    return stack.folder / "kube" / "pki" / cluster


def server(stack: Stack, cluster: str) -> str:
    return f"https://127.0.0.1:{stack.ports[cluster]}"


def authority(stack: Stack, cluster: str) -> tuple[Path, Path]:
    """The cluster's own authority: certificate and key."""
    where = folder(stack, cluster)
    crt, key = where / "ca.crt", where / "ca.key"
    if not _fresh(crt, key):
        _issue(crt, key, f"stack-{stack.instance}-{cluster}", is_ca=True)
    return crt, key


def serving(stack: Stack, cluster: str, names: tuple[str, ...] = ()) -> tuple[Path, Path]:
    """The API server's certificate, good for 127.0.0.1 and localhost."""
    where = folder(stack, cluster)
    crt, key = where / "server.crt", where / "server.key"
    ca = authority(stack, cluster)
    if not _fresh(crt, key):
        _issue(crt, key, "kube-apiserver", by=ca, hosts=("localhost", *names))
    return crt, key


def account_keys(stack: Stack, cluster: str) -> tuple[Path, Path]:
    """The key that signs ServiceAccount tokens (private), and its public half."""
    where = folder(stack, cluster)
    private, public = where / "sa.key", where / "sa.pub"
    if not (private.exists() and public.exists()):
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        write_secret(private, _private(key))
        write_secret(public, pem)
    return private, public


def client_kubeconfig(stack: Stack, cluster: str, user: str, path: Path, groups: tuple[str, ...] = ()) -> None:
    """A kubeconfig for a user known by a client certificate (CN the user, O the groups)."""
    where = folder(stack, cluster)
    ca = authority(stack, cluster)
    crt, key = where / f"user-{user}.crt", where / f"user-{user}.key"
    if _fresh(crt, key) and path.exists():
        return
    if not _fresh(crt, key):
        _issue(crt, key, user, by=ca, groups=groups)

    def data(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "clusters": [
            {"name": cluster, "cluster": {"server": server(stack, cluster), "certificate-authority-data": data(ca[0])}}
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "users": [{"name": user, "user": {"client-certificate-data": data(crt), "client-key-data": data(key)}}],
    }
    write_secret(path, json.dumps(config, indent=1).encode())


def _fresh(crt: Path, key: Path) -> bool:
    if not (crt.exists() and key.exists()):
        return False
    end = x509.load_pem_x509_certificate(crt.read_bytes()).not_valid_after_utc
    return end - datetime.datetime.now(datetime.UTC) > datetime.timedelta(days=30)


def _private(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _issue(
    crt: Path,
    key: Path,
    name: str,
    *,
    by: tuple[Path, Path] | None = None,
    groups: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
    is_ca: bool = False,
) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, g) for g in groups),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    now = datetime.datetime.now(datetime.UTC)
    signer: ec.EllipticCurvePrivateKey = private
    issuer = subject
    if by is not None:
        loaded = serialization.load_pem_private_key(by[1].read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer, issuer = loaded, x509.load_pem_x509_certificate(by[0].read_bytes()).subject
    usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + (10 * YEAR if is_ca else 5 * YEAR))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if not is_ca:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if hosts:
        names = [x509.DNSName(h) for h in hosts] + [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    write_secret(key, _private(private))
    write_secret(crt, certificate.public_bytes(serialization.Encoding.PEM))


def admin_context(stack: Stack, cluster: str) -> ssl.SSLContext:
    """What an HTTPS client needs to speak to the cluster as its admin, and to no other server."""
    where = folder(stack, cluster)
    context = ssl.create_default_context(cafile=str(where / "ca.crt"))
    context.load_cert_chain(where / "user-admin.crt", where / "user-admin.key")
    return context
