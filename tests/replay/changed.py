"""A KeystoneProject whose steps come in another order, as a release without `workflow.patched` would bring it."""

from __future__ import annotations

from temporalio import workflow

from workflows.scaffold import run

with workflow.unsafe.imports_passed_through():
    from workflows.keystoneproject import reasons
    from workflows.scaffold import steps
    from workflows.scaffold.carry import Carry


@workflow.defn(name="KeystoneProject", failure_exception_types=[workflow.NondeterminismError])
class ChangedKeystoneProject(run.Run):
    """Examines before it admits."""

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
        await self.step(steps.Steps.examine, self.ref, "examine first")
        admitted = await self.step(steps.Steps.admit, self.ref, "then admit")
        self.order = admitted.order
        task = steps.Task(ref=self.ref, order=self.order, plane=admitted.plane)
        await self.report(await self.step(steps.Steps.provision_project, task, "then provision"))
