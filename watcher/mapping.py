"""Whose news an event is: from an object of any watched kind to the orders it concerns.

A pure function per kind, in one table. Another kind of order is more rows of it, and nothing else here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from activities.cluster import (
    CONTROL_PLANE,
    KEYSTONE_APPLICATION_CREDENTIAL,
    KEYSTONE_ROLE_ASSIGNMENT,
    KORC_PROJECT,
    ORDER_KINDS,
    Kind,
    Object,
)
from watcher import changes
from workflows.scaffold.order import OrderRef

Plane = tuple[str, str]
"""Namespace and name of a ControlPlane, which is always on the management cluster."""


class Index:
    """The orders that exist, the plane each names, which are Ready. Whoever hears of one writes it down here first."""

    def __init__(self) -> None:
        self._ready: set[OrderRef] = set()
        self._plane_of: dict[OrderRef, Plane] = {}
        self._orders_of: dict[Plane, set[OrderRef]] = {}

    def __contains__(self, ref: OrderRef) -> bool:
        return ref in self._plane_of

    def plane(self, ref: OrderRef) -> Plane | None:
        """The plane that a known order names."""
        return self._plane_of.get(ref)

    def is_ready(self, ref: OrderRef) -> bool:
        """Whether it was Ready when it was last heard of. Of one that is not, its run looks again by itself."""
        return ref in self._ready

    def put(self, ref: OrderRef, plane: Plane, *, ready: bool = False) -> None:
        self.drop(ref)
        if ready:
            self._ready.add(ref)
        self._plane_of[ref] = plane
        self._orders_of.setdefault(plane, set()).add(ref)

    def drop(self, ref: OrderRef) -> None:
        self._ready.discard(ref)
        plane = self._plane_of.pop(ref, None)
        if plane is not None:
            self._orders_of[plane].discard(ref)
            if not self._orders_of[plane]:
                del self._orders_of[plane]

    def drop_cluster(self, cluster: str) -> None:
        for ref in [ref for ref in self._plane_of if ref.cluster == cluster]:
            self.drop(ref)

    def of_plane(self, plane: Plane) -> frozenset[OrderRef]:
        return frozenset(self._orders_of.get(plane, ()))


Mapping = Callable[[str, Object, Index], Iterable[OrderRef]]
"""From the cluster's name and the object to the orders it concerns."""


@dataclass(frozen=True)
class Source:
    """One watched kind: what a change of it is, and whose news that is.

    on_targets   whether it is watched on target clusters too
    born_silent  whether a first sight that `changes.unspoken` is no news
    by_index     whether its orders are those of the moment, looked up, not those that it named before
    is_child     whether it is made by the orders it concerns
    minor        whether this sight of it is nothing to an order that is Ready
    """

    kind: Kind
    facts: Callable[[Object], object]
    orders: Mapping
    on_targets: bool = False
    born_silent: bool = False
    by_index: bool = False
    is_child: bool = False
    minor: Callable[[Object], bool] = lambda _: False

    @property
    def is_order(self) -> bool:
        return self.kind.kind in ORDER_KINDS


def itself(kind: str) -> Mapping:
    """An order is its own news."""

    def orders(cluster: str, found: Object, _: Index) -> Iterable[OrderRef]:
        yield OrderRef(kind=kind, cluster=cluster, namespace=_namespace(found), name=found["metadata"]["name"])

    return orders


def by_labels(kind: str) -> Mapping:
    """A child names its order in three labels; the cluster's may be empty but must be there (contracts 3.4)."""
    prefix = f"c5c3.io/{kind.lower()}-"

    def orders(_: str, found: Object, __: Index) -> Iterable[OrderRef]:
        labels = found["metadata"].get("labels") or {}
        name, namespace = labels.get(prefix + "name"), labels.get(prefix + "namespace")
        cluster = labels.get(prefix + "cluster")
        if name and namespace and cluster is not None:
            yield OrderRef(kind=kind, cluster=cluster, namespace=namespace, name=name)

    return orders


def by_project_ref(cluster: str, found: Object, _: Index) -> Iterable[OrderRef]:
    """An order that names a project concerns the one in its own namespace, on its own cluster."""
    if name := changes.project_named(found):
        yield OrderRef(kind="KeystoneProject", cluster=cluster, namespace=_namespace(found), name=name)


def by_plane(_: str, found: Object, index: Index) -> Iterable[OrderRef]:
    """A plane concerns every order that names it, wherever the order lives."""
    return index.of_plane((_namespace(found), found["metadata"]["name"]))


def plane_of(found: Object) -> Plane:
    """The plane an order names; without a namespace, one in the order's own."""
    spec = found.get("spec") or {}
    ref = spec.get("controlPlaneRef") or {}
    return ref.get("namespace") or _namespace(found), ref.get("name") or ""


def wants_us(kind: Kind, found: Object) -> bool:
    """Whether a run may be started for an order: not for one on its way out that carries no finalizer of ours."""
    meta = found["metadata"]
    return not meta.get("deletionTimestamp") or f"c5c3.io/{kind.kind.lower()}-teardown" in (
        meta.get("finalizers") or ()
    )


SOURCES: tuple[Source, ...] = (
    *(Source(kind, changes.order, itself(kind.kind), on_targets=True) for kind in ORDER_KINDS.values()),
    Source(CONTROL_PLANE, changes.plane, by_plane, by_index=True),
    Source(
        KORC_PROJECT, changes.child, by_labels("KeystoneProject"), born_silent=True, is_child=True, minor=changes.minor
    ),
    Source(KEYSTONE_ROLE_ASSIGNMENT, changes.reference, by_project_ref, on_targets=True),
    Source(KEYSTONE_APPLICATION_CREDENTIAL, changes.reference, by_project_ref, on_targets=True),
)


def _namespace(found: Object) -> str:
    return found["metadata"].get("namespace") or ""
