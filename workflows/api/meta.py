"""What every Kubernetes object has. Unknown fields are dropped, inputs never appear in errors."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """Base of all models: frozen, camel-cased on the wire, silent about its input when it is wrong."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True, hide_input_in_errors=True
    )


class Condition(Model):
    """A metav1.Condition; External Secrets and others leave `observedGeneration` out."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: datetime | None = None


class Meta(Model):
    """What we read of `metadata`."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[dict[str, Any], ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


def find(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    """The condition of that type, if there is one."""
    return next((condition for condition in conditions if condition.type == type_), None)


def is_true(conditions: tuple[Condition, ...], type_: str) -> bool:
    """Whether the condition of that type is there and True."""
    condition = find(conditions, type_)
    return condition is not None and condition.status == "True"
