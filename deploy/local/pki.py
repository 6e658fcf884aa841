"""Keys and certificates of the stack's API servers: one authority for each cluster, made once per instance."""

from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from deploy.local import authority as certificates
from deploy.local.authority import LOCAL_NAMES, Pair
from deploy.local.files import write_secret
from deploy.local.part import Stack


def folder(stack: Stack, cluster: str) -> Path:
    return stack.folder / "kube" / "pki" / cluster


def server(stack: Stack, cluster: str) -> str:
    return f"https://127.0.0.1:{stack.ports[cluster]}"


def authority(stack: Stack, cluster: str) -> Pair:
    """The cluster's own authority."""
    return certificates.authority(folder(stack, cluster), "ca", f"stack-{stack.instance}-{cluster}")


def serving(stack: Stack, cluster: str) -> Pair:
    """The API server's certificate."""
    ca = authority(stack, cluster)
    return certificates.issue(ca, folder(stack, cluster), "server", LOCAL_NAMES, subject="kube-apiserver")


def account_keys(stack: Stack, cluster: str) -> tuple[Path, Path]:
    """The key that signs ServiceAccount tokens (private), and its public half."""
    where = folder(stack, cluster)
    private, public = where / "sa.key", where / "sa.pub"
    if not (private.exists() and public.exists()):
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        form = serialization.PrivateFormat.TraditionalOpenSSL
        write_secret(private, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        write_secret(public, pem)
    return private, public


def client_kubeconfig(stack: Stack, cluster: str, user: str, path: Path, groups: tuple[str, ...] = ()) -> None:
    """A kubeconfig for a user known by a client certificate (CN the user, O the groups)."""
    ca = authority(stack, cluster)
    mine = certificates.issue(ca, folder(stack, cluster), f"user-{user}", subject=user, groups=groups)

    def data(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    login = {"client-certificate-data": data(mine.certificate), "client-key-data": data(mine.key)}
    where = {"server": server(stack, cluster), "certificate-authority-data": data(ca.certificate)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "clusters": [{"name": cluster, "cluster": where}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "users": [{"name": user, "user": login}],
    }
    text = json.dumps(config, indent=1).encode()
    if not path.exists() or path.read_bytes() != text:
        write_secret(path, text)


def admin_context(stack: Stack, cluster: str) -> ssl.SSLContext:
    """What an HTTPS client needs to speak to the cluster as its admin, and to no other server."""
    where = folder(stack, cluster)
    context = ssl.create_default_context(cafile=str(where / "ca.crt"))
    context.load_cert_chain(where / "user-admin.crt", where / "user-admin.key")
    return context
