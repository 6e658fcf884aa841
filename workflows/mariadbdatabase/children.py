"""What a MariaDBDatabase's children should be: names and bodies, and nothing else (contracts 3.3).

A body is complete and deterministic. That matters most for the ExternalSecret: each change of it, however small, makes
the engine create another SQL user.
"""

from __future__ import annotations

from typing import Any

from workflows.api.controlplane import ControlPlane
from workflows.api.mariadbdatabase import DELETE, Bao, MariaDBDatabaseSpec
from workflows.api.meta import Model
from workflows.mariadbdatabase.schema import Role
from workflows.mariadbdatabase.schema import role as role_of
from workflows.scaffold.naming import child_prefix, claim_name, ownership_labels
from workflows.scaffold.order import OrderRef
from workflows.scaffold.ownership import Marks

SEGMENT = "database"
FINALIZER = "c5c3.io/mariadbdatabase-teardown"

ENGINE = "database/mariadb"
"""The mount of OpenBao's database engine."""
ACCOUNT = "order-db-creds"
"""ServiceAccount by which External Secrets logs in for every order of a plane; the auth role is `order-db`."""
CLIENT = "order-db-openbao-client"
"""Certificate, and the Secret it makes, by which OpenBao's listener lets orders of a plane in."""
MAX_COMMON_NAME = 64
"""X.509's limit; cert-manager refuses a longer one."""
CLIENT_KEYS = ("tls.crt", "tls.key", "ca.crt")

Body = dict[str, Any]


class Ordered(Model):
    """What every child is made of: the order, the uid that owner references need, its plane, and where OpenBao is."""

    order: OrderRef
    uid: str
    spec: MariaDBDatabaseSpec
    plane: ControlPlane
    bao: Bao = Bao()

    @property
    def schema_name(self) -> str:
        return self.spec.effective_name(self.order.name)

    @property
    def mariadb(self) -> str:
        """The shared MariaDB's name; the gates let no plane without one through."""
        return self.plane.database.cluster_ref.name if self.plane.database else ""

    @property
    def role(self) -> Role:
        return role_of(self.schema_name, self.plane.keystone_namespace)

    @property
    def role_name(self) -> str:
        return role_name(self.order, self.plane.namespace)


def prefix(order: OrderRef) -> str:
    return child_prefix(order, SEGMENT)


def credentials_name(order: OrderRef) -> str:
    """Generator, ExternalSecret, and the Secret that External Secrets writes beside the plane."""
    return f"{prefix(order)}credentials"


def delivered_name(order: OrderRef) -> str:
    """The Secret beside the order: what people are told to read, so it carries no hash."""
    return f"{order.name}-credentials"


def role_name(order: OrderRef, plane_namespace: str) -> str:
    """The dot after the plane's namespace is what OpenBao's policy holds that namespace to."""
    return f"order.{plane_namespace}.{prefix(order).removesuffix('-')}"


def creds_path(role: str) -> str:
    """Where the engine issues a credential, a new SQL user at every read, and what its leases are revoked by."""
    return f"{ENGINE}/creds/{role}"


def marks(order: OrderRef, uid: str) -> Marks:
    """By what the order's children are known: the Secret beside it, which lacks a label, by its owner alone."""
    return Marks(
        labels=ownership_labels(order), prefix=prefix(order), also=(f"Secret/{delivered_name(order)}",), owner=uid
    )


def claim(want: Ordered) -> str:
    """The Lease that stands for this schema. Schemas differ by case, so the name is spelled out, not folded."""
    place = f"{want.plane.keystone_cluster}/{want.plane.keystone_namespace}/{want.mariadb}"
    return claim_name(want.plane.key, "Database", place, want.schema_name.encode().hex())


def mariadb(want: Ordered) -> Body:
    """Whom to ask for; it is read, never written."""
    return {"kind": "MariaDB", "metadata": {"name": want.mariadb, "namespace": want.plane.keystone_namespace}}


