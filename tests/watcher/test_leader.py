"""One of two replicas leads; the other takes over when it dies, when it gives up, and when it is cut off."""

from __future__ import annotations

import asyncio
import copy
import itertools
from typing import Any, cast

from activities.cluster import Cluster
from activities.errors import ClusterError, Conflict
from tests.watcher.objects import until
from watcher.leader import Leader


class Leases:
    """The part of an API server that a Lease needs, with its conflicts. `down` makes it refuse."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.down: set[str] = set()
        self._versions = itertools.count(1)

    def seen_by(self, who: str) -> Cluster:
        return cast(Cluster, _Seen(self, who))

    def write(self, body: dict[str, Any]) -> dict[str, Any]:
        body = copy.deepcopy(body)
        body["metadata"]["resourceVersion"] = str(next(self._versions))
        self.lease = body
        return copy.deepcopy(body)


class _Seen:
    def __init__(self, leases: Leases, who: str) -> None:
        self._leases = leases
        self._who = who

    async def get(self, *_: object) -> dict[str, Any] | None:
        await self._ask()
        return copy.deepcopy(self._leases.lease)

    async def create(self, _: object, body: dict[str, Any]) -> dict[str, Any]:
        await self._ask()
        if self._leases.lease:
            raise Conflict("creating", 409, "AlreadyExists", "")
        return self._leases.write(body)

    async def update(self, _: object, body: dict[str, Any]) -> dict[str, Any]:
        await self._ask()
        lease = self._leases.lease
        if not lease or lease["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Conflict("updating", 409, "Conflict", "")
        return self._leases.write(body)

    async def _ask(self) -> None:
        await asyncio.sleep(0.001)
        if self._who in self._leases.down:
            raise ClusterError("reading", 0, "ClientConnectorError", "")


class Replica:
    def __init__(self, leases: Leases, name: str) -> None:
        self.leader = Leader(leases.seen_by(name), "c5c3-system", name, duration=0.6, renew=0.1)
        self.leading = False
        self.terms = 0
        self.task = asyncio.ensure_future(self.leader.run(self._lead))

    async def _lead(self) -> None:
        self.leading = True
        self.terms += 1
        try:
            await asyncio.sleep(3600)
        finally:
            self.leading = False

    async def die(self) -> None:
        """As kill -9 would: nothing is released."""
        self.task.cancel()
        await asyncio.wait([self.task])


async def test_exactly_one_of_two_leads_and_keeps_leading() -> None:
    leases = Leases()
    one, two = Replica(leases, "one"), Replica(leases, "two")
    await until(lambda: one.leading or two.leading)
    for _ in range(100):
        assert one.leading != two.leading
        await asyncio.sleep(0.01)
    assert one.terms + two.terms == 1
    await one.die()
    await two.die()


async def test_the_other_takes_over_after_a_death_no_sooner_than_the_lease_says() -> None:
    leases = Leases()
    one = Replica(leases, "one")
    await until(lambda: one.leading)
    two = Replica(leases, "two")
    await asyncio.sleep(0.3)
    await one.die()
    await asyncio.sleep(0.3)
    assert not two.leading
    await until(lambda: two.leading, 2)
    assert leases.lease
    assert leases.lease["spec"]["leaseTransitions"] == 2
    await two.die()


async def test_the_other_takes_over_at_once_after_a_release() -> None:
    leases = Leases()
    one = Replica(leases, "one")
    await until(lambda: one.leading)
    two = Replica(leases, "two")
    await one.die()
    await one.leader.release()
    await until(lambda: two.leading, 0.3)
    await two.die()


async def test_one_that_cannot_renew_stops_leading_before_the_other_may_begin() -> None:
    leases = Leases()
    one = Replica(leases, "one")
    await until(lambda: one.leading)
    two = Replica(leases, "two")
    await asyncio.sleep(0.2)
    leases.down = {"one"}
    await until(lambda: not one.leading, 2)
    assert not two.leading
    await until(lambda: two.leading, 2)
    leases.down = set()
    await asyncio.sleep(0.5)
    assert two.leading
    assert not one.leading, "a standby again"
    assert not one.task.done()
    await one.die()
    await two.die()


async def test_a_short_outage_costs_nobody_the_lead() -> None:
    leases = Leases()
    one = Replica(leases, "one")
    await until(lambda: one.leading)
    leases.down = {"one"}
    await asyncio.sleep(0.2)
    leases.down = set()
    await asyncio.sleep(0.8)
    assert one.leading
    assert one.terms == 1
    await one.die()


async def test_work_that_fails_is_not_hidden() -> None:
    leases = Leases()
    leader = Leader(leases.seen_by("one"), "c5c3-system", "one", duration=0.6, renew=0.1)

    async def fail() -> None:
        raise KeyError("a defect")

    try:
        await asyncio.wait_for(leader.run(fail), 2)
    except KeyError:
        return
    raise AssertionError("the failure was swallowed")
