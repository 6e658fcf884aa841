"""Whose news an event is: from an object of any watched kind to the orders it concerns.

Pure functions in one table, a row per kind. Another kind of order is more rows, and more orders for some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from activities.cluster import (
    CONTROL_PLANE,
    DATABASE,
    EXTERNAL_SECRET,
    KEYSTONE_APPLICATION_CREDENTIAL,
    KEYSTONE_PROJECT,
    KEYSTONE_ROLE_ASSIGNMENT,
    KEYSTONE_SERVICE,
    KORC_DOMAIN,
    KORC_ENDPOINT,
    KORC_PROJECT,
    KORC_ROLE,
    KORC_ROLE_ASSIGNMENT,
    KORC_SERVICE,
    KORC_USER,
    MARIADB_DATABASE,
    ORDER_KINDS,
    PUSH_SECRET,
    SECRET,
    VAULT_DYNAMIC_SECRET,
    Kind,
    Object,
)
from watcher import changes
from watcher.census import Census
from workflows.api.keystoneservice import KeystoneServiceSpec
from workflows.keystoneservice import sweep
from workflows.keystoneservice.children import prefix
from workflows.keystoneservice.delivery import consumer_name
from workflows.scaffold.naming import order_named
from workflows.scaffold.order import OrderRef

Plane = tuple[str, str]
"""Namespace and name of a ControlPlane, which is always on the management cluster."""

Place = tuple[str, str]
"""A cluster's name and a namespace there."""


Keeps = Callable[[str], bool]
"""Whether a child of this name is one that its order declares."""


class Index:
    """The orders that exist, the plane each names, which are Ready, which children they declare. Whoever hears of one
    writes it down here first.
    """

    def __init__(self) -> None:
        self.census = Census()
        self._keystones: dict[Plane, Place] = {}
        self._ready: set[OrderRef] = set()
        self._untold: set[OrderRef] = set()
        self._keeps: dict[OrderRef, Keeps] = {}
        self._plane_of: dict[OrderRef, Plane] = {}
        self._orders_of: dict[Plane, set[OrderRef]] = {}

    def __contains__(self, ref: OrderRef) -> bool:
        return ref in self._plane_of

    def of_kind(self, kind: str) -> frozenset[OrderRef]:
        return frozenset(ref for ref in self._plane_of if ref.kind == kind)

    def plane(self, ref: OrderRef) -> Plane | None:
        """The plane that a known order names."""
        return self._plane_of.get(ref)

    def is_ready(self, ref: OrderRef) -> bool:
        """Whether it was Ready when it was last heard of. Of one that is not, its run looks again by itself."""
        return ref in self._ready

    def is_untold(self, ref: OrderRef) -> bool:
        """Whether nothing was said of it yet, as it is written now, when it was last heard of."""
        return ref in self._untold

    def declares(self, ref: OrderRef, name: str) -> bool:
        """Whether the order declares a child of this name, as far as it is known what it declares."""
        keeps = self._keeps.get(ref)
        return keeps is None or keeps(name)

    def put(
        self, ref: OrderRef, plane: Plane, *, ready: bool = False, untold: bool = False, keeps: Keeps | None = None
    ) -> None:
        self._strike(ref)
        if ready:
            self._ready.add(ref)
        if untold:
            self._untold.add(ref)
        if keeps is not None:
            self._keeps[ref] = keeps
        self._plane_of[ref] = plane
        self._orders_of.setdefault(plane, set()).add(ref)

    def drop(self, ref: OrderRef) -> None:
        self._strike(ref)
        self.census.drop(ref)

    def _strike(self, ref: OrderRef) -> None:
        self._ready.discard(ref)
        self._untold.discard(ref)
        self._keeps.pop(ref, None)
        plane = self._plane_of.pop(ref, None)
        if plane is not None:
            self._orders_of[plane].discard(ref)
            if not self._orders_of[plane]:
                del self._orders_of[plane]

    def drop_cluster(self, cluster: str) -> None:
        for ref in [ref for ref in self._plane_of if ref.cluster == cluster]:
            self.drop(ref)

    def place(self, plane: Plane, keystone: Place | None) -> None:
        """Writes down where a plane has its Keystone, or that there is no such plane any more."""
        self._keystones.pop(plane, None)
        if keystone is not None:
            self._keystones[plane] = keystone

    def has_keystone(self, cluster: str, namespace: str) -> bool:
        """Whether some plane has its Keystone, and so the database that its orders share, in this namespace."""
        return (cluster, namespace) in self._keystones.values()

    def of_plane(self, plane: Plane) -> frozenset[OrderRef]:
        return frozenset(self._orders_of.get(plane, ()))


