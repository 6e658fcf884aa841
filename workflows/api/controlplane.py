"""What we read of a ControlPlane. We never write one; a full upstream object parses too."""

from __future__ import annotations

from pydantic import Field

from workflows.api.meta import Condition, Meta, Model, is_true


class ControlPlaneRef(Model):
    """Names the plane, in every order; `namespace` defaults to the order's own."""

    name: str
    namespace: str = ""


class ClusterRef(Model):
    """Names a registered target cluster."""

    name: str = ""


class NamespaceRef(Model):
    """Names a service's own namespace; empty is the plane's."""

    name: str = ""


class Gateway(Model):
    """Keystone's route from outside."""

    hostname: str = ""


class SecretRef(Model):
    """Names a Secret; which of its keys is read is the reader's to know."""

    name: str = ""


class DatabaseTls(Model):
    """TLS towards a database: on iff the mode says so."""

    mode: str = ""
    ca_bundle_secret_ref: SecretRef = SecretRef()

    @property
    def enabled(self) -> bool:
        return self.mode not in ("", "disabled")


class Database(Model):
    """A MariaDB of the plane's (`clusterRef`), or one that somebody else runs (`host`)."""

    cluster_ref: ClusterRef = ClusterRef()
    host: str = ""
    database: str = ""
    credentials_mode: str = ""
    tls: DatabaseTls = DatabaseTls()


class Infrastructure(Model):
    """Backing services that the plane's services share."""

    database: Database | None = None
    published_database_endpoint: str = ""


class DedicatedServices(Model):
    """Backing services that Keystone shares with nobody."""

    database: Database | None = None


class ExternalKeystone(Model):
    """Where a Keystone that the plane does not run is reached."""

    auth_url: str = Field("", alias="authURL")
    endpoint_type: str = "public"


class KeystoneSpec(Model):
    """How the plane has its Keystone: `mode` is Managed or External."""

    mode: str = "Managed"
    external: ExternalKeystone = ExternalKeystone()
    namespace: NamespaceRef = NamespaceRef()
    target_cluster_ref: ClusterRef = ClusterRef()
    public_endpoint: str = ""
    gateway: Gateway = Gateway()
    database_credentials_mode: str = ""
    dedicated_backing_services: DedicatedServices = DedicatedServices()


class Service(Model):
    """Another service: of it only where it lives."""

    namespace: NamespaceRef = NamespaceRef()


class Services(Model):
    """The plane's services, as far as gates and children read them."""

    keystone: KeystoneSpec = KeystoneSpec()
    horizon: Service = Service()
    glance: Service = Service()
    placement: Service = Service()
    barbican: Service = Service()


class CloudCredentialsRef(Model):
    """The plane's admin credential as K-ORC reads it."""

    secret_name: str = ""
    cloud_name: str = ""


class AdminCredential(Model):
    """The plane's own identity in Keystone."""

    cloud_credentials_ref: CloudCredentialsRef = CloudCredentialsRef()
    user_name: str = ""
    project_name: str = ""
    domain_name: str = ""


class ServiceRegistrations(Model):
    """Who may register services beside the plane's own namespaces; an absent block equals an empty list."""

    allowed_namespaces: tuple[str, ...] = ()


class Korc(Model):
    """`spec.korc`."""

    admin_credential: AdminCredential = AdminCredential()
    service_registrations: ServiceRegistrations = ServiceRegistrations()


class SecretStoreRef(Model):
    """The External Secrets store that Secrets are delivered through."""

    kind: str = ""
    name: str = ""


class NamespaceAssignment(Model):
    """The consent: orders from this namespace, on this cluster, are served."""

    namespace: str
    target_cluster_ref: ClusterRef = ClusterRef()


class ControlPlaneSpec(Model):
    """`spec`, our subset."""

    region: str = "RegionOne"
    infrastructure: Infrastructure = Infrastructure()
    secret_store_ref: SecretStoreRef = SecretStoreRef()
    services: Services = Services()
    korc: Korc = Korc()
    namespace_assignments: tuple[NamespaceAssignment, ...] = ()


class ControlPlaneStatus(Model):
    """`status`, our subset."""

    conditions: tuple[Condition, ...] = ()


