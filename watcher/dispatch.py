"""Rings: at once for an order's first news, then folded; kept until Temporal takes them.

News of a child folds for longer than other news: whoever was rung a moment ago and wrote to it follows it by itself.
While nothing was said of an order at its generation, the pass that will say it is on its way and follows every child:
their news wait until then. What is nothing to an order that is Ready is forgotten if it is Ready when its ring is due.

A ring carries nothing, so one that is waiting stands for any number of news. It is only forgotten after Temporal has
taken it, and news that comes while it is on its way makes another.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
import time
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from watcher import metrics
from watcher.doorbell import Doorbell, NotTaken
from watcher.mapping import Index
from workflows.scaffold.order import OrderRef

_log = logging.getLogger(__name__)

_HELD_SECONDS = 0.25
"""How often it is asked whether something was said of an order meanwhile."""


@dataclass(frozen=True)
class Rates:
    """How fast orders are rung.

    fold         seconds in which further news of an order waits after a ring: five a second at most
    fold_child   the same for news of its children: every signal costs a run four events and a decision
    hold         the longest that news of children wait until something was said of their order
    per_second   all rings together; a second's worth may go at once
    cold         rings a second of a cold start, for the orders that were converged
    """

    fold: float = 0.2
    fold_child: float = 5.0
    hold: float = 20.0
    per_second: float = 50.0
    concurrency: int = 10
    cold: float = 10.0
    first_pause: float = 0.5
    longest_pause: float = 30.0


@dataclass
class _Wanted:
    """A ring that is to come.

    of_child  for news of children alone
    minor     what was heard for good is nothing to an order that is Ready
    unwell    of what goes on being heard: what was something to one when it was last heard of
    """

    since: float
    due: float
    fold: float
    of_child: bool = True
    minor: bool = True
    unwell: set[Hashable] = field(default_factory=set)
    attempts: int = 0
    everybody: bool = False

    def hear(self, *, of_child: bool, minor: bool, of: Hashable | None) -> None:
        self.of_child = self.of_child and of_child
        if of is None:
            self.minor = self.minor and minor
        elif minor:
            self.unwell.discard(of)
        else:
            self.unwell.add(of)

    def merge(self, other: _Wanted) -> None:
        """Stands for the other's news as well."""
        self.fold = min(self.fold, other.fold)
        self.of_child = self.of_child and other.of_child
        self.minor = self.minor and other.minor
        self.unwell |= other.unwell


