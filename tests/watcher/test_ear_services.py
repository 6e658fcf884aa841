"""From events to the rings of KeystoneServices: whose part it is, by what it is known, and what is nothing to them."""

from __future__ import annotations

import pytest

from activities.cluster import (
    CONTROL_PLANE,
    EXTERNAL_SECRET,
    KEYSTONE_PROJECT,
    KEYSTONE_SERVICE,
    KORC_DOMAIN,
    KORC_ENDPOINT,
    KORC_PROJECT,
    KORC_ROLE,
    KORC_ROLE_ASSIGNMENT,
    KORC_SERVICE,
    KORC_USER,
    ORDER_KINDS,
    PUSH_SECRET,
    SECRET,
    Kind,
)
from tests.watcher.objects import Object, child, order, owned, part, plane, ready, ref, says, secret, service
from tests.watcher.test_ear import DELETING, House
from watcher.mapping import SOURCES
from workflows.keystoneservice import delivery, sweep
from workflows.keystoneservice.children import FINALIZER, GENERATION, prefix, role_slug

KORC = (
    KORC_SERVICE, KORC_ENDPOINT, KORC_USER, KORC_DOMAIN, KORC_PROJECT, KORC_ROLE, KORC_ROLE_ASSIGNMENT,
)  # fmt: skip
DELIVERY = (PUSH_SECRET, EXTERNAL_SECRET)
NAME, NAMESPACE = "c5c3.io/keystoneservice-name", "c5c3.io/keystoneservice-namespace"
CONSUMER = "images-credentials"


@pytest.fixture
def house() -> House:
    """Three registrations, one of them in another namespace, and a project of the first one's name; all known."""
    house = House()
    house.ear(KEYSTONE_SERVICE).listed([order("images"), order("volumes"), order("images", "team-b")])
    house.ear(KEYSTONE_PROJECT).listed([order("images")])
    for kind in (*KORC, *DELIVERY, SECRET, CONTROL_PLANE):
        house.ear(kind).listed([])
    house.news()
    return house


def said(kind: Kind, found: Object, status: str) -> Object:
    """What the controller of the kind says of it; nobody says anything of a Secret, which is only written."""
    if kind == SECRET:
        return {**found, "metadata": {**found["metadata"], "resourceVersion": status}}
    return says(found, "Available" if kind in KORC else "Ready", status)


# -- the table ----------------------------------------------------------------------------------------------------


def test_each_kind_is_one_stream_and_each_kind_of_order_is_heard() -> None:
    kinds = [source.kind for source in SOURCES]
    assert len(kinds) == len(set(kinds))
    assert {source.kind for source in SOURCES if source.is_order} == set(ORDER_KINDS.values())
    children = {*sweep.BESIDE_THE_PLANE, *sweep.BESIDE_THE_ORDER, sweep.SECRETS}
    assert children <= {kind.kind for kind in kinds}


def test_no_registration_and_nothing_of_one_is_looked_for_on_target_clusters(house: House) -> None:
    away = {source.kind for source in SOURCES if source.on_targets}
    assert not away & {KEYSTONE_SERVICE, *KORC, *DELIVERY}
    # Secrets are, for databases are delivered there: a registration's labels on one are anybody's writing.
    house.ear(SECRET, "edge-1").heard("ADDED", part("made", of=service()))
    house.ear(SECRET, "edge-1").heard("MODIFIED", said(SECRET, part("made", of=service()), "8"))
    assert house.news() == set()


def test_of_secrets_only_the_metadata_is_heard() -> None:
    assert [source.kind for source in SOURCES if source.metadata_only] == [SECRET]


# -- whose it is --------------------------------------------------------------------------------------------------


@pytest.mark.row("S21")
def test_a_registration_is_its_own_news(house: House) -> None:
    house.ear(KEYSTONE_SERVICE).heard("MODIFIED", order("images", generation=2))
    assert house.news() == {service()}
    house.ear(KEYSTONE_SERVICE).heard("MODIFIED", ready(order("images", generation=2, finalizers=[FINALIZER])))
    assert house.news() == set()
    assert not house.index.is_ready(service()), "it was Ready before the edit"
    house.ear(KEYSTONE_SERVICE).heard("MODIFIED", order("images", deletionTimestamp=DELETING, finalizers=[FINALIZER]))
    assert service() in house.index, "its teardown is started if need be"


