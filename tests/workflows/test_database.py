"""What a MariaDBDatabase is called, granted and delivered, and how its judges answer: pure, in milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from workflows.api.controlplane import ControlPlane
from workflows.api.korc import KorcObject
from workflows.api.mariadbdatabase import Bao, MariaDBDatabaseSpec, Store
from workflows.mariadbdatabase import children, delivery, gates, provision, reasons, removal, schema
from workflows.mariadbdatabase.children import Ordered
from workflows.scaffold import gates as shared
from workflows.scaffold.child import Seen, fingerprint, key
from workflows.scaffold.order import OrderRef
from workflows.scaffold.removal import Removing
from workflows.scaffold.verdict import Act, Decision, Verdict

Object = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
READY = {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}]}


def order(name: str = "reports-db", namespace: str = "team-a", cluster: str = "") -> OrderRef:
    return OrderRef(kind="MariaDBDatabase", cluster=cluster, namespace=namespace, name=name)


def plane(**spec: Any) -> ControlPlane:
    body: Object = {
        "metadata": {"name": "cp", "namespace": "openstack"},
        "spec": {"infrastructure": {"database": {"clusterRef": {"name": "mariadb"}}}, **spec},
        "status": {"conditions": [{"type": "DBCredentialsReady", "status": "True"}]},
    }
    return ControlPlane.model_validate(body)


def ordered(ref: OrderRef | None = None, of: ControlPlane | None = None, **spec: Any) -> Ordered:
    declared = MariaDBDatabaseSpec.model_validate({"controlPlaneRef": {"name": "cp"}, **spec})
    return Ordered(order=ref or order(), uid="u1", spec=declared, plane=of or plane())


class Scene:
    """What a judge sees, put together piece by piece as a faithful cluster would have it."""

    def __init__(self, want: Ordered) -> None:
        self.want = want
        self.objects: dict[str, KorcObject] = {}
        self.claims: dict[str, str] = {}

    @property
    def seen(self) -> Seen:
        return Seen(children=dict(self.objects), claims=dict(self.claims), now=NOW)

    def put(self, body: Object, status: Object | None = None, **more: Any) -> None:
        meta = {"uid": "x", "resourceVersion": "1", "generation": 1, **body["metadata"], **more.pop("metadata", {})}
        made = {"spec": {}, **body, **more, "metadata": meta, "status": status or {}}
        self.objects[key(body["kind"], meta["namespace"], meta["name"])] = KorcObject.model_validate(made)

    def server(self) -> None:
        self.put(children.mariadb(self.want), READY)

    def client(self) -> None:
        namespace = self.want.plane.namespace
        self.put(children.service_account(namespace))
        self.put(children.certificate(namespace), READY)
        self.put(children.client_secret(namespace), data=dict.fromkeys(children.CLIENT_KEYS, "print"))

    def credential(self, username: str = "v-print") -> None:
        self.put(children.database(self.want), READY)
        self.put(children.generator(self.want))
        self.put(children.external_secret(self.want), READY)
        self.put(children.credentials(self.want), data={"username": username, "password": "print"})


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.row("M07")
def test_names_follow_the_order_and_the_cluster_it_lives_on() -> None:
    want = ordered()
    assert children.prefix(want.order) == "reports-db-2d0ebd20-database-"  # sha256 of "/team-a/reports-db"
    assert want.role_name == "order.openstack.reports-db-2d0ebd20-database"
    assert children.credentials_name(want.order) == "reports-db-2d0ebd20-database-credentials"
    assert children.database(want)["metadata"]["name"] == "reports-db-2d0ebd20-database-database"
    assert children.delivered_name(want.order) == "reports-db-credentials"
    assert want.schema_name == "reports_db"
    assert want.spec.effective_policy == "Retain"
    edge = children.prefix(order(cluster="edge-1"))
    other = children.prefix(order(namespace="team-b"))
    assert len({children.prefix(want.order), edge, other}) == 3
    assert ordered(databaseName="Other_1").schema_name == "Other_1"
    assert ordered(deletionPolicy="Delete").spec.effective_policy == "Delete"


@pytest.mark.row("M07")
def test_children_carry_three_labels_and_what_is_delivered_two() -> None:
    want = ordered(order(cluster="edge-1"))
    three = {
        "c5c3.io/mariadbdatabase-name": "reports-db",
        "c5c3.io/mariadbdatabase-namespace": "team-a",
        "c5c3.io/mariadbdatabase-cluster": "edge-1",
    }
    for body in (children.database(want), children.generator(want), children.external_secret(want)):
        assert body["metadata"]["labels"] == three
        assert "ownerReferences" not in body["metadata"]
    assert children.database(ordered())["metadata"]["labels"]["c5c3.io/mariadbdatabase-cluster"] == ""
    template = children.external_secret(want)["spec"]["target"]["template"]
    assert template == {"metadata": {"labels": three}}
    delivered = children.delivered(want)
    assert set(delivered["metadata"]["labels"]) == set(three) - {"c5c3.io/mariadbdatabase-cluster"}
    assert delivered["metadata"]["ownerReferences"][0]["controller"] is True
    for shared_body in (children.service_account("openstack"), children.certificate("openstack")):
        assert set(shared_body["metadata"]) == {"name", "namespace"}


@pytest.mark.parametrize(("length", "long"), [(1, True), (36, True), (37, False), (63, False)])
def test_the_certificates_name_is_one_that_cert_manager_takes(length: int, long: bool) -> None:
    namespace = "n" * length
    spec = children.certificate(namespace)["spec"]
    assert spec["commonName"] == f"order-db-openbao-client{f'.{namespace}.svc' if long else ''}"
    assert len(spec["commonName"]) <= 64


@pytest.mark.row("M07")
def test_the_generator_speaks_to_the_openbao_of_the_planes_store() -> None:
    vault = {
        "server": "https://bao.example.org",
        "namespace": "ns",
        "auth": {"kubernetes": {"mountPath": "kubernetes/x"}},
    }
    bao = Bao.of(Store.model_validate({"spec": {"provider": {"vault": vault}}}))
    want = ordered().model_copy(update={"bao": bao})
    spec = children.generator(want)["spec"]
    assert spec["path"] == f"database/mariadb/creds/{want.role_name}"
    assert spec["provider"]["server"] == "https://bao.example.org"
    assert spec["provider"]["namespace"] == "ns"
    assert spec["provider"]["auth"]["kubernetes"] == {
        "mountPath": "kubernetes/x",
        "role": "order-db",
        "serviceAccountRef": {"name": "order-db-creds"},
    }
    assert Bao.of(None) == Bao.of(Store.model_validate({"spec": {"provider": {"fake": {}}}})) == Bao()
    assert Bao() == Bao(server="https://openbao.shared-services.svc:8200", mount="kubernetes/management")
    assert "namespace" not in children.generator(ordered())["spec"]["provider"]


# -- schema and role ---------------------------------------------------------------------------------------------------


@pytest.mark.row("M08")
@pytest.mark.parametrize("name", ["a", "Tenant_1", "a" * 64, "0", "_"])
def test_identifiers(name: str) -> None:
    assert schema.is_identifier(name)


@pytest.mark.row("M08")
@pytest.mark.parametrize("name", ["", "tenant-a", "tenant%", "ten`ant", "a" * 65, "ünïcode", "a b", "a\n", "a.b"])
def test_what_is_no_identifier(name: str) -> None:
    assert not schema.is_identifier(name)


@pytest.mark.row("M08")
def test_the_servers_own_schemas_are_reserved_in_any_case() -> None:
    for name in ("mysql", "MySQL", "Information_Schema", "performance_schema", "SYS"):
        assert schema.is_reserved(name)
    assert not schema.is_reserved("system")


def test_the_role_says_exactly_this() -> None:
    assert schema.role("tenant_a_b", "openstack") == {
        "db_name": "keystone-openstack",
        "creation_statements": [
            "CREATE USER '{{name}}'@'%' IDENTIFIED BY '{{password}}';",
            "GRANT ALL PRIVILEGES ON `tenant\\_a\\_b`.* TO '{{name}}'@'%';",
        ],
        "revocation_statements": ["DROP USER IF EXISTS '{{name}}'@'%';"],
        "default_ttl": 172800,
        "max_ttl": 259200,
    }


@pytest.mark.parametrize("ttl", [172800, "172800", "172800s", "48h", "48h0m0s", "2d"])
def test_a_stored_role_compares_equal_whatever_unit_its_times_have(ttl: object) -> None:
    wanted = schema.role("a", "ns")
    assert schema.same_role({**wanted, "default_ttl": ttl, "rollback_statements": []}, wanted)


@pytest.mark.parametrize(
    "change",
    [
        {"default_ttl": "47h"},
        {"default_ttl": None},
        {"default_ttl": "soon"},
        {"default_ttl": True},
        {"creation_statements": ["CREATE USER '{{name}}'@'%' IDENTIFIED BY '{{password}}';"]},
        {"creation_statements": list(reversed(schema.role("a", "ns")["creation_statements"]))},
        {"db_name": "keystone-other"},
    ],
)
def test_a_stored_role_that_differs_in_anything_differs(change: Object) -> None:
    wanted = schema.role("a", "ns")
    assert not schema.same_role({**wanted, **change}, wanted)


# -- gates -------------------------------------------------------------------------------------------------------------


@pytest.mark.row("M04")
@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"services": {"keystone": {"mode": "External"}}}, "External"),
        ({"infrastructure": {"database": {"host": "db.example.org"}}}, "somebody else"),
        (
            {"services": {"keystone": {"dedicatedBackingServices": {"database": {"clusterRef": {"name": "own"}}}}}},
            "of its own",
        ),
        ({"services": {"keystone": {"databaseCredentialsMode": "Static"}}}, "Static"),
        ({"infrastructure": {"database": {"clusterRef": {"name": "m"}, "credentialsMode": "Static"}}}, "Static"),
        ({"infrastructure": {}}, "somebody else"),
    ],
)
def test_planes_that_issue_no_credentials(spec: Object, word: str) -> None:
    gate = gates.dynamic(plane(**spec))
    assert gate is not None
    assert (gate.reason, gate.again) == (reasons.DYNAMIC_UNAVAILABLE, 600)
    assert word in gate.message
    assert [(v.type, v.reason) for v in gates.refused(gate)] == [
        ("DatabaseReady", gate.reason),
        ("DeliveryReady", gate.reason),
    ]


@pytest.mark.row("M04", "M05")
def test_planes_that_do() -> None:
    assert gates.dynamic(plane()) is None
    static = {"database": {"clusterRef": {"name": "mariadb"}, "credentialsMode": "Static"}}
    override = {"keystone": {"databaseCredentialsMode": "Dynamic"}}
    assert gates.dynamic(plane(infrastructure=static, services=override)) is None
    waiting = plane().model_copy(update={"status": plane().status.model_copy(update={"conditions": ()})})
    gate = gates.dynamic(waiting)
    assert gate is not None
    assert (gate.reason, gate.again) == (reasons.WAITING_FOR_DB_CREDENTIALS, 10)
    assert "setup-database-tenant.sh" in gate.message


def test_a_name_that_no_label_carries_reads_as_an_invalid_one() -> None:
    gate = shared.order_name(order("a" * 64))
    assert gate is not None
    assert [v.reason for v in gates.refused(gate)] == ["DatabaseNameInvalid", "DeliveryError"]


# -- provision ---------------------------------------------------------------------------------------------------------


def judged(scene: Scene) -> Decision:
    return provision.judge_ground(scene.want, scene.seen)


@pytest.mark.row("M06")
def test_without_a_ready_server_nothing_is_done() -> None:
    scene = Scene(ordered())
    assert "does not exist" in judged(scene).verdict.message
    scene.put(children.mariadb(scene.want), {"conditions": [{"type": "Ready", "status": "False", "reason": "Down"}]})
    decision = judged(scene)
    assert (decision.verdict.reason, decision.verdict.again, decision.do) == ("ClusterNotReady", 10, ())
    assert "openstack/mariadb is not Ready (Down)" in decision.verdict.message


@pytest.mark.row("M08")
@pytest.mark.parametrize(
    ("name", "reason"),
    [("app.v1", "DatabaseNameInvalid"), ("sys", "DatabaseNameReserved"), ("keystone", "DatabaseCollision")],
)
def test_refused_names_ask_for_nothing_and_for_no_quick_look(name: str, reason: str) -> None:
    scene = Scene(ordered(order(name)))
    scene.server()
    decision = judged(scene)
    assert (decision.verdict.reason, decision.verdict.again, decision.do) == (reason, 600, ())


@pytest.mark.row("M09")
@pytest.mark.parametrize(
    ("spec", "taken"),
    [
        ({"mariaDbRef": {"name": "mariadb"}, "name": "reports_db"}, True),
        ({"mariaDbRef": {"name": "mariadb", "namespace": "openstack"}, "name": "reports_db"}, True),
        ({"mariaDbRef": {"name": "mariadb"}}, True),  # named by its metadata
        ({"mariaDbRef": {"name": "other"}, "name": "reports_db"}, False),
        ({"mariaDbRef": {"name": "mariadb", "namespace": "elsewhere"}, "name": "reports_db"}, False),
        ({"mariaDbRef": {"name": "mariadb"}, "name": "Reports_DB"}, False),
    ],
)
def test_a_schema_that_another_database_has_is_a_collision(spec: Object, taken: bool) -> None:
    scene = Scene(ordered())
    scene.server()
    name = "reports_db" if "name" not in spec else "somebodys"
    scene.put({"kind": "Database", "metadata": {"name": name, "namespace": "openstack"}}, spec=spec)
    decision = judged(scene)
    assert (decision.verdict.reason == "DatabaseCollision") == taken
    assert "somebodys" not in decision.verdict.message
    assert (provision.taken_by(scene.want, scene.seen) == f"Database openstack/{name}") == taken


@pytest.mark.row("M09")
def test_the_same_order_on_another_cluster_is_somebody_else() -> None:
    scene = Scene(ordered())
    scene.server()
    twin = ordered(order(cluster="edge-1"))
    scene.put(children.database(twin), READY)
    assert judged(scene).verdict.reason == "DatabaseCollision"
    own = Scene(twin)
    own.server()
    own.put(children.database(twin), READY)
    assert judged(own).verdict.reason == "WaitingForClientCertificate"


@pytest.mark.row("M09")
def test_a_new_schema_is_claimed_and_another_orders_claim_is_a_collision() -> None:
    scene = Scene(ordered())
    scene.server()
    (write,) = judged(scene).do
    assert (write.act, write.name) == (Act.CLAIM, children.claim(scene.want))
    scene.claims[write.name] = "MariaDBDatabase:team-b/other"
    decision = judged(scene)
    assert (decision.verdict.reason, decision.do) == ("DatabaseCollision", ())
    assert "team-b" not in decision.verdict.message
    assert provision.taken_by(scene.want, scene.seen) == "MariaDBDatabase:team-b/other"
    scene.claims[write.name] = scene.want.order.workflow_id
    assert judged(scene).verdict.reason == "WaitingForClientCertificate"
    assert children.claim(ordered(databaseName="Reports_db")) != children.claim(scene.want)


@pytest.mark.row("M10")
def test_the_client_certificate_is_waited_for_until_all_three_keys_are_there() -> None:
    scene = Scene(ordered())
    scene.server()
    scene.claims[children.claim(scene.want)] = scene.want.order.workflow_id
    decision = judged(scene)
    assert [(w.act, w.kind) for w in decision.do] == [(Act.APPLY, "ServiceAccount"), (Act.APPLY, "Certificate")]
    assert decision.verdict.reason == "WaitingForClientCertificate"
    scene.client()
    assert judged(scene).verdict.status
    keys = ("tls.crt", "tls.key", "ca.crt")
    for lacking in keys:
        data = {each: "" if each == lacking else "print" for each in keys}
        scene.put(children.client_secret("openstack"), data=data)
        decision = judged(scene)
        assert (decision.verdict.reason, decision.do) == ("WaitingForClientCertificate", ())
        assert lacking in decision.verdict.message


def test_a_certificate_that_somebody_has_changed_is_mended_and_their_other_fields_are_no_matter() -> None:
    scene = Scene(ordered())
    scene.server()
    scene.claims[children.claim(scene.want)] = scene.want.order.workflow_id
    scene.client()
    spec = {**children.certificate("openstack")["spec"], "revisionHistoryLimit": 1, "renewBefore": "720h0m0s"}
    scene.put(children.certificate("openstack"), spec=spec)
    assert judged(scene).verdict.status
    scene.put(children.certificate("openstack"), spec={**spec, "duration": "24h"})
    assert [(w.act, w.kind) for w in judged(scene).do] == [(Act.APPLY, "Certificate")]


def test_the_identity_is_not_looked_for_once_it_has_served() -> None:
    scene = Scene(ordered())
    scene.server()
    scene.client()
    scene.credential()
    del scene.objects["ServiceAccount/openstack/order-db-creds"]
    assert judged(scene).verdict.status


def credential(scene: Scene) -> Decision:
    return provision.judge_credential(scene.want, scene.seen)


def test_schema_before_generator_and_each_waited_for_by_name() -> None:
    scene = Scene(ordered())
    decision = credential(scene)
    assert [(w.act, w.kind) for w in decision.do] == [(Act.APPLY, "Database")]
    scene.put(children.database(scene.want), {"conditions": [{"type": "Ready", "status": "False", "reason": "Failed", "message": "no"}]})  # noqa: E501  # fmt: skip
    decision = credential(scene)
    assert (decision.verdict.reason, decision.do) == ("WaitingForDatabase", ())
    assert "(Failed: no)" in decision.verdict.message
    scene.put(children.database(scene.want), READY)
    for kind in ("VaultDynamicSecret", "ExternalSecret"):
        decision = credential(scene)
        assert [(w.act, w.kind) for w in decision.do] == [(Act.APPLY, kind)]
        assert decision.verdict.reason == "WaitingForCredentials"
        body = children.generator(scene.want) if kind == "VaultDynamicSecret" else children.external_secret(scene.want)
        scene.put(body)
    decision = credential(scene)
    assert decision.verdict.reason == "WaitingForCredentials"
    assert f"database/mariadb/creds/{scene.want.role_name}" in decision.verdict.message
    assert decision.fields == {"roleName": scene.want.role_name}


@pytest.mark.row("M17")
@pytest.mark.parametrize("username", ["", "print", "root"])
def test_only_a_user_of_the_engine_counts(username: str) -> None:
    scene = Scene(ordered())
    scene.credential(username)
    decision = credential(scene)
    assert decision.verdict.reason == "WaitingForCredentials"
    scene.credential()
    decision = credential(scene)
    assert decision.verdict.status
    assert decision.fields == {"roleName": scene.want.role_name, "databaseName": "reports_db"}
    assert provision.stand_in("username", b"v-kubernetes", "p") == "v-p"
    assert provision.stand_in("username", b"root", "p") == provision.stand_in("password", b"v-x", "p") == "p"


@pytest.mark.row("M16")
def test_what_says_everything_that_is_wanted_is_not_applied_again() -> None:
    scene = Scene(ordered())
    scene.credential()
    grown = children.external_secret(scene.want)
    grown["spec"]["target"] |= {"deletionPolicy": "Retain"}
    grown["spec"]["target"]["template"] |= {"engineVersion": "v2", "mergePolicy": "Replace"}
    grown["metadata"]["annotations"] = {"force-sync": "1"}
    scene.put(grown, READY)
    assert credential(scene).do == ()
    grown["spec"]["refreshInterval"] = "24h0m0s"  # as it is when External Secrets, or the reference, wrote it back
    scene.put(grown, READY)
    assert credential(scene).do == ()
    grown["spec"]["refreshInterval"] = "12h"
    scene.put(grown, READY)
    assert [(write.act, write.kind) for write in credential(scene).do] == [(Act.APPLY, "ExternalSecret")]


@pytest.mark.row("M15")
def test_a_strangers_database_is_refused_and_a_policy_edit_is_applied() -> None:
    scene = Scene(ordered())
    scene.put(children.database(scene.want), READY, metadata={"labels": {}})
    decision = credential(scene)
    assert (decision.verdict.reason, decision.verdict.again, decision.do) == ("DatabaseCollision", 600, ())
    scene = Scene(ordered())
    scene.credential()
    scene.want = ordered(deletionPolicy="Delete")
    (write,) = credential(scene).do
    assert (write.kind, write.body["spec"]["cleanupPolicy"]) == ("Database", "Delete")


# -- delivery ----------------------------------------------------------------------------------------------------------


@pytest.mark.row("M19")
@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [
        ("db.example.org:3307", "db.example.org", 3307),
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("[2001:db8::1]:65535", "2001:db8::1", 65535),
    ],
)
def test_a_published_endpoint_is_split(endpoint: str, host: str, port: int) -> None:
    assert delivery.split(endpoint) == delivery.Address(host=host, port=port)


@pytest.mark.row("M19")
@pytest.mark.parametrize(
    "endpoint",
    [
        "db",
        "db:",
        ":3306",
        "db:0",
        "db:65536",
        "db:x",
        "db:+1",
        "db: 1",
        "2001:db8::1:3306",
        "[db]:1",
        "[]:1",
        "a/b:1",
        "db:٣",
    ],
)
def test_what_is_no_endpoint(endpoint: str) -> None:
    assert delivery.split(endpoint) is None


@pytest.mark.row("M19")
def test_the_address_is_the_service_on_keystones_cluster_and_the_published_one_elsewhere() -> None:
    inside = delivery.Address(host="mariadb.openstack.svc", port=3306)
    assert delivery.address(ordered()) == inside
    placed = plane(services={"keystone": {"targetClusterRef": {"name": "edge-1"}, "namespace": {"name": "ks"}}})
    at_keystone = delivery.address(ordered(order(cluster="edge-1"), placed))
    assert at_keystone == delivery.Address(host="mariadb.ks.svc", port=3306)
    for want, word in ((ordered(of=placed), "the management cluster"), (ordered(order(cluster="edge-2")), "edge-2")):
        refused = delivery.address(want)
        assert isinstance(refused, Decision)
        assert (refused.verdict.reason, refused.verdict.again) == ("DatabaseNotPublished", 600)
        for each in (word, "publishedDatabaseEndpoint", ".svc:3306", "openstack/cp"):
            assert each in refused.verdict.message
    database = {"clusterRef": {"name": "mariadb"}}
    wrong = plane(infrastructure={"database": database, "publishedDatabaseEndpoint": "db"})
    refused = delivery.address(ordered(order(cluster="edge-2"), wrong))
    assert isinstance(refused, Decision)
    assert (refused.verdict.reason, refused.verdict.again) == ("DeliveryError", 600)


TO = delivery.Address(host="h", port=1)


def parcel(want: Ordered, **more: Any) -> delivery.Parcel:
    issued = {"username": "v-1", "password": "p1"}
    meta = {"name": "c", "namespace": "openstack"}
    wanted = {"host": "h", "port": "1", "database": "d", **issued}
    live = KorcObject.model_validate({"metadata": children.delivered(want)["metadata"], "data": wanted})
    base: dict[str, Any] = {
        "credential": KorcObject.model_validate({"metadata": meta, "data": issued}),
        "refreshed": "2026-01-01T00:00:00Z",
        "live": live,
        "ours": frozenset(wanted),
        "wanted": wanted,
    }
    return delivery.Parcel(**(base | more))


def test_what_is_delivered_is_said_in_status() -> None:
    want = ordered()
    decision = delivery.judge_delivery(want, TO, parcel(want))
    assert (decision.verdict.reason, decision.verdict.status, decision.do) == ("Delivered", True, ())
    assert decision.fields == {
        "host": "h",
        "port": 1,
        "credentialsRefreshedAt": "2026-01-01T00:00:00Z",
        "secretName": "reports-db-credentials",
        "secretKeys": ["host", "port", "database", "username", "password"],
    }


@pytest.mark.row("M22")
def test_what_differs_is_written_and_a_strangers_is_not() -> None:
    want = ordered()
    right = parcel(want)
    assert right.live is not None
    edited = right.live.model_copy(update={"data": {**right.live.data, "password": "other"}})
    for live in (None, edited):
        decision = delivery.judge_delivery(want, TO, parcel(want, live=live))
        assert (decision.verdict.reason, len(decision.do)) == ("WaitingForCredentials", 1)
    more = right.live.model_copy(update={"data": {**right.live.data, "theirs": "kept"}})
    assert delivery.judge_delivery(want, TO, parcel(want, live=more)).verdict.status
    theirs = KorcObject.model_validate(
        {"metadata": {"name": "reports-db-credentials", "labels": right.live.metadata.labels}}
    )
    decision = delivery.judge_delivery(want, TO, parcel(want, live=theirs))
    assert (decision.verdict.reason, decision.verdict.again, decision.do) == ("DeliveryRefused", 600, ())


@pytest.mark.row("M21")
def test_an_authority_is_delivered_under_tls_and_dropped_without_it() -> None:
    want = ordered()
    missing = delivery.Ca(where="Secret openstack/ca")
    decision = delivery.judge_delivery(want, TO, parcel(want, ca=missing))
    assert (decision.verdict.reason, decision.do) == ("WaitingForCABundle", ())
    there = missing.model_copy(update={"value": "ca"})
    right = parcel(want)
    with_ca = parcel(want, ca=there, wanted={**right.wanted, "ca.crt": "ca"})
    assert len(delivery.judge_delivery(want, TO, with_ca).do) == 1
    assert right.live is not None
    held = right.live.model_copy(update={"data": {**right.live.data, "ca.crt": "ca"}})
    ours = right.ours | {"ca.crt"}
    decision = delivery.judge_delivery(want, TO, with_ca.model_copy(update={"live": held, "ours": ours}))
    assert decision.fields["secretKeys"][-1] == "ca.crt"
    # Off again: ours goes; one that somebody else has put there stays.
    assert len(delivery.judge_delivery(want, TO, parcel(want, live=held, ours=ours)).do) == 1
    assert delivery.judge_delivery(want, TO, parcel(want, live=held)).verdict.status


@pytest.mark.parametrize(
    ("tls", "name"),
    [
        ({"mode": "verify-full", "caBundleSecretRef": {"name": "ca"}}, "ca"),
        ({"mode": "require"}, ""),
        ({"mode": "disabled", "caBundleSecretRef": {"name": "ca"}}, None),
        ({"caBundleSecretRef": {"name": "ca"}}, None),
        ({}, None),
    ],
)
def test_when_there_is_an_authority_to_deliver(tls: Object, name: str | None) -> None:
    assert delivery.ca_secret(plane(infrastructure={"database": {"clusterRef": {"name": "m"}, "tls": tls}})) == name


def test_a_skipped_delivery_looks_again_when_the_schema_does() -> None:
    verdict = Verdict(type="DatabaseReady", status=False, reason="DatabaseNameReserved", message="m", again=600)
    skipped = delivery.skipped(verdict)
    assert (skipped.type, skipped.reason, skipped.again) == ("DeliveryReady", "WaitingForCredentials", 600)
    assert "DatabaseNameReserved" in skipped.message


# -- removal -----------------------------------------------------------------------------------------------------------


def teardown(scene: Scene, policy: str = "") -> Removing:
    spec = MariaDBDatabaseSpec.model_validate({"controlPlaneRef": {"name": "cp"}, "deletionPolicy": policy})
    marks = children.marks(scene.want.order, scene.want.uid)
    return removal.judge_teardown(spec, marks, scene.want.plane, scene.seen)


@pytest.mark.row("M23", "M24")
def test_deletes_come_in_order_and_the_policy_in_force_before_the_database() -> None:
    scene = Scene(ordered())
    scene.credential()
    scene.put(children.delivered(scene.want))
    del scene.objects[
        f"Secret/openstack/{children.credentials_name(scene.want.order)}"
    ]  # External Secrets' own; it goes with it

    def acts(removing: Removing) -> list[str]:
        return [f"{write.act.name} {write.kind}" for write in removing.do]

    deletes = ["DELETE ExternalSecret", "DELETE VaultDynamicSecret", "DELETE Database", "DELETE Secret"]
    assert acts(teardown(scene)) == deletes
    late = teardown(scene, "Delete")
    assert acts(late) == [*deletes[:2], "PATCH Database", *deletes[2:]]
    assert late.do[2].body == {"spec": {"cleanupPolicy": "Delete"}}
    assert len(late.left) == 4


def test_what_is_left_is_said_in_the_words_of_whoever_serves_it() -> None:
    scene = Scene(ordered())
    scene.credential()
    ready = {"type": "Ready", "status": "False", "reason": "Failed", "message": "no connection"}
    leaving = {"deletionTimestamp": NOW.isoformat(), "finalizers": ["f"]}
    for body in (children.database(scene.want), children.external_secret(scene.want)):
        scene.put(body, {"conditions": [ready]}, metadata={**body["metadata"], **leaving})
    left = {each.partition(" ")[0]: each for each in teardown(scene).left}
    assert "(held by f; mariadb-operator: no connection)" in left["Database"]
    assert "(held by f; External Secrets: no connection)" in left["ExternalSecret"]


def test_what_is_not_ours_stays() -> None:
    scene = Scene(ordered())
    labels = children.database(scene.want)["metadata"]["labels"]
    scene.put({"kind": "Database", "metadata": {"name": "theirs", "namespace": "openstack", "labels": labels}})
    delivered = children.delivered(scene.want)
    scene.put({**delivered, "metadata": {**delivered["metadata"], "ownerReferences": []}})
    assert teardown(scene, "Delete") == Removing()


def test_fingerprints_tell_values_apart_and_empty_ones() -> None:
    assert fingerprint(b"") == ""
    assert fingerprint(b"a") != fingerprint(b"b")
