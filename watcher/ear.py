"""What one stream heard last, and so what is news: keeps digests of each object, answers the orders to ring.

A list is compared with what was known, so what vanished while nobody listened is a deletion like any other. The first
list of orders is a cold start: all of them are handed over at once, to be rung gently, the unconverged first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from activities.cluster import CONTROL_PLANE, Object
from watcher import changes, metrics
from watcher.mapping import Index, Keeps, Place, Source, keystone_of, plane_of, wants_us
from workflows.scaffold.order import OrderRef

_log = logging.getLogger(__name__)


class Listener(Protocol):
    """Who a stream tells what it hears."""

    def listed(self, items: Sequence[Object]) -> None:
        """All objects there are."""

    def heard(self, type_: str, found: Object) -> None:
        """One event: ADDED, MODIFIED or DELETED."""


class Ring(Protocol):
    """Rings orders; minor news are nothing to one that is Ready, and later news `of` the same take their place."""

    def __call__(self, orders: Iterable[OrderRef], *, minor: bool = False, of: Hashable | None = None) -> None: ...


class _Sight(NamedTuple):
    """What is kept of an object: digests of what is news of it and of what people write, which resource in Keystone it
    stood for, and the orders it named."""

    facts: bytes
    written: bytes
    ids: tuple[str, ...]
    orders: frozenset[OrderRef]


class Ear:
    """The listener for one kind on one cluster.

    ring  is called with the orders that an event is news for
    cold  is called once, after the first list of orders, with the unconverged and the converged
    """

    def __init__(
        self,
        source: Source,
        cluster: str,
        index: Index,
        ring: Ring,
        cold: Callable[[Sequence[OrderRef], Sequence[OrderRef]], None],
    ) -> None:
        self._source = source
        self._cluster = cluster
        self._index = index
        self._ring = ring
        self._cold = cold
        self._known: dict[tuple[str, str], _Sight] = {}
        self._first = True

    @property
    def remembered(self) -> int:
        """How many objects something is kept of."""
        return len(self._known)

    def orphans(self, listed: Callable[[OrderRef], bool]) -> int:
        """How many objects name an order, and none that is there. Where nobody has `listed`, it might be."""
        return sum(
            bool(sight.orders) and all(listed(ref) and ref not in self._index for ref in sight.orders)
            for sight in self._known.values()
        )

    def listed(self, items: Sequence[Object]) -> None:
        first, self._first = self._first, False
        news: set[OrderRef] = set()
        present = {key for item in items if (key := _key(item))}
        for key in [key for key in self._known if key not in present]:
            news |= self._gone(key)
        for item in items:
            news |= self._seen(item)
        if not first:
            self._ring(news)
        elif self._source.is_order:
            unfinished = {ref for item in items if not changes.converged(item) for ref in self._named(item)}
            self._cold(_sorted(unfinished & news), _sorted(news - unfinished))

    def heard(self, type_: str, found: Object) -> None:
        key = _key(found)
        if key is None:
            self._unreadable(found)
        elif type_ == "DELETED":
            self._ring(self._gone(key, found), minor=self._source.minor(_finally_gone(found)))
        else:
            before = self._known.get(key)
            orders = self._seen(found)
            untouched = self._created(type_, found) if before is None else self._untouched(before, key, found)
            calm = untouched and not self._stray(found)
            of = (self._source.kind.kind, self._cluster, *key) if calm else None
            self._ring(orders, minor=calm and self._source.minor(found), of=of)

    def _created(self, type_: str, found: Object) -> bool:
        """A creation is a write, but one that takes nothing from an order that is Ready."""
        return type_ == "ADDED" and changes.unspoken(found)

    def _untouched(self, before: _Sight, key: tuple[str, str], found: Object) -> bool:
        """Whether nobody but the controller that serves it has written to it since, and it stands for what it stood
        for: what was made anew in Keystone is well by itself, but not with what refers to it. That it is being deleted,
        which moves its generation, is no such write: what it means differs, and `minor` knows."""
        now = self._known.get(key)
        if now is None or now.orders != before.orders:
            return False
        if any(was and was != is_ for was, is_ in zip(before.ids, now.ids, strict=True)):
            return False
        return now.written == before.written or not changes.standing(found)

    def _seen(self, found: Object) -> set[OrderRef]:
        """The orders that this sight is news for: those it named before, too, if it moved between orders."""
        key = _key(found)
        if key is None:
            return self._unreadable(found)
        before = self._known.get(key)
        named = self._named(found)
        if not named and not self._source.kept(key[1]):
            self._known.pop(key, None)
            return self._count("news" if before else "foreign", before.orders if before else ())
        facts, written = self._source.facts(found), changes.written(found)
        now = _Sight(changes.digest(facts), changes.digest(written), changes.ids(found), named)
        self._known[key] = now
        if self._source.is_order:
            self._write_down(found, named)
        if self._source.kind is CONTROL_PLANE:
            self._index.place(key, self._place(found))
        if before is not None and before.facts == now.facts:
            return self._count("unchanged")
        if before is None and self._source.born_silent and changes.unspoken(found) and not self._stray(found):
            orders = self._looked_up(found)
            return self._count("news" if orders else "unspoken", orders)
        orders = named | (before.orders if before else frozenset()) | self._looked_up(found)
        return self._count("news" if orders else "foreign", orders)

    def _stray(self, found: Object) -> bool:
        """Whether it is there to stay, names an order, and is none of its declared children: a pass is to take it."""
        if not self._source.is_child or not changes.standing(found):
            return False
        name = str(found["metadata"]["name"])
        return not all(self._index.declares(ref, name) for ref in self._named(found))

    def _gone(self, key: tuple[str, str], found: Object | None = None) -> set[OrderRef]:
        found = found or {"metadata": {"namespace": key[0], "name": key[1]}}
        before = self._known.pop(key, None)
        if self._source.kind is CONTROL_PLANE:
            self._index.place(key, None)
        orders = self._named(found) | (before.orders if before else frozenset()) | self._looked_up(found)
        if self._source.is_order:
            for ref in orders:
                self._index.drop(ref)
        return self._count("deleted" if orders else "foreign", orders)

    def _write_down(self, found: Object, orders: Iterable[OrderRef]) -> None:
        for ref in orders:
            if wants_us(self._source.kind, found):
                ready, keeps = changes.converged(found), self._keeps(ref, found)
                self._index.put(ref, plane_of(found), ready=ready, untold=changes.untold(found), keeps=keeps)
                self._index.census.put(ref, found)
            else:
                self._index.drop(ref)

    def _keeps(self, ref: OrderRef, found: Object) -> Keeps | None:
        try:
            return self._source.keeps(ref, found)
        except (AttributeError, KeyError, TypeError, ValueError):
            return None

    def _place(self, found: Object) -> Place | None:
        try:
            return keystone_of(found)
        except (AttributeError, KeyError, TypeError, ValueError):
            return None

    def _named(self, found: Object) -> frozenset[OrderRef]:
        def ask() -> Iterable[OrderRef]:
            here = self._source.where(self._cluster, found["metadata"].get("namespace") or "", self._index)
            return self._source.names(self._cluster, found) if here else ()

        return self._whatever(found, ask)

    def _looked_up(self, found: Object) -> frozenset[OrderRef]:
        return self._whatever(found, lambda: self._source.looked_up(self._cluster, found, self._index))

    def _whatever(self, found: Object, ask: Callable[[], Iterable[OrderRef]]) -> frozenset[OrderRef]:
        """Objects of other people's may be anything: what cannot be read concerns nobody, and says so."""
        try:
            return frozenset(ask())
        except (AttributeError, KeyError, TypeError, ValueError):
            self._unreadable(found)
            return frozenset()

    def _unreadable(self, found: Any) -> set[OrderRef]:
        _log.warning("an object of kind %s cannot be read: %s", self._source.kind.kind, _key(found))
        return self._count("unreadable")

    def _count(self, outcome: str, orders: Iterable[OrderRef] = ()) -> set[OrderRef]:
        metrics.EVENTS.add(1, {"kind": self._source.kind.kind, "outcome": outcome})
        return set(orders)


def _finally_gone(found: Object) -> Object:
    """The last sight of an object as one that is being deleted, which a forced deletion does not show."""
    return {**found, "metadata": {**found["metadata"], "deletionTimestamp": True}}


def _key(found: Any) -> tuple[str, str] | None:
    try:
        meta = found["metadata"]
        return str(meta.get("namespace") or ""), str(meta["name"])
    except (AttributeError, KeyError, TypeError):
        return None


def _sorted(orders: Iterable[OrderRef]) -> list[OrderRef]:
    return sorted(orders, key=lambda ref: ref.workflow_id)
