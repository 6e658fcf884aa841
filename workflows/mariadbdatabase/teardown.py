"""A MariaDBDatabase being deleted: leases, role, delivery objects, Database, delivered Secret, then the finalizer.

Entered under the order's own workflow id, so a provisioning and a teardown of one order never overlap.
"""

from __future__ import annotations

from temporalio import workflow

from workflows.scaffold import passes, run

with workflow.unsafe.imports_passed_through():
    from workflows.mariadbdatabase import reasons
    from workflows.scaffold import steps
    from workflows.scaffold.carry import Carry


@workflow.defn(name="MariaDBDatabaseTeardown", failure_exception_types=[workflow.NondeterminismError])
class MariaDBDatabaseTeardown(run.Run):
    """Undoes what the order's other workflow did; patient while the ControlPlane exists, open once it is gone."""

    kind = "MariaDBDatabase"
    condition_types = reasons.CONDITIONS
    phase = "being torn down"

    @workflow.init
    def __init__(self, carry: Carry | None = None) -> None:
        super().__init__(carry)

    @workflow.run
    async def run(self, carry: Carry | None = None) -> None:
        await self.outlive_late_writes()
        await self.passes(self.one_pass)

    async def one_pass(self) -> None:
        await passes.taken_down(self, "MariaDBDatabase", steps.Steps.remove_database)
