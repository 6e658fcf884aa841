"""What we read of a K-ORC object: the same envelope for every kind (contracts 6.2)."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from workflows.api.meta import Condition, Meta, Model

GROUP = "openstack.k-orc.cloud"


class KorcStatus(Model):
    """`status`. `id` is the resource's in OpenStack, once known; a RoleAssignment never has one.

    synced_resource_version  of External Secrets' objects: which version of the object was acted on last
    refresh_time             of an ExternalSecret: when it was fetched last, as it is written
    """

    id: str = ""
    resource: dict[str, Any] = Field(default_factory=dict)
    synced_resource_version: str = ""
    refresh_time: str = ""
    conditions: tuple[Condition, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, said: Any) -> Any:
        """External Secrets writes a null for a time that has not come."""
        return {key: value for key, value in said.items() if value is not None} if isinstance(said, dict) else said


class KorcObject(Model):
    """An order's child of any kind, K-ORC's or other, as the API server holds it.

    data     of a Secret: what stands for each value (`fingerprint`), never a value
    partial  nothing but its metadata was read
    """

    metadata: Meta
    spec: dict[str, Any] = Field(default_factory=dict)
    status: KorcStatus = KorcStatus()
    data: dict[str, str] = Field(default_factory=dict)
    partial: bool = False

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None
