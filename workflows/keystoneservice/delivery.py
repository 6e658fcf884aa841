"""An account's password and its way to the service: the Secret of each generation, the round trip through OpenBao.

Source Secret, PushSecret, ExternalSecret live beside the order; External Secrets alone writes what the service reads.
Bytes are compared on this way, so equal input makes equal bytes (contracts 3.2).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re

from workflows.api.controlplane import ControlPlane
from workflows.api.keystoneservice import Account
from workflows.keystoneservice.children import Body, Registration, metadata, password_prefix, prefix
from workflows.scaffold.order import OrderRef

PUSH_HASH = "c5c3.io/keystoneservice-push-hash"
"""Annotation of the PushSecret: the content's digest. No one watches the source Secret; a change of this is a push."""

FORCE_SYNC = "external-secrets.io/force-sync"
"""Annotation of the ExternalSecret: the digest and the push that carried it. A change makes it fetch."""


def password_name(order: OrderRef, generation: int) -> str:
    """The Secret of one generation. K-ORC applies a password only when this name changes."""
    return f"{password_prefix(order)}{generation}"


def password_secret(reg: Registration, generation: int) -> Body:
    """Beside the User that refers to it. What is in it is made as it is created, and never written again."""
    return {
        "kind": "Secret",
        "metadata": metadata(reg, password_name(reg.order, generation), reg.plane.namespace),
    }


def password_data(password: str) -> dict[str, str]:
    return _data({"password": password})


def generation_of(name: str) -> int | None:
    """The generation that a password Secret's name ends in, or None; a User whose reference has none is at 1."""
    _, marker, number = name.rpartition("-password-v")
    return int(number) if marker and re.fullmatch("0*[1-9][0-9]{0,9}", number) else None


def source_name(order: OrderRef) -> str:
    return f"{prefix(order)}source"


def backup_name(order: OrderRef) -> str:
    """The PushSecret."""
    return f"{prefix(order)}backup"


def consumer_name(order: OrderRef) -> str:
    """The ExternalSecret and the Secret it makes: what services are told to read, so it carries no hash."""
    return f"{order.name}-credentials"


def consumer(order: OrderRef) -> Body:
    """The Secret that External Secrets makes, by name: it is never written here."""
    return {"kind": "Secret", "metadata": {"name": consumer_name(order), "namespace": order.namespace}}


def source_secret(reg: Registration) -> Body:
    """The source Secret without what is in it."""
    return {"kind": "Secret", "metadata": metadata(reg, source_name(reg.order), reg.order.namespace)}


def remote_key(order: OrderRef) -> str:
    """Where OpenBao keeps it, below the store's own path. The namespace is what its policy holds a tenant to."""
    return f"openstack/keystone/{order.namespace}/{order.name}/service-accounts/credentials"


def clouds_yaml(reg: Registration, account: Account, password: str) -> bytes:
    """The document that clients log in with: fixed layout, every free text quoted (contracts 3.2)."""
    plane, domain = reg.plane, account.effective_domain(reg.plane)
    lines = (
        "clouds:",
        f"  {_quoted(plane.cloud_name)}:",
        "    auth:",
        f"      auth_url: {_quoted(plane.service_auth_url)}",
        f"      username: {_quoted(account.effective_user(reg.order.name))}",
        f"      password: {_quoted(password)}",
        f"      project_name: {_quoted(account.project.name)}",
        f"      user_domain_name: {_quoted(domain)}",
        f"      project_domain_name: {_quoted(domain)}",
        f"    region_name: {_quoted(plane.region)}",
        f"    endpoint_type: {_interface(plane)}",
        "    identity_api_version: 3",
        "",
    )
    return "\n".join(lines).encode()


def digest(document: bytes) -> str:
    """What stands for the delivered content in annotations."""
    return hashlib.sha256(document).hexdigest()


def source(reg: Registration, account: Account, password: str) -> Body:
    """All that is known of the account, as it is pushed whole."""
    plane, domain = reg.plane, account.effective_domain(reg.plane)
    texts = {
        "password": password,
        "username": account.effective_user(reg.order.name),
        "project_name": account.project.name,
        "user_domain_name": domain,
        "project_domain_name": domain,
        "auth_url": plane.service_auth_url,
        "region_name": plane.region,
        "clouds.yaml": clouds_yaml(reg, account, password).decode(),
    }
    return {**source_secret(reg), "data": _data(texts)}


def push_secret(reg: Registration, content: str) -> Body:
    """Mirrors the source Secret to OpenBao, and takes it back there when it is deleted.

    content  the digest of the document that is pushed
    """
    spec = {
        "deletionPolicy": "Delete",
        "secretStoreRefs": [reg.plane.store_ref],
        "selector": {"secret": {"name": source_name(reg.order)}},
        "data": [{"match": {"remoteRef": {"remoteKey": remote_key(reg.order)}}}],
    }
    meta = metadata(reg, backup_name(reg.order), reg.order.namespace, {PUSH_HASH: content})
    return {"kind": "PushSecret", "metadata": meta, "spec": spec}


def external_secret(reg: Registration, content: str, synced: str) -> Body:
    """Makes the Secret that the service reads, of what OpenBao holds.

    content  the digest of the document that was pushed
    synced   `status.syncedResourceVersion` of the PushSecret, which moves with each push
    """
    key = remote_key(reg.order)
    spec = {
        "refreshInterval": "1h",
        "secretStoreRef": reg.plane.store_ref,
        "target": {"name": consumer_name(reg.order), "creationPolicy": "Owner"},
        "data": [
            {"secretKey": name, "remoteRef": {"key": key, "property": name}} for name in ("password", "clouds.yaml")
        ],
    }
    meta = metadata(reg, consumer_name(reg.order), reg.order.namespace, {FORCE_SYNC: f"{content}/{synced}"})
    return {"kind": "ExternalSecret", "metadata": meta, "spec": spec}


def _interface(plane: ControlPlane) -> str:
    """A plain word where it is one of the plane's words; a plane that admission has not seen may say anything."""
    word = plane.service_interface
    return word if word in ("public", "internal", "admin") else _quoted(word)


def _data(texts: dict[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}


def _quoted(text: str) -> str:
    """A JSON string, which is a YAML one but for the characters that YAML wants escaped."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


_UNPRINTABLE = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")