@pytest.mark.row("S21")
@pytest.mark.parametrize("kind", [*KORC, *DELIVERY, SECRET], ids=lambda kind: kind.kind)
def test_what_it_made_rings_the_registration_that_both_labels_name(house: House, kind: Kind) -> None:
    ear, made = house.ear(kind), part("made", of=service())
    ear.heard("ADDED", made)
    assert house.news() == set(), "who made it knows of it"
    ear.heard("MODIFIED", said(kind, made, "False"))
    assert house.news() == {service()}
    ear.heard("MODIFIED", said(kind, {**made, "metadata": {**made["metadata"], "finalizers": ["f"]}}, "False"))
    assert house.news() == set()
    ear.heard("MODIFIED", said(kind, part("made", of=service(namespace="team-b")), "True"))
    assert house.news() == {service(), service(namespace="team-b")}
    ear.heard("DELETED", said(kind, part("made", of=service(namespace="team-b")), "True"))
    assert house.news() == {service(namespace="team-b")}


@pytest.mark.row("S21")
@pytest.mark.parametrize("kind", [*KORC, *DELIVERY, SECRET], ids=lambda kind: kind.kind)
@pytest.mark.parametrize(
    "labels",
    [
        {},
        None,
        {NAME: "images"},
        {NAMESPACE: "team-a"},
        {NAME: "", NAMESPACE: "team-a"},
        {NAME: "images", NAMESPACE: ""},
        {"c5c3.io/keystoneproject-name": "images", "c5c3.io/keystoneproject-namespace": "team-a"},
    ],
)
def test_half_a_name_is_nobodys(house: House, kind: Kind, labels: dict[str, str] | None) -> None:
    ear, made = house.ear(kind), part("made", labels=labels)
    for type_, found in (("ADDED", made), ("MODIFIED", said(kind, made, "True")), ("DELETED", made)):
        ear.heard(type_, found)
    assert house.news() == set()


@pytest.mark.row("S21")
def test_a_project_of_k_orcs_is_a_project_orders_or_a_registrations(house: House) -> None:
    house.ear(KORC_PROJECT).heard("ADDED", child("a", of=ref("images"), status="False"))
    assert house.news() == {ref("images")}
    house.ear(KORC_PROJECT).heard("ADDED", says(part("b", of=service()), "Available", "False"))
    assert house.news() == {service()}


@pytest.mark.row("S21")
@pytest.mark.parametrize("kind", DELIVERY, ids=lambda kind: kind.kind)
def test_a_delivery_object_rings_its_controller_in_its_own_namespace(house: House, kind: Kind) -> None:
    ear = house.ear(kind)
    ear.heard("ADDED", said(kind, owned("backup"), "True"))
    assert house.news() == {service()}
    ear.heard("MODIFIED", said(kind, owned("backup", apiVersion="c5c3.io/v1"), "True"))
    assert house.news() == {service()}, "of whatever version it is"
    ear.heard("MODIFIED", said(kind, owned("backup", "volumes"), "True"))
    assert house.news() == {service(), service("volumes")}
    ear.listed([])
    assert house.news() == {service("volumes")}
    for other in ({"controller": False}, {"kind": "KeystoneProject"}, {"apiVersion": "example.com/v1"},
                  {"apiVersion": "c5c3.io"}):  # fmt: skip
        ear.heard("ADDED", said(kind, owned(f"b-{len(str(other))}", **other), "True"))
        assert house.news() == set(), other
    ear.heard("ADDED", {"metadata": {"name": "odd", "ownerReferences": ["x"]}})
    assert house.news() == set()