Mapping = Callable[[str, Object], Iterable[OrderRef]]
"""From the cluster's name and the object to the orders that it names."""

Lookup = Callable[[str, Object, Index], Iterable[OrderRef]]
"""The same, to the orders there are at the moment that depend on it, though it names none."""


Where = Callable[[str, str, Index], bool]
"""Whether a cluster's namespace counts, by what is known of planes at the moment."""


def nobody(*_: object) -> Iterable[OrderRef]:
    """No order."""
    return ()


def anywhere(*_: object) -> bool:
    """Of every object."""
    return True


def never(_: object) -> bool:
    """Of no object."""
    return False


def nobody_knows(_: OrderRef, __: Object) -> Keeps | None:
    """Children whose names are always the same need no telling."""
    return None


@dataclass(frozen=True)
class Source:
    """One watched kind: what a change of it is, and whose news that is.

    names          the orders that it names. They are remembered, and hear of it when it names them no more
    where          whether objects of this cluster and namespace are anybody's news
    looked_up      the orders that depend on it without being named
    kept           whether an object of this name is remembered though it names nobody, so that it is missed later
    on_targets     whether it is watched on target clusters too
    metadata_only  whether nothing but its metadata is heard
    born_silent    whether a first sight that `changes.unspoken` is no news to the orders it names
    is_child       whether it is made for the orders it concerns
    minor          whether it is, as it is now, nothing to an order that is Ready, unless somebody has written to it
    keeps          of an order: which children it declares. Another one with its labels came back out of a backup, say
    """

    kind: Kind
    facts: Callable[[Object], object]
    names: Mapping = nobody
    where: Where = anywhere
    looked_up: Lookup = nobody
    kept: Callable[[str], bool] = never
    on_targets: bool = False
    metadata_only: bool = False
    born_silent: bool = False
    is_child: bool = False
    minor: Callable[[Object], bool] = never
    keeps: Callable[[OrderRef, Object], Keeps | None] = nobody_knows

    @property
    def is_order(self) -> bool:
        return self.kind.kind in ORDER_KINDS


def itself(kind: Kind) -> Mapping:
    """An order is its own news."""

    def orders(cluster: str, found: Object) -> Iterable[OrderRef]:
        yield OrderRef(kind=kind.kind, cluster=cluster, namespace=_namespace(found), name=found["metadata"]["name"])

    return orders


def either(*mappings: Mapping) -> Mapping:
    """All that any of these says."""

    def orders(cluster: str, found: Object) -> Iterable[OrderRef]:
        return (ref for mapping in mappings for ref in mapping(cluster, found))

    return orders


def by_labels(kind: Kind, *, at_home: bool = False) -> Mapping:
    """A child names its order in labels, none of which may be missing: name, namespace, and the cluster, which may be
    empty (contracts 3.4). An order of a kind that is served at home alone has two (contracts 3.1).
    """

    def orders(_: str, found: Object) -> Iterable[OrderRef]:
        if ref := order_named(kind.kind, found["metadata"].get("labels") or {}, at_home=at_home):
            yield ref

    return orders


def at_home(mapping: Mapping) -> Mapping:
    """What that says, of objects on the management cluster alone: on another one anybody may write labels."""

    def orders(cluster: str, found: Object) -> Iterable[OrderRef]:
        return () if cluster else mapping(cluster, found)

    return orders


def beside_keystone(cluster: str, namespace: str, index: Index) -> bool:
    """Databases of orders are where a plane has its Keystone; elsewhere anybody may write one, with any labels."""
    return index.has_keystone(cluster, namespace)


def keystone_of(found: Object) -> Place:
    """Where a plane has its Keystone."""
    keystone = ((found.get("spec") or {}).get("services") or {}).get("keystone") or {}
    cluster = (keystone.get("targetClusterRef") or {}).get("name") or ""
    return cluster, (keystone.get("namespace") or {}).get("name") or _namespace(found)


def by_owner(kind: Kind) -> Mapping:
    """A child beside its order names it as its controller, in whatever version."""

    def orders(cluster: str, found: Object) -> Iterable[OrderRef]:
        for owner in found["metadata"].get("ownerReferences") or ():
            group, slash, _ = owner["apiVersion"].partition("/")
            if slash and group == kind.group and owner["kind"] == kind.kind and owner.get("controller") is True:
                yield OrderRef(kind=kind.kind, cluster=cluster, namespace=_namespace(found), name=owner["name"])

    return orders


