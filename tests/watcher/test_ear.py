"""From events to rings: which orders an event is news for, on which cluster, after which history."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import pytest

from activities.cluster import (
    CONTROL_PLANE,
    KEYSTONE_APPLICATION_CREDENTIAL,
    KEYSTONE_PROJECT,
    KEYSTONE_ROLE_ASSIGNMENT,
    KORC_PROJECT,
    Kind,
)
from tests.watcher.objects import Object, child, naming, order, plane, ready, ref, says
from watcher.ear import Ear
from watcher.mapping import SOURCES, Index
from workflows.scaffold.order import OrderRef

DELETING = "2026-11-30T00:00:00Z"
FINALIZER = "c5c3.io/keystoneproject-teardown"


class House:
    """Ears of several kinds and clusters over one index, as in a running watcher."""

    def __init__(self) -> None:
        self.index = Index()
        self.rung: list[OrderRef] = []
        self.minor: list[bool] = []
        self.cold: tuple[Sequence[OrderRef], Sequence[OrderRef]] | None = None
        self._ears: dict[tuple[str, str], Ear] = {}

    def ear(self, kind: Kind, cluster: str = "") -> Ear:
        source = next(source for source in SOURCES if source.kind == kind)
        if (kind.kind, cluster) not in self._ears:
            self._ears[kind.kind, cluster] = Ear(source, cluster, self.index, self._ring, self._cold)
        return self._ears[kind.kind, cluster]

    def news(self) -> set[OrderRef]:
        rung, self.rung = set(self.rung), []
        return rung

    def _ring(self, orders: Iterable[OrderRef], *, minor: bool = False, of: Hashable | None = None) -> None:
        self.rung += orders
        self.minor.append(minor)

    def _cold(self, unconverged: Sequence[OrderRef], converged: Sequence[OrderRef]) -> None:
        self.cold = (unconverged, converged)


@pytest.fixture
def house() -> House:
    """One order at home, one of the same name on a target cluster, one that names another plane; all known."""
    house = House()
    house.ear(KEYSTONE_PROJECT).listed([order(), order("other", plane="cp-ext")])
    house.ear(KEYSTONE_PROJECT, "edge-1").listed([order()])
    for kind in (CONTROL_PLANE, KORC_PROJECT, KEYSTONE_ROLE_ASSIGNMENT, KEYSTONE_APPLICATION_CREDENTIAL):
        house.ear(kind).listed([])
    house.news()
    return house


def test_an_order_is_its_own_news_on_its_own_cluster(house: House) -> None:
    house.ear(KEYSTONE_PROJECT, "edge-1").heard("MODIFIED", order(generation=2))
    assert house.news() == {ref(cluster="edge-1")}


def test_a_child_rings_the_order_its_labels_name(house: House) -> None:
    ear = house.ear(KORC_PROJECT)
    ear.heard("ADDED", child("a", status="False"))
    assert house.news() == {ref()}
    ear.heard("ADDED", child("b", of=ref(cluster="edge-1"), status="False"))
    assert house.news() == {ref(cluster="edge-1")}
    ear.heard("DELETED", child("b", of=ref(cluster="edge-1"), status="False"))
    assert house.news() == {ref(cluster="edge-1")}


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"c5c3.io/keystoneproject-name": "reporting", "c5c3.io/keystoneproject-namespace": "team-a"},
        {"c5c3.io/keystoneproject-name": "", "c5c3.io/keystoneproject-namespace": "team-a",
         "c5c3.io/keystoneproject-cluster": ""},
        {"c5c3.io/keystoneproject-name": "reporting", "c5c3.io/keystoneproject-namespace": "",
         "c5c3.io/keystoneproject-cluster": ""},
        None,
    ],
)  # fmt: skip
def test_a_child_without_all_three_labels_is_nobodys(house: House, labels: dict[str, str] | None) -> None:
    house.ear(KORC_PROJECT).heard("ADDED", child(status="True", labels=labels))
    assert house.news() == set()


def test_a_child_that_changes_its_labels_rings_both_orders(house: House) -> None:
    ear = house.ear(KORC_PROJECT)
    ear.heard("ADDED", child(status="True"))
    house.news()
    ear.heard("MODIFIED", child(of=ref("other"), status="True"))
    assert house.news() == {ref(), ref("other")}


def test_our_own_creation_of_a_child_is_no_news_and_what_follows_is(house: House) -> None:
    ear = house.ear(KORC_PROJECT)
    ear.heard("ADDED", child())
    assert house.news() == set()
    ear.heard("MODIFIED", child(status="False"))
    assert house.news() == {ref()}
    ear.heard("MODIFIED", child(status="False", resourceVersion="8", annotations={"a": "b"}))
    assert house.news() == set()


@pytest.mark.parametrize("kind", [KEYSTONE_ROLE_ASSIGNMENT, KEYSTONE_APPLICATION_CREDENTIAL])
def test_what_names_a_project_rings_it_in_its_own_namespace_and_cluster(house: House, kind: Kind) -> None:
    house.ear(kind).heard("ADDED", naming("reporting"))
    assert house.news() == {ref()}
    house.ear(kind, "edge-1").heard("ADDED", naming("reporting", "team-b"))
    assert house.news() == {ref(namespace="team-b", cluster="edge-1")}
    house.ear(kind).heard("MODIFIED", naming("reporting", deletionTimestamp=DELETING))
    assert house.news() == set()
    house.ear(kind).heard("DELETED", naming("reporting"))
    assert house.news() == {ref()}


def test_a_plane_rings_its_orders_on_every_cluster_and_no_others(house: House) -> None:
    ear = house.ear(CONTROL_PLANE)
    ear.heard("ADDED", plane())
    assert house.news() == {ref(), ref(cluster="edge-1")}
    ear.heard("MODIFIED", plane(credential="False"))
    assert house.news() == {ref(), ref(cluster="edge-1")}
    ear.heard("MODIFIED", plane(credential="False", resourceVersion="99"))
    assert house.news() == set()
    ear.heard("DELETED", plane(credential="False"))
    assert house.news() == {ref(), ref(cluster="edge-1")}


def test_an_order_without_a_planes_namespace_means_its_own(house: House) -> None:
    near = order("near")
    del near["spec"]["controlPlaneRef"]["namespace"]
    house.ear(KEYSTONE_PROJECT).heard("ADDED", near)
    house.news()
    house.ear(CONTROL_PLANE).heard("ADDED", plane(namespace="team-a"))
    assert house.news() == {ref("near")}


def test_a_plane_rings_the_orders_of_the_moment(house: House) -> None:
    ear = house.ear(CONTROL_PLANE)
    ear.heard("ADDED", plane())
    house.ear(KEYSTONE_PROJECT).heard("DELETED", order())
    house.ear(KEYSTONE_PROJECT).heard("ADDED", order("later"))
    house.news()
    ear.heard("MODIFIED", plane(generation=2))
    assert house.news() == {ref("later"), ref(cluster="edge-1")}


def test_status_and_finalizer_writes_of_our_own_are_no_news(house: House) -> None:
    ear = house.ear(KEYSTONE_PROJECT)
    ear.heard("MODIFIED", order(finalizers=[FINALIZER]))
    ear.heard("MODIFIED", ready(order(finalizers=[FINALIZER], resourceVersion="6")))
    assert house.news() == set()


def test_a_new_list_says_what_vanished_and_what_came_and_what_changed(house: House) -> None:
    house.ear(KEYSTONE_PROJECT).listed([order("other", plane="cp-ext", generation=2), order("new")])
    assert house.news() == {ref(), ref("other"), ref("new")}
    assert ref() not in house.index
    assert ref("new") in house.index


def test_a_new_list_that_says_nothing_new_rings_nobody(house: House) -> None:
    house.ear(KEYSTONE_PROJECT).listed([order(), ready(order("other", plane="cp-ext"))])
    house.ear(CONTROL_PLANE).listed([])
    assert house.news() == set()


def test_a_plane_that_vanished_while_nobody_listened_rings_its_orders(house: House) -> None:
    ear = house.ear(CONTROL_PLANE)
    ear.heard("ADDED", plane())
    house.news()
    ear.listed([])
    assert house.news() == {ref(), ref(cluster="edge-1")}


def test_a_cold_start_names_the_unconverged_first() -> None:
    house = House()
    leaving = order("leaving", deletionTimestamp=DELETING, finalizers=[FINALIZER])
    house.ear(KEYSTONE_PROJECT).listed(
        [ready(order("done")), order("young"), ready(leaving), ready(order("bad"), "False")]
    )
    assert house.cold == ([ref("bad"), ref("leaving"), ref("young")], [ref("done")])
    assert house.news() == set(), "a cold start goes its own, gentle way"
    house.ear(KORC_PROJECT).listed([child(status="True")])
    house.ear(CONTROL_PLANE).listed([plane()])
    assert ref("leaving") in house.index


def test_an_order_on_its_way_out_without_our_finalizer_is_never_started(house: House) -> None:
    ear = house.ear(KEYSTONE_PROJECT)
    ear.heard("MODIFIED", order(deletionTimestamp=DELETING, finalizers=["somebody/else"]))
    assert house.news() == {ref()}, "a run that is open looks again"
    assert ref() not in house.index, "none is started"


@pytest.mark.parametrize(
    "broken", [{}, {"metadata": {}}, {"metadata": {"name": "x", "labels": "y"}}, {"metadata": None}]
)
def test_an_object_that_cannot_be_read_concerns_nobody_and_stops_nothing(house: House, broken: Object) -> None:
    for kind in (KORC_PROJECT, CONTROL_PLANE, KEYSTONE_ROLE_ASSIGNMENT, KEYSTONE_PROJECT):
        house.ear(kind).heard("ADDED", broken)
        house.ear(kind).heard("DELETED", broken)
    house.ear(KORC_PROJECT).heard("ADDED", child(status="True"))
    assert ref() in house.news()


def test_what_is_nothing_to_an_order_that_is_ready(house: House) -> None:
    """A child that K-ORC says is available, if nobody wrote to it, and whatever becomes of a probe; no other news."""
    ear = house.ear(KORC_PROJECT)
    managed, probe = child(), {**child("project-probe"), "spec": {"managementPolicy": "unmanaged"}}
    told = [
        ("ADDED", managed, False),
        ("MODIFIED", child(status="False"), False),
        ("MODIFIED", child(status="True"), True),
        ("MODIFIED", child(status="True", labels={}), False),
        ("MODIFIED", child(status="True"), False),
        ("MODIFIED", child(status="True", generation=2), False),
        ("MODIFIED", says(child(generation=2), "Available", "False"), False),
        ("MODIFIED", says(child(generation=2), "Available", "True"), True),
        ("MODIFIED", says(child(generation=2, uid="uid-d"), "Available", "True"), False),
        ("MODIFIED", child(status="True", deletionTimestamp="2026-11-30T00:00:00Z"), False),
        ("DELETED", child(status="True"), False),
        ("ADDED", child("b", status="True"), False),
        ("ADDED", probe, True),
        ("MODIFIED", {**probe, "status": child(status="False")["status"]}, True),
        (
            "MODIFIED",
            {**probe, "metadata": {**probe["metadata"], "generation": 2, "deletionTimestamp": DELETING}},
            True,
        ),
        ("DELETED", probe, True),
        ("MODIFIED", probe, False),
    ]
    for type_, found, minor in told:
        ear.heard(type_, found)
        assert house.minor[-1] is minor, (type_, found)


def test_the_index_knows_which_orders_are_ready(house: House) -> None:
    ear = house.ear(KEYSTONE_PROJECT)
    ear.heard("MODIFIED", ready(order()))
    assert house.index.is_ready(ref())
    ear.heard("MODIFIED", order(generation=2))
    assert not house.index.is_ready(ref())
    ear.heard("MODIFIED", ready(order()))
    ear.heard("DELETED", ready(order()))
    assert not house.index.is_ready(ref())


def test_something_was_said_of_an_order_only_at_its_generation(house: House) -> None:
    ear = house.ear(KEYSTONE_PROJECT)
    told = ready(order(), "False")
    edited = {**told, "metadata": {**told["metadata"], "generation": 2}}
    leaving = {**edited, "metadata": {**edited["metadata"], "deletionTimestamp": DELETING, "finalizers": [FINALIZER]}}
    for found, untold in ((order(), True), (told, False), (edited, True), (leaving, True)):
        ear.heard("MODIFIED", found)
        assert house.index.is_untold(ref()) is untold, found
