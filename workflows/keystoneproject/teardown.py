"""A KeystoneProject being deleted: holds, then its children, managed before probe, then the finalizer.

Entered under the order's own workflow id, so a provisioning and a teardown of one order never overlap.
"""

from __future__ import annotations

from temporalio import workflow

from workflows.scaffold import run

with workflow.unsafe.imports_passed_through():
    from workflows.keystoneproject import reasons
    from workflows.scaffold import steps
    from workflows.scaffold.carry import Carry
    from workflows.scaffold.verdict import Outcome


@workflow.defn(name="KeystoneProjectTeardown", failure_exception_types=[workflow.NondeterminismError])
class KeystoneProjectTeardown(run.Run):
    """Undoes what the order's other workflow did; patient while the ControlPlane exists, open once it is gone."""

    kind = "KeystoneProject"
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
        examined = await self.step(steps.Steps.examine, self.ref, f"examine {self.ref.key}")
        self.order = examined.order
        if examined.state is steps.State.PRESENT:
            await self.hand_over("KeystoneProject")
        if examined.state is steps.State.GONE or not self.order.finalized:
            raise run.Over
        if examined.trouble:
            raise run.Trouble(examined.trouble)
        if self.order.paused:
            self.leave((self.order.paused,))
            await self.report(Outcome(verdicts=()), note=f"Deletion waits: {self.order.paused}")
            return
        task = steps.Task(ref=self.ref, order=self.order, plane=examined.plane)
        removal = await self.step(steps.Steps.remove_project, task, f"remove the children of {self.ref.key}")
        if removal.held:
            await self.report(Outcome(verdicts=removal.held))
        elif removal.left:
            self.leave(removal.left)
            await self.report(Outcome(verdicts=()), note=f"Deletion waits for {'; '.join(removal.left)}")
        else:
            await self.step(steps.Steps.release, task, f"release {self.ref.key}")
            raise run.Over