def by_project_ref(cluster: str, found: Object) -> Iterable[OrderRef]:
    """An order that names a project concerns the one in its own namespace, on its own cluster."""
    if name := changes.project_named(found):
        yield OrderRef(kind=KEYSTONE_PROJECT.kind, cluster=cluster, namespace=_namespace(found), name=name)


def by_plane(_: str, found: Object, index: Index) -> Iterable[OrderRef]:
    """A plane concerns every order that names it, wherever the order lives."""
    return index.of_plane((_namespace(found), found["metadata"]["name"]))


def by_consumer_name(cluster: str, found: Object, index: Index) -> Iterable[OrderRef]:
    """What External Secrets delivers says nothing of the order but by its name, which anybody's Secret may have."""
    name = found["metadata"]["name"]
    if has_consumer_name(name):
        order = name.removesuffix(_CONSUMER)
        ref = OrderRef(kind=KEYSTONE_SERVICE.kind, cluster=cluster, namespace=_namespace(found), name=order)
        if ref in index:
            yield ref


def has_consumer_name(name: str) -> bool:
    """Whether services may be told to read their credentials from a Secret of this name (contracts 1.4)."""
    return name.endswith(_CONSUMER)


def of_registration(ref: OrderRef, found: Object) -> Keeps:
    """Which children a registration declares changes with its spec: a role, an endpoint, a whole block. What is not
    called like a child of its no sweep would take.
    """
    spec, start = KeystoneServiceSpec.model_validate(found.get("spec") or {}), prefix(ref)
    return lambda name: sweep.keeps(ref, spec)(name) or not (name.startswith(start) or name == consumer_name(ref))


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


_CONSUMER = "-credentials"

_project_child = by_labels(KEYSTONE_PROJECT)
_service_child = by_labels(KEYSTONE_SERVICE, at_home=True)
_database_child = at_home(by_labels(MARIADB_DATABASE))


def _korc(kind: Kind, names: Mapping, facts: Callable[[Object], object] = changes.child) -> Source:
    return Source(kind, facts, names, born_silent=True, is_child=True, minor=changes.well)


def _delivery(kind: Kind) -> Source:
    names = either(by_owner(KEYSTONE_SERVICE), _service_child, _database_child)
    return Source(kind, changes.delivery, names, born_silent=True, is_child=True, minor=changes.delivered)


SOURCES: tuple[Source, ...] = (
    Source(KEYSTONE_PROJECT, changes.order, itself(KEYSTONE_PROJECT), on_targets=True),
    Source(KEYSTONE_SERVICE, changes.order, itself(KEYSTONE_SERVICE), keeps=of_registration),
    Source(MARIADB_DATABASE, changes.order, itself(MARIADB_DATABASE), on_targets=True),
    Source(CONTROL_PLANE, changes.plane, looked_up=by_plane, kept=lambda _: True),
    _korc(KORC_PROJECT, either(_project_child, _service_child)),
    _korc(KORC_USER, _service_child, changes.user),
    *(
        _korc(kind, _service_child)
        for kind in (KORC_SERVICE, KORC_ENDPOINT, KORC_DOMAIN, KORC_ROLE, KORC_ROLE_ASSIGNMENT)
    ),
    _delivery(PUSH_SECRET),
    _delivery(EXTERNAL_SECRET),
    Source(
        DATABASE,
        changes.served,
        by_labels(MARIADB_DATABASE),
        where=beside_keystone,
        on_targets=True,
        born_silent=True,
        is_child=True,
        minor=changes.delivered,
    ),
    Source(
        VAULT_DYNAMIC_SECRET,
        changes.served,
        _database_child,
        born_silent=True,
        is_child=True,
        minor=changes.standing,
    ),
    Source(
        SECRET,
        changes.secret,
        either(at_home(_service_child), _database_child, by_owner(MARIADB_DATABASE)),
        looked_up=by_consumer_name,
        kept=has_consumer_name,
        on_targets=True,
        metadata_only=True,
        born_silent=True,
        is_child=True,
        minor=changes.standing,
    ),
    Source(KEYSTONE_ROLE_ASSIGNMENT, changes.reference, by_project_ref, on_targets=True),
    Source(KEYSTONE_APPLICATION_CREDENTIAL, changes.reference, by_project_ref, on_targets=True),
)
"""Each kind once: it is one stream of each cluster. Secret stores are not here: a waiting order looks at its own."""


def _namespace(found: Object) -> str:
    return found["metadata"].get("namespace") or ""
