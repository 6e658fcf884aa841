"""How Secrets and database credentials flow: cert-manager's issuer, the External Secrets stores, the plane's database.

All of it is what operators of a plane lay down; nothing here is needed before the first project is ordered.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from deploy.local import kube
from deploy.local.part import Part, PartError, Stack
from deploy.local.parts import mariadb, openbao, planes
from deploy.openbao.bootstrap import Bootstrap, BootstrapError
from deploy.openbao.layout import MANAGEMENT, Tenant, tenant_store

Object = dict[str, Any]
ESO = "external-secrets"
STORES = {
    "SecretStore": "secretstores.external-secrets.io",
    "ClusterSecretStore": "clustersecretstores.external-secrets.io",
}
AWAITED = STORES | {"Certificate": "certificates.cert-manager.io"}


def tenants(stack: Stack) -> list[str]:
    """Where a plane's operator lays down the tenant store: the plane's own namespace, and who may register services."""
    return sorted({name for plane in planes.planes(stack) for name in (plane.namespace, *plane.registrations)})


class Stores(Part):
    """The part."""

    name = "stores"
    needs = ("cert-manager", "external-secrets", "openbao", "planes")
    later = True

    async def bootstrap(self, stack: Stack) -> None:
        """Issuer, stores, database connection; then every store says that it is valid."""
        server = openbao.url(stack)
        trios = [_shared_store(server), *(tenant_store(namespace, server) for namespace in tenants(stack))]
        made = [one for trio in trios for one in trio]
        stores = [one for one in made if one["kind"] in STORES]
        await _lay(stack, [*_issuer(stack), *(one for one in made if one not in stores)])
        # A store that finds no certificate is looked at again after 1, 2, 4 … seconds: it comes when there is one.
        await _lay(stack, stores)
        await asyncio.to_thread(_database, stack)


async def _lay(stack: Stack, objects: list[Object]) -> None:
    """Applies, and waits for those whose readiness somebody relies on."""
    await kube.apply(stack, "management", objects, 60)
    waits = [
        kube.wait(stack, "management", resource, meta.get("namespace"), meta["name"], kube.condition("Ready"), 90)
        for resource, meta in ((AWAITED.get(one["kind"]), one["metadata"]) for one in objects)
        if resource
    ]
    await asyncio.gather(*waits)


def _issuer(stack: Stack) -> list[Object]:
    """OpenBao's own authority handed to cert-manager: whatever it signs, OpenBao's listener trusts."""
    pair = openbao.authority_pair(stack)
    crt, key = (base64.b64encode(file.read_bytes()).decode() for file in (pair.certificate, pair.key))
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": "cert-manager", "name": "openbao-ca"},
            "type": "kubernetes.io/tls",
            "data": {"tls.crt": crt, "tls.key": key, "ca.crt": crt},
        },
        {
            "apiVersion": "cert-manager.io/v1",
            "kind": "ClusterIssuer",
            "metadata": {"name": "openbao-ca-issuer"},
            "spec": {"ca": {"secretName": "openbao-ca"}},
        },
    ]


def _shared_store(server: str) -> list[Object]:
    """The store of the management cluster itself, under External Secrets' own identity."""
    trio = tenant_store(ESO, server)
    certificate = "eso-openbao-client-tls"
    account, client, store = trio
    account["metadata"]["name"] = ESO
    client["metadata"]["name"] = client["spec"]["secretName"] = certificate
    client["spec"]["commonName"] = f"{certificate}.{ESO}.svc"
    vault = store["spec"]["provider"]["vault"]
    vault["auth"]["kubernetes"] = {
        "mountPath": MANAGEMENT,
        "role": "eso-management",
        "serviceAccountRef": {"name": ESO, "namespace": ESO},
    }
    vault["caProvider"] |= {"name": certificate, "namespace": ESO}
    for ref in vault["tls"].values():
        ref |= {"name": certificate, "namespace": ESO}
    shared = {**store, "kind": "ClusterSecretStore", "metadata": {"name": "openbao-cluster-store"}}
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ESO}}, account, client, shared]


def _database(stack: Stack) -> None:
    """The plane's MariaDB by its address on this machine: there are no Services here."""
    tenant = Tenant("openstack", "openstack", f"127.0.0.1:{stack.ports['mariadb']}")
    try:
        Bootstrap(openbao.connection(stack)).database_tenant(tenant, mariadb.root_password(stack))
    except BootstrapError as error:
        raise PartError(str(error)) from None


PARTS = (Stores(),)
