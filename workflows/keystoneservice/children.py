"""What a KeystoneService's children in the plane's namespace should be: names and bodies, nothing else (contracts 3.1).

A body is complete and deterministic: applying it twice changes nothing. Passwords and their delivery are in `delivery`,
what of all this a sweep leaves in `sweep`.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any

from workflows.api.controlplane import ControlPlane
from workflows.api.keystoneservice import Account, Catalog, Endpoint
from workflows.api.meta import Model
from workflows.scaffold.naming import claim_name, keystone_name_key
from workflows.scaffold.order import OrderRef
from workflows.scaffold.ownership import Marks

FINALIZER = "c5c3.io/keystoneservice-teardown"
GENERATION = "cobaltcore.c5c3.io/password-generation"
"""Annotation of the managed User. Emptied by whoever wants a new password (contracts 4.7)."""

Body = dict[str, Any]


class Registration(Model):
    """What every child is made of: the order, the uid that owner references need, and the plane.

    bound  the Domain object that user or project refer to already, for K-ORC never changes a reference
    """

    order: OrderRef
    uid: str
    plane: ControlPlane
    bound: str = ""


def prefix(order: OrderRef) -> str:
    """`<name>-<8 hex>-registration-`; the hash is over `<namespace>/<name>`, for the kind lives on no other cluster."""
    return f"{order.name}-{_eight(order.key)}-registration-"


@lru_cache(maxsize=4096)  # asked for every child at every judgement
def _eight(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def labels(order: OrderRef) -> dict[str, str]:
    """Both labels of every child, by which it is known as this order's in any namespace."""
    stem = "c5c3.io/keystoneservice"
    return {f"{stem}-name": order.name, f"{stem}-namespace": order.namespace}


@lru_cache(maxsize=1024)
def marks(order: OrderRef, uid: str) -> Marks:
    """By what the order's children are known.

    What services read does not carry the prefix. Of the two that bear its name only the ExternalSecret is the order's:
    External Secrets copies that one's labels onto the Secret, and takes the Secret back itself.
    """
    also = (f"ExternalSecret/{order.name}-credentials",)
    return Marks(labels=labels(order), prefix=prefix(order), also=also, owner=uid)


def password_prefix(order: OrderRef) -> str:
    """How every generation's password Secret is called, but for the number."""
    return f"{prefix(order)}password-v"


