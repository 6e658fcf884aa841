"""One KeystoneProject, served for as long as it exists. One pass fits one screen.

admit (gates, finalizer) -> provision_project (probe, managed Project) -> report; then it waits. The first pass over a
new order, and one over an order that is Ready and stays so, is its admit alone.
"""

from __future__ import annotations

from temporalio import workflow

from workflows.scaffold import passes
from workflows.scaffold.run import Run, Trouble

with workflow.unsafe.imports_passed_through():
    from workflows.keystoneproject import reasons
    from workflows.scaffold import steps
    from workflows.scaffold.carry import Carry
    from workflows.scaffold.verdict import Outcome


@workflow.defn(name="KeystoneProject", failure_exception_types=[workflow.NondeterminismError])
class KeystoneProject(Run):
    """Provisions the order and keeps it so."""

    kind = "KeystoneProject"
    condition_types = reasons.CONDITIONS
    phase = "serving"

    @workflow.init
    def __init__(self, carry: Carry | None = None) -> None:
        super().__init__(carry)

    @workflow.run
    async def run(self, carry: Carry | None = None) -> None:
        await self.passes(self.one_pass)

    async def one_pass(self) -> None:
        admitted = await passes.admitted(self, "KeystoneProjectTeardown")
        if admitted.refused:
            outcome = Outcome(verdicts=admitted.refused)
        elif admitted.found is not None:
            outcome = admitted.found
        else:
            outcome = await self._provision(steps.Task(ref=self.ref, order=self.order, plane=admitted.plane))
        await self.report(outcome, note=self.order.paused)

    async def _provision(self, task: steps.Task) -> Outcome:
        try:
            return await self.step(steps.Steps.provision_project, task, f"provision project for {self.ref.key}")
        except Trouble as trouble:
            return self.trouble_verdict(reasons.PROJECT_READY, reasons.ERROR, trouble)
