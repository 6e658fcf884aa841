"""From events to the rings of MariaDBDatabases: what is beside the plane, beside Keystone, and beside the order."""

from __future__ import annotations

from typing import Any

import pytest

from activities.cluster import (
    CONTROL_PLANE,
    DATABASE,
    EXTERNAL_SECRET,
    MARIADB_DATABASE,
    SECRET,
    VAULT_DYNAMIC_SECRET,
    Kind,
)
from tests.watcher.objects import Object, order, plane, says
from tests.watcher.test_ear import House
from workflows.mariadbdatabase import children, removal
from workflows.scaffold.naming import ownership_labels
from workflows.scaffold.order import OrderRef

EDGE = "edge-1"
AT_HOME = (EXTERNAL_SECRET, VAULT_DYNAMIC_SECRET, SECRET)


def database(name: str = "reports", cluster: str = "", namespace: str = "team-a") -> OrderRef:
    return OrderRef(kind="MariaDBDatabase", cluster=cluster, namespace=namespace, name=name)


def made(of: OrderRef | None, namespace: str = "openstack", *, version: str = "7", **meta: Any) -> Object:
    """What an order made and labelled, as it is for every kind of child."""
    labels = ownership_labels(of) if of else {}
    common = {"name": "made", "namespace": namespace, "uid": "uid-m", "resourceVersion": version, "labels": labels}
    return {"metadata": {**common, **meta}}


def beside(name: str, *, controller: bool = True, kind: str = "MariaDBDatabase", version: str = "7") -> Object:
    """The delivered Secret, with its owner and two of the labels."""
    owner = {"apiVersion": "c5c3.io/v1alpha1", "kind": kind, "name": name, "uid": "u", "controller": controller}
    return made(None, "team-a", version=version, name=f"{name}-credentials", ownerReferences=[owner])


@pytest.fixture
def house() -> House:
    """The same order at home and on a target cluster, one of another plane, and a plane with Keystone beside it."""
    house = House()
    house.ear(MARIADB_DATABASE).listed([order("reports"), order("foreign", plane="other")])
    house.ear(MARIADB_DATABASE, EDGE).listed([order("reports")])
    house.ear(CONTROL_PLANE).listed([plane()])
    for kind in (*AT_HOME, DATABASE):
        house.ear(kind).listed([])
    for kind in (SECRET, DATABASE):
        house.ear(kind, EDGE).listed([])
    house.news()
    return house


def placed(**keystone: Any) -> Object:
    return {**plane(), "spec": {"services": {"keystone": keystone}}}