def metadata(reg: Registration, name: str, namespace: str, annotations: dict[str, str] | None = None) -> Body:
    """Labels always; an owner reference only beside the order, for Kubernetes knows none across namespaces."""
    meta: Body = {"name": name, "namespace": namespace, "labels": labels(reg.order)}
    if annotations:
        meta["annotations"] = annotations
    if namespace == reg.order.namespace:
        owner = {"apiVersion": "c5c3.io/v1alpha1", "kind": "KeystoneService", "name": reg.order.name, "uid": reg.uid}
        meta["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
    return meta


def service_probe(reg: Registration, catalog: Catalog) -> Body:
    filter_ = {"type": catalog.service_type, "name": catalog.effective_name(reg.order.name)}
    return _import(reg, "Service", "service-probe", filter_)


def service(reg: Registration, catalog: Catalog) -> Body:
    resource = {"type": catalog.service_type, "name": catalog.effective_name(reg.order.name), "enabled": True}
    return _managed(reg, "Service", "service", resource)


def endpoint(reg: Registration, declared: Endpoint) -> Body:
    service_ref = f"{prefix(reg.order)}service"
    resource = {"interface": declared.interface, "url": declared.url, "serviceRef": service_ref, "enabled": True}
    return _managed(reg, "Endpoint", f"endpoint-{declared.interface}", resource)


def service_claim(reg: Registration, catalog: Catalog) -> str:
    """The Lease that stands for this entry of the plane's catalog (contracts 14.3)."""
    return claim_name(reg.plane.key, "Service", catalog.service_type, catalog.effective_name(reg.order.name))


def domain(reg: Registration, account: Account) -> Body | None:
    """The import of the account's domain; None where the plane's own import of its admin domain serves."""
    own = domain_name(reg.order)
    if domain_handle(reg, account) != own:
        return None
    return _import(reg, "Domain", "domain", {"name": account.effective_domain(reg.plane)})


def domain_handle(reg: Registration, account: Account) -> str:
    """The Domain object that project and user refer to: the one they are bound to, or the one that serves now.

    The names are compared exactly: Keystone may take two spellings for one domain, and an import too many is harmless.
    """
    same = account.effective_domain(reg.plane) == reg.plane.admin_domain
    return reg.bound or (reg.plane.domain_handle if same else domain_name(reg.order))


def domain_name(order: OrderRef) -> str:
    """The Domain import that is the order's own."""
    return f"{prefix(order)}domain"


def project_probe(reg: Registration, account: Account) -> Body:
    """Only for a project that is to be created."""
    return _import(reg, "Project", "project-probe", _project(reg, account))


def project(reg: Registration, account: Account) -> Body:
    """The project to create, or the import of one that is referenced and never deleted."""
    if account.project.create:
        return _managed(reg, "Project", "project", _project(reg, account))
    return _import(reg, "Project", "project", _project(reg, account))


def user_probe(reg: Registration, account: Account) -> Body:
    return _import(reg, "User", "user-probe", _user(reg, account))


def user(reg: Registration, account: Account, generation: int, mark: str | None) -> Body:
    """The managed User with this generation's password.

    mark  what the annotation should say; None leaves it out, and so to whoever wrote it
    """
    resource = {
        **_user(reg, account),
        "defaultProjectRef": f"{prefix(reg.order)}project",
        "passwordRef": f"{password_prefix(reg.order)}{generation}",
    }
    return _managed(reg, "User", "user", resource, {} if mark is None else {GENERATION: mark})


def user_claim(reg: Registration, account: Account) -> str:
    """The Lease that stands for this user."""
    name = account.effective_user(reg.order.name)
    return claim_name(reg.plane.key, "User", account.effective_domain(reg.plane), name)


def project_claim(reg: Registration, account: Account) -> str:
    """The Lease that stands for this project, if it is to be created: a KeystoneProject of its name wants the same."""
    return claim_name(reg.plane.key, "Project", account.effective_domain(reg.plane), account.project.name)


def roles(account: Account) -> tuple[str, ...]:
    """The roles to bind. Keystone takes some spellings for one role, which is bound once, as first spelled (14.10)."""
    first: dict[str, str] = {}
    for role in account.roles:
        first.setdefault(keystone_name_key(role), role)
    return tuple(first.values())


@lru_cache(maxsize=1024)
def role_slug(role: str) -> str:
    """At most 25 bytes that may stand in an object's name and differ for different roles (contracts 4.6)."""
    base = re.sub("[^a-z0-9]+", "-", role.lower()).strip("-")[:16]
    return f"{base}-{_eight(role)}"


def role_import(reg: Registration, role: str) -> Body:
    """Roles are global, so no domain is named; each order imports for itself, so that none deletes another's."""
    return _import(reg, "Role", f"role-{role_slug(role)}", {"name": role})


def assignment(reg: Registration, role: str) -> Body:
    start, slug = prefix(reg.order), role_slug(role)
    resource = {"roleRef": f"{start}role-{slug}", "userRef": f"{start}user", "projectRef": f"{start}project"}
    return _managed(reg, "RoleAssignment", f"assign-{slug}", resource)


def _project(reg: Registration, account: Account) -> Body:
    return {"name": account.project.name, "domainRef": domain_handle(reg, account)}


def _user(reg: Registration, account: Account) -> Body:
    return {"name": account.effective_user(reg.order.name), "domainRef": domain_handle(reg, account)}


def _import(reg: Registration, kind: str, suffix: str, filter_: Body) -> Body:
    spec = {
        "cloudCredentialsRef": reg.plane.cred_ref,
        "managementPolicy": "unmanaged",
        "import": {"filter": filter_},
    }
    meta = metadata(reg, f"{prefix(reg.order)}{suffix}", reg.plane.namespace)
    return {"kind": kind, "metadata": meta, "spec": spec}


def _managed(
    reg: Registration, kind: str, suffix: str, resource: Body, annotations: dict[str, str] | None = None
) -> Body:
    spec = {"cloudCredentialsRef": reg.plane.managed_cred_ref, "managementPolicy": "managed", "resource": resource}
    meta = metadata(reg, f"{prefix(reg.order)}{suffix}", reg.plane.namespace, annotations)
    return {"kind": kind, "metadata": meta, "spec": spec}