class ControlPlane(Model):
    """One identity plane. Defaults are those of contracts 2.1, applied to absent and to empty values alike."""

    metadata: Meta
    spec: ControlPlaneSpec = ControlPlaneSpec()
    status: ControlPlaneStatus = ControlPlaneStatus()

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def external(self) -> bool:
        return self.spec.services.keystone.mode == "External"

    @property
    def auth_url(self) -> str:
        """The external Keystone's URL; empty on a Managed plane."""
        return self.spec.services.keystone.external.auth_url if self.external else ""

    @property
    def endpoint_type(self) -> str:
        return self.spec.services.keystone.external.endpoint_type or "public"

    @property
    def region(self) -> str:
        return self.spec.region or "RegionOne"

    @property
    def keystone_namespace(self) -> str:
        return self.spec.services.keystone.namespace.name or self.namespace

    @property
    def keystone_cluster(self) -> str:
        """The registered cluster that Keystone and its database are on; empty is the management cluster."""
        return self.spec.services.keystone.target_cluster_ref.name

    @property
    def database(self) -> Database | None:
        """Keystone's database, which its plane's other services share unless it is a dedicated one (contracts 2.1)."""
        if self.external:
            return None
        return self.spec.services.keystone.dedicated_backing_services.database or self.spec.infrastructure.database

    @property
    def issues_credentials(self) -> bool:
        """Whether OpenBao issues the credentials of the shared database (contracts 2.1)."""
        keystone, shared = self.spec.services.keystone, self.spec.infrastructure.database
        if self.external or keystone.dedicated_backing_services.database or shared is None:
            return False
        mode = keystone.database_credentials_mode or shared.credentials_mode or "Dynamic"
        return bool(shared.cluster_ref.name) and mode != "Static"

    @property
    def published_database_endpoint(self) -> str:
        """`host:port` by which other clusters reach the shared database; empty if they do not."""
        return self.spec.infrastructure.published_database_endpoint

    @property
    def db_credentials_ready(self) -> bool:
        return is_true(self.status.conditions, "DBCredentialsReady")

    @property
    def service_auth_url(self) -> str:
        """Where a service on the management cluster reaches Keystone (contracts 3.2); empty if no field says so."""
        keystone = self.spec.services.keystone
        if self.external:
            return self.auth_url
        if not keystone.target_cluster_ref.name:
            return f"http://{self.metadata.name}-keystone.{self.keystone_namespace}.svc:5000/v3"
        routed = f"https://{keystone.gateway.hostname}/v3" if keystone.gateway.hostname else ""
        return keystone.public_endpoint or routed

    @property
    def service_interface(self) -> str:
        """Which endpoints of the catalog a service uses: internal ones, unless the Keystone is somebody else's."""
        return self.endpoint_type if self.external else "internal"

    @property
    def store_ref(self) -> dict[str, str]:
        """The store to deliver through, as External Secrets names it.

        A SecretStore is that of the consuming namespace: the plane lays one down in each that may register.
        """
        ref = self.spec.secret_store_ref
        if not ref.name:
            return {"kind": "SecretStore", "name": "openbao-tenant-store"}
        return {"kind": ref.kind or "ClusterSecretStore", "name": ref.name}

    @property
    def admin_user(self) -> str:
        return self.spec.korc.admin_credential.user_name or "admin"

    @property
    def admin_domain(self) -> str:
        return self.spec.korc.admin_credential.domain_name or "Default"

    @property
    def admin_project(self) -> str:
        return self.spec.korc.admin_credential.project_name or "admin"

    @property
    def cloud_name(self) -> str:
        return self.spec.korc.admin_credential.cloud_credentials_ref.cloud_name or "admin"

    @property
    def domain_handle(self) -> str:
        """The Domain import of the admin domain, which the plane owns (contracts 2.4)."""
        return f"{self.metadata.name}-domain-default"

    @property
    def cred_ref(self) -> dict[str, str]:
        """`cloudCredentialsRef` of probes and imports: the plane's application credential."""
        secret = self.spec.korc.admin_credential.cloud_credentials_ref.secret_name or "k-orc-clouds-yaml"
        return {"secretName": secret, "cloudName": self.cloud_name}

    @property
    def managed_cred_ref(self) -> dict[str, str]:
        """`cloudCredentialsRef` of every managed child: the password cloud.

        The application credential is revoked when the plane goes, and a managed child still authenticating
        through it would leave its resource in Keystone.
        """
        return {"secretName": f"{self.metadata.name}-admin-password-cloud", "cloudName": self.cloud_name}

    @property
    def admin_credential_ready(self) -> bool:
        return is_true(self.status.conditions, "AdminCredentialReady")

    @property
    def paused(self) -> bool:
        return self.metadata.annotations.get(PAUSED) == "true"

    def lean(self) -> ControlPlane:
        """The plane without what no gate or judge asks, so that a large one does not weigh on every history."""
        annotations = {key: value for key, value in self.metadata.annotations.items() if key == PAUSED}
        meta = self.metadata.model_copy(
            update={"annotations": annotations, "labels": {}, "finalizers": (), "owner_references": ()}
        )
        conditions = tuple(each.model_copy(update={"message": ""}) for each in self.status.conditions)
        status = self.status.model_copy(update={"conditions": conditions})
        return self.model_copy(update={"metadata": meta, "status": status})

    def assigns(self, namespace: str, cluster: str) -> bool:
        """Whether `spec.namespaceAssignments` has an entry for exactly this namespace on exactly this cluster."""
        entries = self.spec.namespace_assignments
        return any(entry.namespace == namespace and entry.target_cluster_ref.name == cluster for entry in entries)

    def registers(self, namespace: str) -> bool:
        """Whether services of this namespace may be registered: the plane's own, its services', or a listed one."""
        services = self.spec.services
        every = (services.keystone, services.horizon, services.glance, services.placement, services.barbican)
        dedicated = {service.namespace.name for service in every if service.namespace.name}
        allowed = self.spec.korc.service_registrations.allowed_namespaces
        return namespace == self.namespace or namespace in dedicated or namespace in allowed


PAUSED = "c5c3.io/paused"
"""Annotation that stops every write but status, on an order or on a plane (contracts 14.11)."""