@pytest.mark.row("M28")
@pytest.mark.parametrize("kind", AT_HOME, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("cluster", ["", EDGE])
def test_a_child_beside_the_plane_rings_the_order_of_its_three_labels(house: House, kind: Kind, cluster: str) -> None:
    of = database(cluster=cluster)
    house.ear(kind).heard("ADDED", made(of))
    assert house.news() == set(), "who made it knows of it"
    house.ear(kind).heard("MODIFIED", made(of, version="8"))
    assert house.news() == {of}
    house.ear(kind).heard("DELETED", made(of, version="8"))
    assert house.news() == {of}


@pytest.mark.row("M28")
@pytest.mark.parametrize("kind", AT_HOME, ids=lambda kind: kind.kind)
def test_a_label_that_is_missing_names_nobody(house: House, kind: Kind) -> None:
    for gone in ownership_labels(database()):
        found = made(database())
        del found["metadata"]["labels"][gone]
        house.ear(kind).heard("ADDED", found)
        house.ear(kind).heard("MODIFIED", {"metadata": {**found["metadata"], "resourceVersion": "9"}})
    assert house.news() == set()


@pytest.mark.row("M28")
def test_databases_ring_only_from_where_a_plane_has_its_keystone(house: House) -> None:
    near, far = database(), database(cluster=EDGE)

    def change(cluster: str, namespace: str, of: OrderRef) -> set[OrderRef]:
        ear = house.ear(DATABASE, cluster)
        ear.heard("ADDED", made(of, namespace, name=of.cluster or "home"))
        ear.heard("MODIFIED", says(made(of, namespace, name=of.cluster or "home"), "Ready", "False"))
        ear.heard("DELETED", made(of, namespace, name=of.cluster or "home"))
        return house.news()

    assert change("", "openstack", near) == {near}
    assert change("", "openstack", far) == {far}, "the label names the order's cluster, not the Database's"
    assert change("", "team-a", near) == set(), "anybody may write one in a namespace of theirs"
    assert change(EDGE, "openstack", near) == set()
    house.ear(CONTROL_PLANE).heard("MODIFIED", placed(targetClusterRef={"name": EDGE}, namespace={"name": "ks"}))
    house.news()
    assert change("", "openstack", near) == set()
    assert change(EDGE, "ks", near) == {near}
    house.ear(CONTROL_PLANE).heard("DELETED", plane())
    house.news()
    assert change(EDGE, "ks", near) == set()


@pytest.mark.row("M28")
def test_the_secret_beside_an_order_rings_it_on_its_own_cluster(house: House) -> None:
    for cluster in ("", EDGE):
        ear = house.ear(SECRET, cluster)
        ear.heard("ADDED", beside("reports"))
        assert house.news() == set()
        ear.heard("MODIFIED", beside("reports", version="8"))
        assert house.news() == {database(cluster=cluster)}
        ear.heard("DELETED", beside("reports", version="8"))
        assert house.news() == {database(cluster=cluster)}
    for stranger in (beside("reports", controller=False), beside("reports", kind="KeystoneUser")):
        house.ear(SECRET, EDGE).heard("ADDED", stranger)
        house.ear(SECRET, EDGE).heard("DELETED", stranger)
        assert house.news() == set()


@pytest.mark.row("M28")
def test_labels_on_a_target_cluster_are_anybodys_writing(house: House) -> None:
    ear = house.ear(SECRET, EDGE)
    for version in ("7", "8"):
        ear.heard("MODIFIED", made(database(), "team-a", version=version))
    assert house.news() == set()


@pytest.mark.row("M28")
def test_a_plane_rings_its_orders_wherever_they_are_when_its_credentials_flip(house: House) -> None:
    def condition(status: str, type_: str = "DBCredentialsReady") -> Object:
        found = plane()
        found["status"]["conditions"].append({"type": type_, "status": status})
        return found

    mine = {database(), database(cluster=EDGE)}
    house.ear(CONTROL_PLANE).heard("MODIFIED", condition("True"))
    assert house.news() == mine
    house.ear(CONTROL_PLANE).heard("MODIFIED", condition("True"))
    assert house.news() == set()
    house.ear(CONTROL_PLANE).heard("MODIFIED", condition("False"))
    assert house.news() == mine
    house.ear(CONTROL_PLANE).heard("MODIFIED", condition("False"))
    house.ear(CONTROL_PLANE).heard("MODIFIED", {**condition("False"), "status": {"phase": "other"}})
    assert house.news() == mine, "a condition that is gone has flipped"


def test_what_is_well_again_is_nothing_to_a_ready_order(house: House) -> None:
    house.ear(DATABASE).heard("ADDED", made(database()))
    house.ear(DATABASE).heard("MODIFIED", says(made(database()), "Ready", "True"))
    assert house.minor[-1]
    house.ear(DATABASE).heard("MODIFIED", says(made(database()), "Ready", "False"))
    assert not house.minor[-1]
    house.ear(SECRET).heard("ADDED", made(database()))
    house.ear(SECRET).heard("MODIFIED", made(database(), version="8"))
    assert not house.minor[-1], "a credential that was issued anew has to be delivered"


def test_every_kind_that_is_taken_back_is_watched() -> None:
    kinds = {kind.kind for kind in (*AT_HOME, DATABASE)}
    assert set(removal.KINDS) <= kinds
    assert children.FINALIZER == "c5c3.io/mariadbdatabase-teardown"


def test_a_plane_that_cannot_be_read_places_nothing(house: House) -> None:
    for spec in (
        None,
        {"services": None},
        {"services": {"keystone": None}},
        {"services": {"keystone": {"namespace": None}}},
    ):
        house.ear(CONTROL_PLANE).heard("MODIFIED", {**plane(), "spec": spec})
    house.ear(CONTROL_PLANE).heard("MODIFIED", {**plane(), "spec": {"services": {"keystone": "odd"}}})
    house.ear(CONTROL_PLANE).heard("MODIFIED", {**plane(), "spec": "odd"})
