"""A workflow as small as ours can be, to try the worker's machinery without a kind."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow


@workflow.defn(name="Toy")
class Toy:
    """Runs the step `touch` once for each ring, until as many as it is told have come; anew after every second."""

    @workflow.init
    def __init__(self, passes: int, rings: int = 0) -> None:
        self.rings = rings

    @workflow.run
    async def run(self, passes: int, rings: int = 0) -> None:
        for done in range(1, passes + 1):
            await workflow.wait_condition(lambda: self.rings > 0)
            self.rings -= 1
            await workflow.execute_activity("touch", start_to_close_timeout=timedelta(seconds=25))
            if done == 2 and passes > 2:
                workflow.continue_as_new(args=[passes - done, self.rings])

    @workflow.signal
    async def changed(self) -> None:
        self.rings += 1


@workflow.defn(name="Sleepy")
class Sleepy:
    """One step for the ring that started it; two more, one after the other, seconds later."""

    @workflow.run
    async def run(self) -> None:
        for pause in (0, 8, 0):
            await workflow.sleep(pause)
            await workflow.execute_activity("touch", start_to_close_timeout=timedelta(seconds=25))

    @workflow.signal
    async def changed(self) -> None:
        """Heard, and needed for nothing."""