@pytest.mark.row("S21")
def test_the_consumer_secret_rings_the_registration_that_its_name_speaks_of_if_there_is_one(house: House) -> None:
    assert delivery.consumer_name(service()) == CONSUMER
    ear = house.ear(SECRET)
    ear.heard("ADDED", secret(CONSUMER))
    assert house.news() == {service()}
    ear.heard("MODIFIED", secret(CONSUMER, version="8"))
    assert house.news() == {service()}
    ear.heard("MODIFIED", secret(CONSUMER, version="8"))
    assert house.news() == set()
    ear.heard("DELETED", secret(CONSUMER, version="9"))
    assert house.news() == {service()}
    for name, namespace in (("absent-credentials", "team-a"), (CONSUMER, "team-c"), ("images-credentials-x", "team-a"),
                            ("-credentials", "team-a"), ("images", "team-a")):  # fmt: skip
        ear.heard("ADDED", secret(name, namespace=namespace))
        ear.heard("DELETED", secret(name, namespace=namespace))
        assert house.news() == set(), name
    house.ear(KEYSTONE_SERVICE).heard("DELETED", order("images"))
    house.news()
    ear.heard("ADDED", secret(CONSUMER))
    assert house.news() == set(), "it was anybody's all along"


@pytest.mark.row("S21", "A20")
def test_a_consumer_secret_is_missed_though_it_was_there_before_its_registration_was_known() -> None:
    house = House()
    house.ear(SECRET).listed([secret(CONSUMER), secret("volumes-credentials")])
    house.ear(KEYSTONE_SERVICE).listed([order("images")])
    house.ear(SECRET).listed([secret("volumes-credentials")])
    assert house.news() == {service()}


@pytest.mark.row("S21")
def test_a_secret_of_nobodys_is_not_even_remembered(house: House) -> None:
    ear = house.ear(SECRET)
    for version in range(3):
        ear.heard("MODIFIED", secret("theirs", version=str(version)))
    ear.listed([secret("theirs", version="4")])
    assert ear.remembered == 0
    ear.heard("MODIFIED", secret("theirs", of=service(), version="5"))
    ear.heard("MODIFIED", secret("theirs", version="6"))
    assert house.news() == {service()}, "it is no more what it was made as"
    assert ear.remembered == 0


@pytest.mark.row("S21")
def test_a_plane_rings_the_registrations_of_every_namespace(house: House) -> None:
    ear = house.ear(CONTROL_PLANE)
    everyone = {service(), service("volumes"), service(namespace="team-b"), ref("images")}
    house.ear(KEYSTONE_SERVICE).heard("ADDED", order("elsewhere", plane="cp-ext"))
    house.news()
    ear.heard("ADDED", plane(credential="False"))
    assert house.news() == everyone
    ear.heard("MODIFIED", plane(credential="True"))
    assert house.news() == everyone, "the gate opened"
    ear.heard("MODIFIED", plane(credential="True", generation=2))
    assert house.news() == everyone, "somebody was allowed or no longer"
    ear.heard("MODIFIED", plane(credential="True", generation=2, resourceVersion="9"))
    ear.heard("MODIFIED", plane("cp", credential="True", namespace="team-a"))
    assert house.news() == set(), "a plane of the same name elsewhere"


# -- what is nothing to one that is Ready ---------------------------------------------------------------------------


def minor(house: House, kind: Kind, type_: str, found: Object) -> bool:
    house.ear(kind).heard(type_, found)
    assert house.news(), "it is news"
    return house.minor[-1]


@pytest.mark.parametrize("kind", [*KORC, *DELIVERY], ids=lambda kind: kind.kind)
def test_that_all_is_well_is_nothing_new_until_somebody_writes(house: House, kind: Kind) -> None:
    made = part("made", of=service(), annotations={"a": "b"})
    house.ear(kind).heard("ADDED", made)
    assert not minor(house, kind, "MODIFIED", said(kind, made, "False"))
    assert minor(house, kind, "MODIFIED", said(kind, made, "True"))
    edited = {**made, "metadata": {**made["metadata"], "generation": 2}}
    assert not minor(house, kind, "MODIFIED", said(kind, edited, "True")), "an edit"
    assert not minor(house, kind, "MODIFIED", said(kind, edited, "Unknown"))
    assert minor(house, kind, "MODIFIED", said(kind, edited, "True")), "its controller is done with the edit"
    leaving = {**edited, "metadata": {**edited["metadata"], "deletionTimestamp": DELETING}}
    assert not minor(house, kind, "MODIFIED", said(kind, leaving, "True"))
    assert not minor(house, kind, "DELETED", said(kind, edited, "True")), "by force"


