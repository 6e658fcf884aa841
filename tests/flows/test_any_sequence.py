"""Whatever happens to an order, in whatever sequence: in the end it reads as the world is, and goes without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from datetime import timedelta

import pytest
from temporalio.service import RPCError

from activities.errors import ClusterError, Conflict
from tests.flows.conftest import Serve
from tests.flows.flow import until
from tests.flows.world import World, waiting
from workflows.api.controlplane import PAUSED
from workflows.scaffold import steps
from workflows.scaffold.steps import Removal

_FORBIDDEN = ClusterError("asking", 403, "Forbidden", "no right")


class Fate:
    """What may happen to an order; each happening is rung as the watcher would ring it."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.births = 1

    def happen(self) -> None:
        happenings: list[Callable[[], None]] = [
            self.finds_something, self.changes_plane, self.is_edited, self.is_deleted, self.is_born, self.breaks,
            self.heals, self.is_let_go,
        ]  # fmt: skip
        self.random.choice(happenings)()

    def finds_something(self) -> None:
        found = (self.world.provisioned(), waiting("it"), waiting("else", again=0.3), _FORBIDDEN)
        self.world.find = self.random.choice(found)

    def changes_plane(self) -> None:
        annotations = {PAUSED: "true"} if self.random.random() < 0.2 else {}
        self.world.plane(assigned=self.random.random() < 0.7, ready=self.random.random() < 0.7, annotations=annotations)

    def is_edited(self) -> None:
        if (live := self.world.live) is not None:
            annotations = {PAUSED: "true"} if self.random.random() < 0.2 else {}
            self.world.touch(generation=live["metadata"]["generation"] + 1, annotations=annotations)

    def is_deleted(self) -> None:
        if (live := self.world.live) is not None and not live["metadata"].get("deletionTimestamp"):
            self.world.delete()

    def is_born(self) -> None:
        if self.world.live is None or self.random.random() < 0.1:
            self.births += 1
            self.world.order(uid=f"uid-{self.births}", finalized=False)

    def breaks(self) -> None:
        broken = self.random.choice(("get keystoneprojects", "get controlplanes", "patch keystoneprojects"))
        self.world.home.refuse[broken] = self.random.choice((_FORBIDDEN, Conflict("asking", 409, "Conflict", "moved")))

    def heals(self) -> None:
        self.world.home.refuse.clear()

    def is_let_go(self) -> None:
        self.world.remove = self.random.choice((Removal(), World.left("a child"), _FORBIDDEN))

    def ends_well(self) -> None:
        self.heals()
        self.world.plane()
        self.world.find, self.world.remove = self.world.provisioned(), Removal()
        if self.world.live is not None:
            self.world.touch(annotations={})


@pytest.mark.parametrize("seed", range(6))
async def test_in_the_end_it_reads_as_the_world_is(serve: Serve, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A run that begins on a deletion waits for as long as that.
    monkeypatch.setattr(steps, "START_TO_CLOSE", timedelta(seconds=8))
    world = World(f"any-{seed}")
    fate = Fate(world, seed)
    async with serve(world) as flow:
        await flow.ring()
        for _ in range(40):
            fate.happen()
            await flow.ring()
            if fate.random.random() < 0.1:
                with contextlib.suppress(RPCError):  # a run that is over hears nothing more
                    await flow.resync()
            await asyncio.sleep(fate.random.choice((0, 0, 0.02, 0.1)))
        fate.ends_well()
        await flow.ring()
        live = world.live
        if live is not None and live["metadata"].get("deletionTimestamp"):
            await until(lambda: world.live is None)
        if world.live is None:
            world.order(uid="the-last", finalized=False)
            await flow.ring()
        assert world.live is not None
        generation = world.live["metadata"]["generation"]
        await until(lambda: world.condition("Ready").get("status") == "True")
        await until(lambda: world.condition("Ready")["observedGeneration"] == generation)
        await until(lambda: not world.running)
        assert world.live["metadata"]["finalizers"]

        world.delete()
        await flow.ring()
        await until(lambda: world.live is None)
        await flow.ended()
        assert world.overlaps == [], "no two steps of one order at once"
        releases = [number for number, call in enumerate(world.calls) if call == "release"]
        assert all("remove_project" in world.calls[max(0, number - 8) : number] for number in releases)
