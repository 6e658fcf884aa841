"""An ordered database as its steps read it: what the order declares, which clusters it is about, where OpenBao is."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field

from activities.cluster import MARIADB_DATABASE, SECRET_STORE, STORE_KINDS, Cluster, Object
from activities.job import Job
from activities.pen import Pen
from activities.projection import Projection, child_of
from workflows.api.controlplane import ControlPlane
from workflows.api.korc import KorcObject
from workflows.api.mariadbdatabase import Bao, MariaDBDatabaseSpec, Store
from workflows.mariadbdatabase import children, provision, reasons
from workflows.mariadbdatabase.children import CLIENT_KEYS, Ordered
from workflows.scaffold.child import fingerprint
from workflows.scaffold.steps import START_TO_CLOSE, STEP_DEADLINE
from workflows.scaffold.verdict import WAIT_SECONDS, Decision, Verdict

_REQUEST_SECONDS = (START_TO_CLOSE - STEP_DEADLINE).total_seconds()
"""How long a request may last that a step has begun before its deadline."""
_MARGIN_SECONDS = 4.0
"""By how much it must be over before Temporal gives the step up: who did not answer is to be said by name."""


@dataclass(frozen=True)
class Given(Job):
    """One step's task, in the words of the kind."""

    bao: Bao = field(default_factory=Bao)

    kind = MARIADB_DATABASE

    @property
    def spec(self) -> MariaDBDatabaseSpec:
        return MariaDBDatabaseSpec.model_validate(self.task.order.spec)

    @property
    def want(self) -> Ordered:
        return Ordered(order=self.task.ref, uid=self.task.order.uid, spec=self.spec, plane=self.plane, bao=self.bao)

    def projection(self, pen: Pen | None, elsewhere: Mapping[str, Cluster]) -> Projection:
        marks = children.marks(self.task.ref, self.task.order.uid)
        return Projection(self.management, self.task.ref, marks, pen, elsewhere=elsewhere, stands_for=stands_for)


async def bao_of(management: Cluster, ref: Mapping[str, str], namespace: str) -> Bao:
    """Where OpenBao is, by the plane's store; one that is not there leaves it at the reference's default."""
    kind = STORE_KINDS.get(ref["kind"])
    if kind is None:
        return Bao()
    raw = await management.get(kind, namespace if kind is SECRET_STORE else None, ref["name"])
    return Bao.of(Store.model_validate(raw) if raw else None)


def stands_for(key: str, value: bytes) -> str:
    return provision.stand_in(key, value, fingerprint(value))


def child(raw: Object | None) -> KorcObject | None:
    return child_of(raw, stands_for) if raw else None


def values(secret: Object | None) -> dict[str, bytes]:
    return {key: b64decode(value) for key, value in ((secret or {}).get("data") or {}).items()}


def complete(client: Object | None) -> bool:
    have = values(client)
    return all(have.get(key) for key in CLIENT_KEYS)


def until(pen: Pen | None, at_most: float = 60.0) -> float:
    """When the last answer to the step's requests must have come: in time for the step to say what did not answer."""
    left = pen.left if pen is not None else STEP_DEADLINE.total_seconds()
    return time.monotonic() + min(max(left, 0) + _REQUEST_SECONDS - _MARGIN_SECONDS, at_most)


def unavailable(type_: str, plane: ControlPlane, error: Exception) -> Decision:
    message = (
        f"Cluster {plane.keystone_cluster!r}, where Keystone of ControlPlane {plane.key} is, cannot be used: {error}."
    )
    reason = reasons.CLUSTER_UNAVAILABLE
    return Decision(verdict=Verdict(type=type_, status=False, reason=reason, message=message, again=WAIT_SECONDS))
