"""What OpenBao holds for the product: mounts, roles, database connections. Pure data, one table each.

The names are a contract: other programs and the product ask for exactly these.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLICIES = Path(__file__).parent / "policies"
# Policies hold this word where the accessor of the kubernetes/management mount belongs, which OpenBao makes up.
ACCESSOR = "KUBERNETES_MANAGEMENT_ACCESSOR"
MANAGEMENT = "kubernetes/management"
DATABASE = "database/mariadb"
HOUR = 3600


@dataclass(frozen=True)
class Mount:
    """A secrets engine: where, of which type, and with which settings it is made."""

    path: str
    type: str
    options: dict[str, str] | None = None
    config: dict[str, str] | None = None


@dataclass(frozen=True)
class Role:
    """Which ServiceAccount gets which policy, and for how long its token lives."""

    name: str
    account: str
    namespace: str
    policy: str
    ttl: int
    max_ttl: int

    def body(self) -> dict[str, Any]:
        """As OpenBao's kubernetes auth method takes it."""
        return {
            "bound_service_account_names": [self.account],
            "bound_service_account_namespaces": [self.namespace],
            "token_policies": [self.policy],
            "token_ttl": self.ttl,
            "token_max_ttl": self.max_ttl,
        }


MOUNTS = (
    Mount("kv-v2", "kv", options={"version": "2"}),
    Mount("pki", "pki", config={"max_lease_ttl": "87600h"}),
    Mount(DATABASE, "database"),
    Mount("barbican", "kv", options={"version": "2"}),
)
AUTHS = (
    ("kubernetes/management", "kubernetes"),
    ("kubernetes/control-plane", "kubernetes"),
    ("kubernetes/hypervisor", "kubernetes"),
    ("kubernetes/storage", "kubernetes"),
    ("approle", "approle"),
)


def roles(operator_account: str = "c5c3-operator", operator_namespace: str = "c5c3-system") -> tuple[Role, ...]:
    """The roles on kubernetes/management. A database lease dies with the token that issued it, hence 72 h there."""
    if "*" in operator_account + operator_namespace:
        raise ValueError("the operator's role is bound to one ServiceAccount in one namespace, never to *")
    services = ("keystone", "glance", "placement", "barbican", "order")
    return (
        Role("eso-management", "external-secrets", "external-secrets", "eso-management", HOUR, 4 * HOUR),
        Role("eso-tenant", "eso-tenant-auth", "*", "eso-tenant", HOUR, 4 * HOUR),
        *(Role(f"{s}-db", f"{s}-db-creds", "*", f"{s}-db-dynamic", 72 * HOUR, 72 * HOUR) for s in services),
        Role("c5c3-operator", operator_account, operator_namespace, "c5c3-operator", HOUR // 4, HOUR // 4),
    )


def policy_texts(accessor: str) -> dict[str, str]:
    """Every policy by its name, for the mount that has this accessor."""
    if not accessor:
        raise ValueError("the accessor of kubernetes/management is not known: run setup-auth first")
    return {file.stem: file.read_text().replace(ACCESSOR, accessor) for file in sorted(POLICIES.glob("*.hcl"))}


@dataclass(frozen=True)
class Tenant:
    """The database of one plane: where Keystone's MariaDB is, and what may be issued on its connection."""

    plane_namespace: str
    keystone_namespace: str
    address: str
    schema: str = "keystone"

    @property
    def name(self) -> str:
        """Of the connection, and of Keystone's own role on it."""
        return f"keystone-{self.keystone_namespace}"

    def connection(self, password: str) -> dict[str, Any]:
        """Keystone's role and the orders of this plane: no other role can be used on it."""
        return {
            "plugin_name": "mysql-database-plugin",
            "connection_url": f"{{{{username}}}}:{{{{password}}}}@tcp({self.address})/",
            "username": "root",
            "password": password,
            "verify_connection": False,
            "allowed_roles": [self.name, f"order.{self.plane_namespace}.*"],
        }

    def role(self) -> dict[str, Any]:
        """Keystone's own. An unescaped _ in a grant would stand for any letter."""
        grant = f"GRANT ALL PRIVILEGES ON `{self.schema.replace('_', chr(92) + '_')}`.* TO '{{{{name}}}}'@'%';"
        return {
            "db_name": self.name,
            "creation_statements": ["CREATE USER '{{name}}'@'%' IDENTIFIED BY '{{password}}';", grant],
            "revocation_statements": ["DROP USER IF EXISTS '{{name}}'@'%';"],
            "default_ttl": 48 * HOUR,
            "max_ttl": 72 * HOUR,
        }


def tenant_store(namespace: str, server: str) -> list[dict[str, Any]]:
    """The trio by which a namespace reaches OpenBao: identity, client certificate, and the store that uses both."""
    certificate, account = "eso-tenant-client-tls", "eso-tenant-auth"
    name = f"{certificate}.{namespace}.svc"

    def meta(name: str) -> dict[str, str]:
        return {"namespace": namespace, "name": name}

    def key(name: str) -> dict[str, str]:
        return {"name": certificate, "key": name}

    kubernetes = {"mountPath": MANAGEMENT, "role": "eso-tenant", "serviceAccountRef": {"name": account}}
    vault = {
        "server": server,
        "path": "kv-v2",
        "version": "v2",
        "auth": {"kubernetes": kubernetes},
        "caProvider": {"type": "Secret", "name": certificate, "key": "ca.crt"},
        "tls": {"certSecretRef": key("tls.crt"), "keySecretRef": key("tls.key")},
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(account)},
        {
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": meta(certificate),
            "spec": {
                "secretName": certificate,
                "commonName": name if len(name) <= 64 else certificate,  # cert-manager refuses a longer one
                "duration": "8760h",
                "renewBefore": "720h",
                "usages": ["client auth"],
                "issuerRef": {"kind": "ClusterIssuer", "name": "openbao-ca-issuer"},
            },
        },
        {
            "apiVersion": "external-secrets.io/v1",
            "kind": "SecretStore",
            "metadata": meta("openbao-tenant-store"),
            "spec": {"provider": {"vault": vault}},
        },
    ]
