"""MariaDBDatabase: a schema on the MariaDB that a plane's services share, and a credential for it (deploy/crds/)."""

from __future__ import annotations

from workflows.api.controlplane import ControlPlaneRef
from workflows.api.meta import Model

RETAIN = "Retain"
DELETE = "Delete"


class MariaDBDatabaseSpec(Model):
    """`spec`."""

    control_plane_ref: ControlPlaneRef
    database_name: str = ""
    deletion_policy: str = ""

    def effective_name(self, metadata_name: str) -> str:
        """The schema: `databaseName`, or the order's own name with what no identifier may have written as `_`."""
        return self.database_name or metadata_name.replace("-", "_")

    @property
    def effective_policy(self) -> str:
        """What becomes of the schema with the order: kept, unless Delete is said."""
        return self.deletion_policy or RETAIN


class MariaDBDatabaseStatus(Model):
    """The fields of `status` beside the conditions, each kept as last known while a later step waits."""

    database_name: str = ""
    role_name: str = ""
    host: str = ""
    port: int | None = None
    credentials_refreshed_at: str = ""
    secret_name: str = ""
    secret_keys: tuple[str, ...] = ()


# -- what we read of other people's ------------------------------------------------------------------------------------


class Kubernetes(Model):
    """How a store logs in to OpenBao: here only by which mount."""

    mount_path: str = ""


class VaultAuth(Model):
    """The login of a vault store."""

    kubernetes: Kubernetes = Kubernetes()


class Vault(Model):
    """External Secrets' vault provider, as far as it says where OpenBao is."""

    server: str = ""
    namespace: str = ""
    auth: VaultAuth = VaultAuth()


class Provider(Model):
    """A store's provider; another one than vault has none of this."""

    vault: Vault = Vault()


class StoreSpec(Model):
    """`spec` of a SecretStore or ClusterSecretStore."""

    provider: Provider = Provider()


class Store(Model):
    """A SecretStore or ClusterSecretStore."""

    spec: StoreSpec = StoreSpec()


class Bao(Model):
    """Where OpenBao is, and by which mount its kubernetes logins go: the reference's own, unless a store says else."""

    server: str = "https://openbao.shared-services.svc:8200"
    mount: str = "kubernetes/management"
    namespace: str = ""

    @classmethod
    def of(cls, store: Store | None) -> Bao:
        vault = store.spec.provider.vault if store else Vault()
        said = {"server": vault.server, "mount": vault.auth.kubernetes.mount_path, "namespace": vault.namespace}
        return cls(**{key: value for key, value in said.items() if value})
