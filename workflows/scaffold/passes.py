"""The parts of a pass that every kind has: letting an order in, and taking it down (contracts 4.3, 4.9, 4.11)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from temporalio import workflow

from workflows.scaffold import run

with workflow.unsafe.imports_passed_through():
    from workflows.scaffold import steps
    from workflows.scaffold.verdict import Outcome


async def admitted(order: run.Run, teardown: str) -> steps.Admitted:
    """The order as it may be served now; one that is being deleted goes on as `teardown`."""
    found = await order.step(steps.Steps.admit, order.ref, f"admit {order.ref.key}")
    order.order = found.order
    if found.state is steps.State.GONE:
        if order.bereft is None or found.unknown:
            raise run.Over
        # The API server deletes at once what had no finalizer as it was asked, even if it has one by then.
        await order.hand_over(teardown)
    begun = steps.Task(ref=order.ref, order=found.order, plane=found.plane, gone=True)
    order.bereft = begun if found.begun else None
    if found.state is steps.State.DELETING:
        if not found.order.finalized:
            raise run.Over
        order.finds_deleted()
        await order.hand_over(teardown)
    order.finds_served()
    if found.trouble:
        raise run.Trouble(found.trouble)
    return found


async def taken_down(
    order: run.Run, serving: str, remove: Callable[[steps.Steps, steps.Task], Awaitable[steps.Removal]]
) -> None:
    """One pass over an order that is being deleted: holds, children, and then the finalizer."""
    examined = await order.step(steps.Steps.examine, order.ref, f"examine {order.ref.key}")
    order.order = examined.order
    if examined.state is steps.State.PRESENT:
        await order.hand_over(serving)
    if examined.state is steps.State.GONE and order.bereft is not None and not examined.unknown:
        removal = await order.step(remove, order.bereft, f"remove the children of {order.ref.key}, which is gone")
        order.leave(removal.left or tuple(verdict.message for verdict in removal.held))
        if removal.left or removal.held:
            return
        raise run.Over
    order.bereft = None
    if examined.state is steps.State.GONE or not examined.order.finalized:
        raise run.Over
    if examined.trouble:
        raise run.Trouble(examined.trouble)
    if examined.order.paused:
        order.leave((examined.order.paused,))
        await order.report(Outcome(verdicts=()), note=f"Deletion waits: {examined.order.paused}")
        return
    task = steps.Task(ref=order.ref, order=examined.order, plane=examined.plane)
    removal = await order.step(remove, task, f"remove the children of {order.ref.key}")
    if removal.held:
        await order.report(Outcome(verdicts=removal.held))
    elif removal.left:
        order.leave(removal.left)
        await order.report(Outcome(verdicts=()), note=f"Deletion waits for {'; '.join(removal.left)}")
    else:
        await order.step(steps.Steps.release, task, f"release {order.ref.key}")
        raise run.Over
