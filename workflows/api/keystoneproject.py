"""KeystoneProject: a project in the admin domain of a ControlPlane, reported by id (deploy/crds/)."""

from __future__ import annotations

from pydantic import Field

from workflows.api.controlplane import ControlPlaneRef
from workflows.api.meta import Model


class KeystoneProjectSpec(Model):
    """`spec`."""

    control_plane_ref: ControlPlaneRef
    project_name: str = ""

    def effective_name(self, metadata_name: str) -> str:
        """The project's name in Keystone: `projectName`, or the order's own name."""
        return self.project_name or metadata_name


class KeystoneProjectStatus(Model):
    """The fields of `status` beside the conditions, set once the project is provisioned."""

    project_id: str = Field("", alias="projectID")
    project_name: str = ""
    domain_name: str = ""
