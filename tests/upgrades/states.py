"""Orders in every state that a release may meet them in, and how they come out of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tests.upgrades.rollout import Rollout
from tests.world import until
from workflows.keystoneproject import reasons
from workflows.scaffold.order import RESYNC, OrderRef


@dataclass
class Orders:
    """Some that are to become Ready, and one that is to go."""

    living: list[OrderRef]
    dying: OrderRef


async def in_every_state(rollout: Rollout) -> Orders:
    """One that is Ready, one that waits, one whose teardown waits; K-ORC is silent from now on."""
    world = rollout.world
    async with world.korc.playing():
        ready, dying = await world.order("ready"), await world.order("dying")
        await rollout.becomes_ready(ready, dying)
        await rollout.quiet(ready)
    waiting = await world.order("waiting")
    await rollout.reads(waiting, reasons.PROBING)
    await world.delete(dying)

    async def said() -> bool:
        return "Deletion waits" in (await world.conditions(dying))["Ready"]["message"]

    await until(said)
    return Orders([ready, waiting], dying)


async def one_is_in_a_step(rollout: Rollout, orders: Orders) -> None:
    """And one whose step stays for K-ORC's answer, which will be some seconds yet."""
    world = rollout.world
    stepping = await world.order("stepping")
    await world.korc.there(world.probe_of(stepping))
    assert await world.conditions(stepping) == {}
    orders.living.append(stepping)


async def all_come_out(rollout: Rollout, orders: Orders) -> None:
    async with rollout.world.korc.playing():
        await rollout.becomes_ready(*orders.living)
        await rollout.gone(orders.dying)
        await rollout.closed(orders.dying)


async def touched(rollout: Rollout, *refs: OrderRef) -> None:
    """A whole pass of each order, made now."""
    await asyncio.gather(
        *(rollout.client.get_workflow_handle(ref.workflow_id).execute_update("resync_now") for ref in refs)
    )


async def ringing(rollout: Rollout, *refs: OrderRef) -> None:
    for ref in refs:
        await rollout.client.get_workflow_handle(ref.workflow_id).signal(RESYNC)