@pytest.mark.parametrize("kind", KORC, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("field", ["id", "roleID", "userID", "projectID", "serviceID"])
def test_what_was_made_anew_in_keystone_is_never_nothing(house: House, kind: Kind, field: str) -> None:
    """It is well by itself; what refers to it is not, and nobody says so of that."""

    def known(id_: str) -> Object:
        more = {"id": id_} if field == "id" else {"id": "a", "resource": {field: id_}}
        return says(part("made", of=service()), "Available", "True", **more)

    house.ear(kind).heard("ADDED", part("made", of=service()))
    assert minor(house, kind, "MODIFIED", known("1")), "the first that is known"
    assert not minor(house, kind, "MODIFIED", known("2"))
    assert not minor(house, kind, "MODIFIED", known("")), "what vanished, and is not made anew yet"
    house.ear(kind).heard("MODIFIED", known("2"))
    house.news()
    house.ear(kind).listed([known("3")])
    assert house.news() == {service()}
    assert not house.minor[-1], "while nobody listened"


@pytest.mark.row("S13", "S21")
@pytest.mark.parametrize("kind", [*KORC, PUSH_SECRET, SECRET], ids=lambda kind: kind.kind)
def test_a_child_that_comes_back_undeclared_rings_at_once_and_one_that_is_declared_does_not(
    house: House, kind: Kind
) -> None:
    """Out of a backup without a word of its controller, and soon with all well with it: it must go all the same."""
    ear, start = house.ear(kind), prefix(service())
    declared = order("images")
    declared["spec"] |= {
        "catalog": {"serviceType": "image"},
        "account": {"project": {"name": "p"}, "roles": ["reader"]},
    }
    house.ear(KEYSTONE_SERVICE).heard("MODIFIED", ready(declared))
    house.news()
    for known in ("service", "user", "password-v7", "source", "backup", f"role-{role_slug('reader')}"):
        ear.heard("ADDED", part(f"{start}{known}", of=service()))
        assert house.news() == set(), known
    stray = part(f"{start}role-{role_slug('member')}", of=service())
    ear.heard("ADDED", stray)
    assert house.news() == {service()}
    assert not house.minor[-1]
    assert not minor(house, kind, "MODIFIED", said(kind, stray, "True")), "it is well, and nobody wants it"
    leaving = {**stray, "metadata": {**stray["metadata"], "deletionTimestamp": DELETING, "resourceVersion": "9"}}
    house.ear(kind).heard("MODIFIED", leaving)
    house.news()
    # A block that is taken out takes its children's names with it.
    del declared["spec"]["account"]
    house.ear(KEYSTONE_SERVICE).heard("MODIFIED", ready(declared))
    house.news()
    ear.heard("DELETED", part(f"{start}user", of=service()))
    house.news()
    ear.heard("ADDED", part(f"{start}user", of=service()))
    assert house.news() == {service()}
    # Of an order that is not known yet nobody can tell, and it is rung for itself when it is.
    ear.heard("ADDED", part(f"{prefix(service('new'))}user", of=service("new")))
    assert house.news() == set()


@pytest.mark.parametrize("kind", [KORC_ROLE, KORC_PROJECT, KORC_DOMAIN], ids=lambda kind: kind.kind)
def test_an_import_that_goes_is_missed_and_a_probe_is_not(house: House, kind: Kind) -> None:
    for name, expected in (("images-1-registration-role-x", False), ("images-1-registration-project-probe", True)):
        found = says({**part(name, of=service()), "spec": {"managementPolicy": "unmanaged"}}, "Available", "True")
        house.ear(kind).heard("ADDED", found)
        assert minor(house, kind, "DELETED", found) is expected
    house.ear(kind).listed([says({**part("import", of=service())}, "Available", "True")])
    house.news()
    house.ear(kind).listed([])
    assert house.news() == {service()}
    assert not house.minor[-1], "what vanished unheard"


@pytest.mark.row("S21")
def test_a_nudge_is_heard_of_and_what_k_orc_says_of_a_rotated_user_is_nothing(house: House) -> None:
    def user(mark: str, applied: str, generation: int = 1) -> Object:
        made = part("user", of=service(), annotations={GENERATION: mark}, generation=generation)
        return says(made, "Available", "True", resource={"appliedPasswordRef": f"password-v{applied}"})

    house.ear(KORC_USER).heard("ADDED", part("user", of=service(), annotations={GENERATION: "1"}))
    assert minor(house, KORC_USER, "MODIFIED", user("1", "1"))
    assert not minor(house, KORC_USER, "MODIFIED", user("", "1")), "somebody wants a new password"
    assert not minor(house, KORC_USER, "MODIFIED", user("2", "1", 2)), "the step that gives one"
    assert minor(house, KORC_USER, "MODIFIED", user("2", "2", 2))
    house.ear(KORC_USER).heard("MODIFIED", user("7", "2", 2))
    assert house.news() == set(), "the number in the mark is nobody's business"


@pytest.mark.parametrize("kind", DELIVERY, ids=lambda kind: kind.kind)
def test_marks_on_a_delivery_object_are_writes(house: House, kind: Kind) -> None:
    made = says(part("made", of=service(), annotations={"a": "b"}), "Ready", "True", syncedResourceVersion="1-a")
    house.ear(kind).heard("ADDED", made)
    house.news()
    marked = {**made, "metadata": {**made["metadata"], "annotations": {"a": "c"}}}
    assert not minor(house, kind, "MODIFIED", marked)
    synced = {**marked, "status": {**marked["status"], "syncedResourceVersion": "1-b"}}
    assert minor(house, kind, "MODIFIED", synced)


@pytest.mark.parametrize("kind", DELIVERY, ids=lambda kind: kind.kind)
def test_an_interval_in_other_words_is_no_write(house: House, kind: Kind) -> None:
    """External Secrets writes a PushSecret back whole when it puts its finalizer on."""
    made = part("made", of=service())
    house.ear(kind).heard("ADDED", {**made, "spec": {"refreshInterval": "1h", "data": [1]}})
    house.news()
    again = {**says(made, "Ready", "True"), "metadata": {**made["metadata"], "generation": 2}}
    assert minor(house, kind, "MODIFIED", {**again, "spec": {"refreshInterval": "1h0m0s", "data": [1]}})
    assert not minor(house, kind, "MODIFIED", {**again, "spec": {"refreshInterval": "2h0m0s", "data": [1]}})
    assert not minor(house, kind, "MODIFIED", {**again, "spec": {"refreshInterval": "2h0m0s", "data": [2]}})


@pytest.mark.row("S21", "A20")
def test_a_secret_that_is_written_or_deleted_is_never_nothing(house: House) -> None:
    password, source = secret("password-v1", of=service(), namespace="openstack"), secret("source", of=service())
    for made in (password, source):
        house.ear(SECRET).heard("ADDED", made)
        assert house.news() == set(), "who made it knows of it"
        assert not minor(house, SECRET, "MODIFIED", said(SECRET, made, "8"))
        assert not minor(house, SECRET, "DELETED", said(SECRET, made, "9"))
    assert minor(house, SECRET, "ADDED", secret(CONSUMER)), "an order that is Ready has read it"
    assert not minor(house, SECRET, "MODIFIED", secret(CONSUMER, version="8"))
    assert not minor(house, SECRET, "MODIFIED", secret(CONSUMER, version="9", deletionTimestamp=DELETING))
    assert not minor(house, SECRET, "DELETED", secret(CONSUMER, version="9"))
    assert not minor(house, SECRET, "MODIFIED", secret(CONSUMER, version="10")), "its creation was not heard"
