"""Rings: at once, folded, limited, and kept for as long as Temporal does not take them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator

import pytest

from tests.watcher.objects import Recorder, ref, until
from watcher.dispatch import Bells, Rates
from watcher.doorbell import NotTaken
from watcher.mapping import Index

DOWN = NotTaken("Temporal answered UNAVAILABLE", everybody=True)


class Tower:
    def __init__(self, rates: Rates) -> None:
        self.doorbell = Recorder()
        self.index = Index()
        self.bells = Bells(self.doorbell, self.index, rates)
        self.task = asyncio.ensure_future(self.bells.run())


@pytest.fixture
async def tower(request: pytest.FixtureRequest) -> AsyncIterator[Tower]:
    tower = Tower(getattr(request, "param", Rates(first_pause=0.05, longest_pause=0.2)))
    yield tower
    tower.task.cancel()
    await asyncio.wait([tower.task])
    assert tower.task.cancelled()


@pytest.mark.row("T13")
async def test_the_first_news_rings_at_once_and_a_storm_folds(tower: Tower) -> None:
    began = time.monotonic()
    tower.bells.ring([ref()])
    await until(lambda: tower.doorbell.rings)
    assert tower.doorbell.rings[0][0] - began < 0.5
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        tower.bells.ring([ref()])
        await asyncio.sleep(0.001)
    await until(lambda: not tower.bells.pending)
    times = [at for at, _, _ in tower.doorbell.rings]
    assert 3 <= len(times) <= 7, "five a second, the first and the last"
    assert all(later - sooner >= 0.19 for sooner, later in itertools.pairwise(times))
    assert times[-1] >= end - 0.01, "the last news is never folded into a ring that had already gone"


@pytest.mark.parametrize("tower", [Rates(fold=0.05, fold_child=0.4)], indirect=True)
async def test_news_of_a_child_folds_for_longer_and_other_news_does_not_wait_for_it(tower: Tower) -> None:
    began = time.monotonic()
    tower.bells.ring([ref()], of_child=True)
    await until(lambda: len(tower.doorbell.rings) == 1)
    assert tower.doorbell.rings[0][0] - began < 0.1, "nobody was rung before: at once"
    tower.bells.ring([ref()], of_child=True)
    await asyncio.sleep(0.1)
    tower.bells.ring([ref()], of_child=True)
    await until(lambda: len(tower.doorbell.rings) == 2)
    assert tower.doorbell.rings[1][0] - began >= 0.39
    tower.bells.ring([ref()], of_child=True)
    tower.bells.ring([ref()])
    await until(lambda: len(tower.doorbell.rings) == 3)
    assert tower.doorbell.rings[2][0] - tower.doorbell.rings[1][0] < 0.2
    await asyncio.sleep(0.5)
    assert len(tower.doorbell.rings) == 3, "one ring stands for both"
    assert not tower.bells.pending


@pytest.mark.parametrize("tower", [Rates(fold=0.05, fold_child=0.3)], indirect=True)
async def test_minor_news_are_forgotten_if_the_order_is_ready_by_then(tower: Tower) -> None:
    tower.bells.ring([ref(), ref("slow"), ref("both")])
    await until(lambda: len(tower.doorbell.rings) == 3)
    tower.bells.ring([ref(), ref("slow"), ref("both")], of_child=True, minor=True)
    tower.bells.ring([ref("both")], of_child=True)
    for name, is_ready in (("reporting", True), ("slow", False), ("both", True)):
        tower.index.put(ref(name), ("openstack", "cp"), ready=is_ready)
    await until(lambda: not tower.bells.pending)
    assert [rung for _, rung, _ in tower.doorbell.rings[3:]] == [ref("slow"), ref("both")]


@pytest.mark.parametrize("tower", [Rates(fold=0.05, fold_child=0.3)], indirect=True)
async def test_what_is_well_by_then_is_nothing_to_an_order_that_is_ready(tower: Tower) -> None:
    tower.bells.ring([ref(), ref("slow")])
    await until(lambda: len(tower.doorbell.rings) == 2)
    for name in ("reporting", "slow"):
        tower.index.put(ref(name), ("openstack", "cp"), ready=True)
        tower.bells.ring([ref(name)], of_child=True, of=name)
    tower.bells.ring([ref()], of_child=True, minor=True, of="reporting")
    await until(lambda: not tower.bells.pending)
    assert [rung for _, rung, _ in tower.doorbell.rings[2:]] == [ref("slow")]


@pytest.mark.parametrize("tower", [Rates(fold=0.05, fold_child=0.05, hold=2.0)], indirect=True)
async def test_news_of_children_wait_until_something_was_said_of_their_order(tower: Tower) -> None:
    """The pass that will say it follows them; had they to ring, it would have to be followed by another."""
    plane, began = ("openstack", "cp"), time.monotonic()
    names = ("reporting", "waits", "silent", "edited")
    for name in names:
        tower.index.put(ref(name), plane, untold=True)
    tower.bells.ring(map(ref, names), of_child=True, minor=True)
    tower.bells.ring([ref("edited")])
    await until(lambda: tower.doorbell.rung == [ref("edited")])
    assert time.monotonic() - began < 1, "what people write does not wait"
    await asyncio.sleep(0.5)
    assert len(tower.doorbell.rung) == 1
    tower.index.put(ref(), plane, ready=True)
    tower.index.put(ref("waits"), plane)
    await until(lambda: len(tower.doorbell.rung) == 2)
    assert tower.doorbell.rung[1] == ref("waits")
    await until(lambda: not tower.bells.pending)
    assert tower.doorbell.rung[2:] == [ref("silent")], "nobody waits for ever"
    assert time.monotonic() - began > 2


@pytest.mark.parametrize("tower", [Rates(first_pause=0.1, longest_pause=0.1)], indirect=True)
async def test_news_while_a_minor_ring_is_refused_is_not_forgotten_with_it(tower: Tower) -> None:
    tower.doorbell.refusing, tower.doorbell.slow = DOWN, 0.2
    tower.bells.ring([ref()], of_child=True, minor=True)
    await until(lambda: tower.doorbell.tries == 1)
    tower.bells.ring([ref()])
    tower.index.put(ref(), ("openstack", "cp"), ready=True)
    await asyncio.sleep(0.3)
    tower.doorbell.refusing = None
    await until(lambda: not tower.bells.pending)
    assert tower.doorbell.rung == [ref()]


@pytest.mark.row("T13")
async def test_a_ring_that_temporal_refused_is_kept_and_tried_again(tower: Tower) -> None:
    tower.doorbell.refusing = DOWN
    tower.bells.ring([ref(), ref("other")])
    await asyncio.sleep(0.6)
    assert tower.doorbell.rings == []
    assert tower.bells.pending == 2
    assert tower.bells.oldest > 0.5
    assert 4 <= tower.doorbell.tries <= 24, "again and again, with pauses"
    tower.doorbell.refusing = None
    await until(lambda: not tower.bells.pending)
    assert sorted(tower.doorbell.rung, key=str) == [ref("other"), ref()]
    assert tower.bells.oldest == 0


@pytest.mark.parametrize("tower", [Rates(first_pause=60, longest_pause=60)], indirect=True)
async def test_when_temporal_is_back_nobody_waits_out_a_pause(tower: Tower) -> None:
    tower.doorbell.refusing = DOWN
    tower.bells.ring([ref(f"o{n}") for n in range(20)])
    await until(lambda: tower.doorbell.tries == 20)
    tower.doorbell.refusing = None
    tower.bells.ring([ref("fresh")])
    await until(lambda: len(tower.doorbell.rings) == 21)


@pytest.mark.parametrize("tower", [Rates(first_pause=0.2, longest_pause=0.2)], indirect=True)
async def test_one_order_that_temporal_refuses_does_not_hurry_or_hold_the_others(tower: Tower) -> None:
    tower.doorbell.poison = ref("poison")
    for n in range(30):
        tower.bells.ring([ref("poison"), ref(f"o{n}")])
        await asyncio.sleep(0.01)
    await until(lambda: len(tower.doorbell.rings) == 30)
    assert tower.doorbell.tries - 30 <= 5
    assert tower.bells.pending == 1


@pytest.mark.parametrize("tower", [Rates(per_second=40, concurrency=4)], indirect=True)
@pytest.mark.row("T13")
async def test_all_rings_together_keep_to_the_rate_and_the_concurrency(tower: Tower) -> None:
    tower.doorbell.slow = 0.02
    began = time.monotonic()
    tower.bells.ring([ref(f"o{n}") for n in range(100)])
    await until(lambda: len(tower.doorbell.rings) == 100)
    took = time.monotonic() - began
    assert took >= 1.4, "40 at once, 60 at 40 a second"
    assert tower.doorbell.most_at_once <= 4
    assert len(set(tower.doorbell.rung)) == 100


async def test_news_while_a_ring_is_on_its_way_makes_another(tower: Tower) -> None:
    tower.doorbell.slow = 0.3
    tower.bells.ring([ref()])
    await until(lambda: tower.doorbell.tries == 1)
    tower.bells.ring([ref()])
    await until(lambda: len(tower.doorbell.rings) == 2)
    assert tower.doorbell.most_at_once == 1, "never two at once for one order"


async def test_only_an_order_that_exists_is_started(tower: Tower) -> None:
    tower.index.put(ref(), ("openstack", "cp"))
    tower.bells.ring([ref(), ref("gone")])
    await until(lambda: len(tower.doorbell.rings) == 2)
    assert tower.doorbell.started(ref())
    assert not tower.doorbell.started(ref("gone"))


@pytest.mark.parametrize("tower", [Rates(cold=20)], indirect=True)
async def test_a_cold_start_rings_the_unconverged_first_and_the_rest_gently(tower: Tower) -> None:
    began = time.monotonic()
    tower.bells.cold([ref(f"bad{n}") for n in range(15)], [ref(f"good{n}") for n in range(10)])
    await asyncio.sleep(0.02)
    tower.bells.ring([ref("news")])
    await until(lambda: len(tower.doorbell.rings) == 26)
    assert time.monotonic() - began >= 0.45, "ten at twenty a second"
    names = [found.name for found in tower.doorbell.rung]
    assert names.index("news") < names.index("good0")
    assert max(names.index(f"bad{n}") for n in range(15)) < names.index("good0")
    assert tower.bells.backlog == 0


@pytest.mark.parametrize("tower", [Rates(cold=5)], indirect=True)
async def test_news_of_an_order_of_the_backlog_rings_it_once(tower: Tower) -> None:
    tower.bells.cold([], [ref(f"o{n}") for n in range(3)])
    tower.bells.ring([ref("o2")])
    await until(lambda: not tower.bells.backlog and not tower.bells.pending)
    assert sorted(found.name for found in tower.doorbell.rung) == ["o0", "o1", "o2"]