def database(want: Ordered) -> Body:
    """Beside the MariaDB: mariadb-operator looks for the server in the Database's own namespace."""
    spec = {
        "mariaDbRef": {"name": want.mariadb, "waitForIt": True},
        "name": want.schema_name,
        "cleanupPolicy": cleanup(want.spec),
    }
    meta = {
        "name": f"{prefix(want.order)}database",
        "namespace": want.plane.keystone_namespace,
        "labels": ownership_labels(want.order),
    }
    return {"kind": "Database", "metadata": meta, "spec": spec}


def cleanup(spec: MariaDBDatabaseSpec) -> str:
    """The order's policy in mariadb-operator's words."""
    return "Delete" if spec.effective_policy == DELETE else "Skip"


def service_account(plane_namespace: str) -> Body:
    """Shared by all orders of the plane, so it is nobody's: no labels, no owner."""
    return {"kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": plane_namespace}}


def certificate(plane_namespace: str) -> Body:
    """Shared likewise."""
    name = f"{CLIENT}.{plane_namespace}.svc"
    spec = {
        "secretName": CLIENT,
        "duration": "8760h",
        "renewBefore": "720h",
        "usages": ["client auth"],
        "commonName": name if len(name) <= MAX_COMMON_NAME else CLIENT,
        "issuerRef": {"name": "openbao-ca-issuer", "kind": "ClusterIssuer"},
    }
    return {"kind": "Certificate", "metadata": {"name": CLIENT, "namespace": plane_namespace}, "spec": spec}


def client_secret(plane_namespace: str) -> Body:
    """The Secret that cert-manager writes; it is read, never written."""
    return {"kind": "Secret", "metadata": {"name": CLIENT, "namespace": plane_namespace}}


def generator(want: Ordered) -> Body:
    """Reads the role's creds path, as the shared identity and with the shared client certificate."""
    provider: Body = {
        "server": want.bao.server,
        "version": "v2",
        "auth": {
            "kubernetes": {
                "mountPath": want.bao.mount,
                "role": "order-db",
                "serviceAccountRef": {"name": ACCOUNT},
            }
        },
        "caProvider": {"type": "Secret", "name": CLIENT, "key": "ca.crt"},
        "tls": {"certSecretRef": {"name": CLIENT}, "keySecretRef": {"name": CLIENT}},
    }
    if want.bao.namespace:
        provider["namespace"] = want.bao.namespace
    spec = {"path": creds_path(want.role_name), "method": "GET", "provider": provider}
    return {"kind": "VaultDynamicSecret", "metadata": _beside_the_plane(want), "spec": spec}


def external_secret(want: Ordered) -> Body:
    """Fetches a credential every 24 hours; the labels on its Secret bring each new one to the order's notice."""
    ref = {
        "apiVersion": "generators.external-secrets.io/v1alpha1",
        "kind": "VaultDynamicSecret",
        "name": credentials_name(want.order),
    }
    spec = {
        "refreshInterval": "24h",
        "target": {
            "name": credentials_name(want.order),
            "creationPolicy": "Owner",
            "template": {"metadata": {"labels": ownership_labels(want.order)}},
        },
        "dataFrom": [{"sourceRef": {"generatorRef": ref}}],
    }
    return {"kind": "ExternalSecret", "metadata": _beside_the_plane(want), "spec": spec}


def credentials(want: Ordered) -> Body:
    """The Secret that External Secrets writes; it is read, never written."""
    return {"kind": "Secret", "metadata": {"name": credentials_name(want.order), "namespace": want.plane.namespace}}


def delivered(want: Ordered) -> Body:
    """The Secret beside the order, without what is in it.

    Name and namespace label it for people; the cluster's label it lacks is what tells a child beside the plane apart.
    """
    order = want.order
    named = {key: value for key, value in ownership_labels(order).items() if not key.endswith("-cluster")}
    owner = {"apiVersion": "c5c3.io/v1alpha1", "kind": "MariaDBDatabase", "name": order.name, "uid": want.uid}
    meta = {
        "name": delivered_name(order),
        "namespace": order.namespace,
        "labels": named,
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    return {"kind": "Secret", "metadata": meta, "type": "Opaque"}


def _beside_the_plane(want: Ordered) -> Body:
    name, namespace = credentials_name(want.order), want.plane.namespace
    return {"name": name, "namespace": namespace, "labels": ownership_labels(want.order)}
