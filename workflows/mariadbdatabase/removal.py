"""Taking a database's children back, once its leases are revoked and its role is gone: what now, in which order (4.12).

The order of the kinds is the order of the deletes; mariadb-operator drops or keeps the schema by the policy that the
Database has at that moment, so it gets the one in force first.
"""

from __future__ import annotations

from workflows.api.controlplane import ControlPlane
from workflows.api.korc import KorcObject
from workflows.api.mariadbdatabase import MariaDBDatabaseSpec
from workflows.mariadbdatabase import children
from workflows.scaffold.child import Seen
from workflows.scaffold.ownership import Marks
from workflows.scaffold.removal import Removing, judge_removal
from workflows.scaffold.verdict import Act, Write

BESIDE_THE_PLANE = ("ExternalSecret", "VaultDynamicSecret")
DATABASE = "Database"
DELIVERED = "Secret"
KINDS = (*BESIDE_THE_PLANE, DATABASE, DELIVERED)


def judge_teardown(
    spec: MariaDBDatabaseSpec, marks: Marks, plane: ControlPlane | None, seen: Seen, kinds: tuple[str, ...] = KINDS
) -> Removing:
    """What is left of the order's children of these kinds, and what is to be done about it."""
    removing = judge_removal(kinds, marks, plane, seen)
    policies = [
        write
        for name, child in seen.children.items()
        if DATABASE in kinds and name.startswith(f"{DATABASE}/") and marks.sweeps(DATABASE, child.metadata)
        for write in _policy(spec, child)
    ]
    before = [write for write in removing.do if write.kind in BESIDE_THE_PLANE]
    after = [write for write in removing.do if write.kind not in BESIDE_THE_PLANE]
    return removing.model_copy(update={"do": (*before, *policies, *after)})


def _policy(spec: MariaDBDatabaseSpec, child: KorcObject) -> tuple[Write, ...]:
    wanted, meta = children.cleanup(spec), child.metadata
    if child.spec.get("cleanupPolicy") == wanted:
        return ()
    body = {"spec": {"cleanupPolicy": wanted}}
    return (Write(act=Act.PATCH, kind=DATABASE, namespace=meta.namespace, name=meta.name, body=body),)