class Bells:
    """The rings that are due, one per order. `ring` and `cold` may be called at any time; `run` does the work."""

    def __init__(self, doorbell: Doorbell, index: Index, rates: Rates | None = None) -> None:
        self._doorbell = doorbell
        self._index = index
        self._rates = rates or Rates()
        self._wanted: dict[OrderRef, _Wanted] = {}
        self._ringing: dict[OrderRef, _Wanted] = {}
        self._rung_at: dict[OrderRef, float] = {}
        self._queue: list[tuple[float, int, OrderRef]] = []
        self._count = itertools.count()
        self._backlog: dict[OrderRef, bool] = {}
        self._wake = asyncio.Event()
        self._more = asyncio.Event()
        self._slots = asyncio.Semaphore(self._rates.concurrency)
        self._refused = ""

    @property
    def pending(self) -> int:
        return len(self._wanted) + len(self._ringing)

    @property
    def backlog(self) -> int:
        return len(self._backlog)

    @property
    def oldest(self) -> float:
        """Age in seconds of the oldest ring that Temporal has not taken."""
        waiting = itertools.chain(self._wanted.values(), self._ringing.values())
        since = min((wanted.since for wanted in waiting), default=None)
        return 0.0 if since is None else time.monotonic() - since

    def ring(
        self, orders: Iterable[OrderRef], *, of_child: bool = False, minor: bool = False, of: Hashable | None = None
    ) -> None:
        """Rings each order when it is due. Minor news are nothing to an order that is Ready.

        of  what goes on being heard: later news of the same take the place of these
        """
        now = time.monotonic()
        fold = self._rates.fold_child if of_child else self._rates.fold
        for ref in orders:
            self._backlog.pop(ref, None)
            due = max(now, self._rung_at.get(ref, 0.0) + fold)
            wanted = self._wanted.get(ref)
            if wanted is None:
                wanted = _Wanted(now, due, fold)
                wanted.hear(of_child=of_child, minor=minor, of=of)
                self._want(ref, wanted)
                continue
            metrics.RINGS.add(1, {"outcome": "folded"})
            wanted.hear(of_child=of_child, minor=minor, of=of)
            if fold < wanted.fold:
                wanted.fold = fold
                if not wanted.attempts and due < wanted.due:
                    wanted.due = due
                    self._want(ref, wanted)

    def cold(self, unconverged: Sequence[OrderRef], converged: Sequence[OrderRef]) -> None:
        """Orders of a first list: rung when there is room, the unconverged as fast as may be, the others gently."""
        urgent = dict.fromkeys(unconverged, True) | {r: True for r, hurry in self._backlog.items() if hurry}
        self._backlog = urgent | {r: False for r in (*self._backlog, *converged) if r not in urgent}
        self._more.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed())
            bucket = _Bucket(self._rates.per_second)
            while True:
                ref = await self._next()
                await bucket.take()
                await self._slots.acquire()
                self._ringing[ref] = self._wanted.pop(ref)
                group.create_task(self._ring(ref))

    async def _next(self) -> OrderRef:
        """Waits until a ring is due. It stays wanted, so that news meanwhile folds into it."""
        while True:
            self._wake.clear()
            while self._queue:
                due, _, ref = self._queue[0]
                wanted = self._wanted.get(ref)
                if wanted is None or wanted.due != due or ref in self._ringing:
                    heapq.heappop(self._queue)  # moved since; it is queued anew where it moved to
                    continue
                if due > time.monotonic():
                    break
                heapq.heappop(self._queue)
                if self._waits(ref, wanted):
                    wanted.due = time.monotonic() + _HELD_SECONDS
                    heapq.heappush(self._queue, (wanted.due, next(self._count), ref))
                    continue
                if wanted.minor and not wanted.unwell and self._index.is_ready(ref):
                    del self._wanted[ref]
                    metrics.RINGS.add(1, {"outcome": "forgotten"})
                    continue
                return ref
            pause = max(0.0, self._queue[0][0] - time.monotonic()) if self._queue else None
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _waits(self, ref: OrderRef, wanted: _Wanted) -> bool:
        held = time.monotonic() - wanted.since < self._rates.hold
        return wanted.of_child and held and self._index.is_untold(ref)

    async def _ring(self, ref: OrderRef) -> None:
        wanted = self._ringing[ref]
        rung_at = time.monotonic()
        try:
            outcome = await self._doorbell.ring(ref, self._index.plane(ref))
        except NotTaken as error:
            self._keep(ref, wanted, error)
        else:
            metrics.RING_LATENCY.record(time.monotonic() - wanted.since)
            self._taken(outcome)
        finally:
            self._slots.release()
            del self._ringing[ref]
            self._rung_at[ref] = rung_at
            self._forget_later(ref, rung_at)
            if again := self._wanted.get(ref):
                again.due = max(again.due, rung_at + again.fold)
                self._want(ref, again)

    def _want(self, ref: OrderRef, wanted: _Wanted) -> None:
        self._wanted[ref] = wanted
        if ref not in self._ringing:
            heapq.heappush(self._queue, (wanted.due, next(self._count), ref))
            self._wake.set()

    def _keep(self, ref: OrderRef, wanted: _Wanted, error: NotTaken) -> None:
        limit = min(self._rates.longest_pause, self._rates.first_pause * 2.0 ** min(wanted.attempts, 16))
        due = time.monotonic() + limit * random.uniform(0.5, 1)
        if meanwhile := self._wanted.get(ref):
            wanted.merge(meanwhile)
        wanted.due, wanted.attempts, wanted.everybody = due, wanted.attempts + 1, error.everybody
        self._wanted[ref] = wanted
        metrics.RINGS.add(1, {"outcome": "refused"})
        level = logging.DEBUG if str(error) == self._refused else logging.WARNING
        more = {"order": ref.workflow_id}
        _log.log(level, "the ring for %s was not taken and is kept: %s", ref.workflow_id, error, extra=more)
        self._refused = str(error)

    def _taken(self, outcome: str) -> None:
        metrics.RINGS.add(1, {"outcome": outcome})
        if not self._refused:
            return
        self._refused = ""
        _log.info("Temporal takes rings again; %d were kept", len(self._wanted))
        for ref, wanted in self._wanted.items():
            if wanted.everybody:
                wanted.everybody, wanted.due = False, min(wanted.due, time.monotonic())
                self._want(ref, wanted)

    def _forget_later(self, ref: OrderRef, rung_at: float) -> None:
        """Keeps the time of a ring for as long as news folds after it."""

        def forget() -> None:
            if self._rung_at.get(ref) == rung_at:
                del self._rung_at[ref]

        longest = max(self._rates.fold, self._rates.fold_child)
        asyncio.get_running_loop().call_later(max(0.0, rung_at + longest - time.monotonic()) + 0.05, forget)

    async def _feed(self) -> None:
        """Moves the backlog to the rings that are due, as long as few of those wait."""
        while True:
            if not self._backlog:
                self._more.clear()
                await self._more.wait()
            if sum(not wanted.attempts for wanted in self._wanted.values()) >= self._rates.concurrency:
                await asyncio.sleep(0.05)
                continue
            ref = next(iter(self._backlog), None)
            if ref is None:
                continue
            if not self._backlog[ref]:
                await asyncio.sleep(1 / self._rates.cold)
            if self._backlog.pop(ref, None) is not None:
                self.ring([ref])


class _Bucket:
    """A token bucket that holds a second's worth."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._held = per_second
        self._at = time.monotonic()

    async def take(self) -> None:
        now = time.monotonic()
        self._held = min(self._per_second, self._held + (now - self._at) * self._per_second) - 1
        self._at = now
        if self._held < 0:
            await asyncio.sleep(-self._held / self._per_second)
