"""One MariaDBDatabase, served for as long as it exists. One pass fits one screen.

admit (gates, finalizer) -> provision_database (server, name, certificate, OpenBao role, Database, ExternalSecret) ->
deliver_database (the Secret beside the order) -> report; then it waits. A pass over a Ready order is its admit alone.
"""

from __future__ import annotations

from temporalio import workflow

from workflows.scaffold import passes
from workflows.scaffold.run import Run, Trouble

with workflow.unsafe.imports_passed_through():
    from workflows.mariadbdatabase import delivery, reasons
    from workflows.scaffold import steps
    from workflows.scaffold.carry import Carry
    from workflows.scaffold.verdict import Outcome


@workflow.defn(name="MariaDBDatabase", failure_exception_types=[workflow.NondeterminismError])
class MariaDBDatabase(Run):
    """Provisions and delivers the order, and keeps it so."""

    kind = "MariaDBDatabase"
    condition_types = reasons.CONDITIONS
    phase = "serving"

    @workflow.init
    def __init__(self, carry: Carry | None = None) -> None:
        super().__init__(carry)

    @workflow.run
    async def run(self, carry: Carry | None = None) -> None:
        await self.passes(self.one_pass)

    async def one_pass(self) -> None:
        admitted = await passes.admitted(self, "MariaDBDatabaseTeardown")
        if admitted.refused:
            outcome = Outcome(verdicts=admitted.refused)
        elif admitted.found is not None:
            outcome = admitted.found
        else:
            outcome = await self._served(steps.Task(ref=self.ref, order=self.order, plane=admitted.plane))
        await self.report(outcome, note=self.order.paused)

    async def _served(self, task: steps.Task) -> Outcome:
        provisioned = await self._provision(task)
        (verdict,) = provisioned.verdicts
        if not verdict.status:
            return Outcome(verdicts=(verdict, delivery.skipped(verdict)), fields=provisioned.fields)
        delivered = await self._deliver(task)
        return Outcome(verdicts=(verdict, *delivered.verdicts), fields={**provisioned.fields, **delivered.fields})

    async def _provision(self, task: steps.Task) -> Outcome:
        """What fails otherwise than at OpenBao has no condition of its own: it is said in Ready (contracts 14.9)."""
        try:
            return await self.step(steps.Steps.provision_database, task, f"provision a schema for {self.ref.key}")
        except Trouble as trouble:
            if trouble.type != steps.OPENBAO:
                raise
            return self.trouble_verdict(reasons.DATABASE_READY, reasons.OPENBAO_ERROR, trouble)

    async def _deliver(self, task: steps.Task) -> Outcome:
        try:
            return await self.step(steps.Steps.deliver_database, task, f"deliver the credential of {self.ref.key}")
        except Trouble as trouble:
            return self.trouble_verdict(reasons.DELIVERY_READY, reasons.DELIVERY_ERROR, trouble)
