"""KeystoneProjects as a later release may have them: a step more in each pass, with and without `workflow.patched`."""

from __future__ import annotations

from temporalio import workflow

from workflows.keystoneproject.teardown import KeystoneProjectTeardown
from workflows.keystoneproject.workflow import KeystoneProject

with workflow.unsafe.imports_passed_through():
    from workflows.scaffold import steps
    from workflows.scaffold.carry import Carry

PATCH = "examine-first"


@workflow.defn(name="KeystoneProject", failure_exception_types=[workflow.NondeterminismError])
class Guarded(KeystoneProject):
    """Examines before it admits, in runs that have not passed without it."""

    @workflow.init
    def __init__(self, carry: Carry | None = None) -> None:
        super().__init__(carry)

    @workflow.run
    async def run(self, carry: Carry | None = None) -> None:
        await super().run(carry)

    async def one_pass(self) -> None:
        if workflow.patched(PATCH):
            await self.step(steps.Steps.examine, self.ref, "examine first")
        await super().one_pass()


@workflow.defn(name="KeystoneProjectTeardown", failure_exception_types=[workflow.NondeterminismError])
class GuardedTeardown(KeystoneProjectTeardown):
    """Examines twice."""

    @workflow.init
    def __init__(self, carry: Carry | None = None) -> None:
        super().__init__(carry)

    @workflow.run
    async def run(self, carry: Carry | None = None) -> None:
        await super().run(carry)

    async def one_pass(self) -> None:
        if workflow.patched(PATCH):
            await self.step(steps.Steps.examine, self.ref, "examine first")
        await super().one_pass()


@workflow.defn(name="KeystoneProject", failure_exception_types=[workflow.NondeterminismError])
class Unguarded(KeystoneProject):
    """Examines before it admits, whatever the run has done so far."""

    @workflow.init
    def __init__(self, carry: Carry | None = None) -> None:
        super().__init__(carry)

    @workflow.run
    async def run(self, carry: Carry | None = None) -> None:
        await super().run(carry)

    async def one_pass(self) -> None:
        await self.step(steps.Steps.examine, self.ref, "examine first")
        await super().one_pass()


@workflow.defn(name="KeystoneProjectTeardown", failure_exception_types=[workflow.NondeterminismError])
class UnguardedTeardown(KeystoneProjectTeardown):
    """Admits before it examines, whatever the run has done so far."""

    @workflow.init
    def __init__(self, carry: Carry | None = None) -> None:
        super().__init__(carry)

    @workflow.run
    async def run(self, carry: Carry | None = None) -> None:
        await super().run(carry)

    async def one_pass(self) -> None:
        await self.step(steps.Steps.admit, self.ref, "admit first")
        await super().one_pass()
