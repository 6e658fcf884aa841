"""A registration's children as the API server would hold them, for the pure tests of its judges."""

from __future__ import annotations

from typing import Any

from tests.workflows.test_registration import registration
from tests.workflows.things import AVAILABLE, NOW, SUCCESS, korc
from workflows.api.controlplane import ControlPlane
from workflows.api.korc import KorcObject
from workflows.keystoneservice.children import Registration
from workflows.scaffold.child import Body, Found, Seen, Standing, key
from workflows.scaffold.removal import Removing
from workflows.scaffold.verdict import Act, Decision, Write

DONE = (AVAILABLE, SUCCESS)


class Live:
    """What is there. `put` adds a child as it was applied, with what its controller says of it."""

    def __init__(self, over: ControlPlane | None = None) -> None:
        self.reg: Registration = registration(over=over)
        self.children: dict[str, KorcObject] = {}
        self.claims: dict[str, str] = {}
        self.unserved: frozenset[str] = frozenset()

    @property
    def me(self) -> str:
        return self.reg.order.workflow_id

    def put(
        self,
        body: Body,
        *conditions: dict[str, Any],
        resource: dict[str, Any] | None = None,
        data: dict[str, str] | None = None,
        synced: str = "",
        annotations: dict[str, str | None] | None = None,
        **more: Any,
    ) -> KorcObject:
        """`annotations` are laid over those of the body; None takes one away."""
        said = {**(body["metadata"].get("annotations") or {}), **(annotations or {})}
        whole = {"spec": {}, **body}
        made = korc(*conditions, body=whole, annotations={k: v for k, v in said.items() if v is not None}, **more)
        status = made.status.model_copy(update={"resource": resource or {}, "synced_resource_version": synced})
        made = made.model_copy(update={"status": status, "data": data or {}})
        meta = body["metadata"]
        self.children[key(body["kind"], meta["namespace"], meta["name"])] = made
        return made

    def done(self, *bodies: Body) -> None:
        """Children that are there and Available."""
        for number, body in enumerate(bodies):
            managed = body["kind"] != "RoleAssignment"
            self.put(body, *DONE, id_=f"{body['kind'].lower()}-{number}" if managed else "")

    def drop(self, body: Body) -> None:
        self.children.pop(key(body["kind"], body["metadata"]["namespace"], body["metadata"]["name"]))

    @property
    def seen(self) -> Seen:
        return Seen(children=dict(self.children), claims=dict(self.claims), unserved=self.unserved, now=NOW)


NOTHING_SWEPT = Removing()
SWEEPING = Removing(
    do=(Write(act=Act.DELETE, kind="Role", name="old"),), left=("Role openstack/old to be gone",), stays=True
)


def does(decision: Decision | Found | Removing) -> list[tuple[Act, str, str]]:
    return [(write.act, write.kind, write.name) for write in decision.do]


def stands(found: Found, standing: Standing) -> str:
    assert found.standing is standing, found
    return found.message
