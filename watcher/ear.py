"""What one stream heard last, and so what is news: keeps a digest per object, answers the orders to ring.

A list is compared with what was known, so what vanished while nobody listened is a deletion like any other. The first
list of orders is a cold start: all of them are handed over at once, to be rung gently, the unconverged first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from activities.cluster import Object
from watcher import changes, metrics
from watcher.mapping import Index, Source, plane_of, wants_us
from workflows.scaffold.order import OrderRef

_log = logging.getLogger(__name__)


class Listener(Protocol):
    """Who a stream tells what it hears."""

    def listed(self, items: Sequence[Object]) -> None:
        """All objects there are."""

    def heard(self, type_: str, found: Object) -> None:
        """One event: ADDED, MODIFIED or DELETED."""


class Ring(Protocol):
    """Rings orders; minor news are nothing to one that is Ready."""

    def __call__(self, orders: Iterable[OrderRef], *, minor: bool = False) -> None: ...


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
        self._known: dict[tuple[str, str], tuple[bytes, frozenset[OrderRef]]] = {}
        self._first = True

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
            unfinished = {ref for item in items if not changes.converged(item) for ref in self._orders(item)}
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
            stays = before is not None and self._known.get(key, before)[1] == before[1]
            self._ring(orders, minor=stays and self._source.minor(found))

    def _seen(self, found: Object) -> set[OrderRef]:
        """The orders that this sight is news for: those it concerned before, too, if it moved between orders."""
        key = _key(found)
        if key is None:
            return self._unreadable(found)
        orders = self._orders(found)
        now = changes.digest(self._source.facts(found))
        then, before = self._known.get(key, (None, frozenset[OrderRef]()))
        if self._source.is_order:
            self._write_down(found, orders)
        if self._source.by_index:
            self._known[key] = (now, frozenset())
        elif orders or before:
            self._known[key] = (now, orders)
        if now == then:
            return self._count("unchanged")
        if then is None and self._source.born_silent and changes.unspoken(found):
            return self._count("unspoken")
        return self._count("news" if orders or before else "foreign", orders | before)

    def _gone(self, key: tuple[str, str], found: Object | None = None) -> set[OrderRef]:
        _, orders = self._known.pop(key, (None, frozenset[OrderRef]()))
        orders |= self._orders(found or {"metadata": {"namespace": key[0], "name": key[1]}})
        if self._source.is_order:
            for ref in orders:
                self._index.drop(ref)
        return self._count("deleted" if orders else "foreign", orders)

    def _write_down(self, found: Object, orders: Iterable[OrderRef]) -> None:
        for ref in orders:
            if wants_us(self._source.kind, found):
                self._index.put(ref, plane_of(found), ready=changes.converged(found))
            else:
                self._index.drop(ref)

    def _orders(self, found: Object) -> frozenset[OrderRef]:
        """Objects of other people's may be anything: what cannot be read concerns nobody, and says so."""
        try:
            return frozenset(self._source.orders(self._cluster, found, self._index))
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
