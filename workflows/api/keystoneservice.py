"""KeystoneService: a catalog entry, a service account, or both, with the Keystone of a ControlPlane (deploy/crds/).

What a field left out stands for is derived here, each time: the stored object keeps it empty (contracts 1.4).
"""

from __future__ import annotations

from pydantic import Field

from workflows.api.controlplane import ControlPlane, ControlPlaneRef
from workflows.api.meta import Model


class Endpoint(Model):
    """One address of the service; `interface` is public, internal or admin, each at most once."""

    interface: str
    url: str


class Catalog(Model):
    """`spec.catalog`: the service's entry in the catalog."""

    service_type: str
    service_name: str = ""
    adopt: bool = False
    endpoints: tuple[Endpoint, ...] = ()

    def effective_name(self, metadata_name: str) -> str:
        """The service's name in Keystone: `serviceName`, or the order's own name."""
        return self.service_name or metadata_name


class AccountProject(Model):
    """The project that the account works in, referenced or created."""

    name: str
    create: bool = False


class Rotation(Model):
    """`mode` is Manual or Scheduled; the latter is accepted and does nothing yet."""

    mode: str = "Manual"


class Account(Model):
    """`spec.account`: what the service logs in with."""

    user_name: str = ""
    domain_name: str = ""
    adopt: bool = False
    project: AccountProject
    roles: tuple[str, ...] = ()
    rotation: Rotation = Rotation()

    @property
    def scheduled(self) -> bool:
        return self.rotation.mode == "Scheduled"

    def effective_user(self, metadata_name: str) -> str:
        """The user's name in Keystone: `userName`, or the order's own name."""
        return self.user_name or metadata_name

    def effective_domain(self, plane: ControlPlane) -> str:
        """The domain of user and project: `domainName`, or the plane's admin domain as it is now."""
        return self.domain_name or plane.admin_domain


class KeystoneServiceSpec(Model):
    """`spec`. Admission sees to it that a block is there."""

    control_plane_ref: ControlPlaneRef
    catalog: Catalog | None = None
    account: Account | None = None


class EndpointStatus(Model):
    """One row of `status.catalog.endpoints`; the id is empty until it is known."""

    interface: str
    id: str = ""


class CatalogStatus(Model):
    """`status.catalog`."""

    service_id: str = Field("", alias="serviceID")
    endpoints: tuple[EndpointStatus, ...] = ()


class AccountStatus(Model):
    """`status.account`. The time is kept as it is written, so that carrying it over changes nothing."""

    secret_name: str = ""
    user_id: str = Field("", alias="userID")
    project_id: str = Field("", alias="projectID")
    password_generation: int | None = None
    last_password_rotation: str | None = None
