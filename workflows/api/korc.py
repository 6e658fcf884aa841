"""What we read of a K-ORC object: the same envelope for every kind (contracts 6.2)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from workflows.api.meta import Condition, Meta, Model

GROUP = "openstack.k-orc.cloud"


class KorcStatus(Model):
    """`status`. `id` is the resource's in OpenStack, once known; a RoleAssignment never has one."""

    id: str = ""
    conditions: tuple[Condition, ...] = ()


class KorcObject(Model):
    """A K-ORC object of any kind, as the API server holds it."""

    metadata: Meta
    spec: dict[str, Any] = Field(default_factory=dict)
    status: KorcStatus = KorcStatus()

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None
