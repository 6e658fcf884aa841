"""A KeystoneProject being deleted: holds, then its children, managed before probe, then the finalizer.

Entered under the order's own workflow id, so a provisioning and a teardown of one order never overlap.
"""

from __future__ import annotations

from temporalio import workflow

from workflows.scaffold import passes
from workflows.scaffold.run import Run

with workflow.unsafe.imports_passed_through():
    from workflows.keystoneproject import reasons
    from workflows.scaffold import steps
    from workflows.scaffold.carry import Carry


@workflow.defn(name="KeystoneProjectTeardown", failure_exception_types=[workflow.NondeterminismError])
class KeystoneProjectTeardown(Run):
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
        await passes.taken_down(self, "KeystoneProject", steps.Steps.remove_project)
