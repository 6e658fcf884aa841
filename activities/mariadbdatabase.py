"""MariaDBDatabase's steps: provision_database, deliver_database, remove_database; judged in `workflows`.

Three clusters may be in it: the order's, the management cluster, and Keystone's, with the MariaDB. A credential is read
and written inside one step and leaves it only into the Secret beside the order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from temporalio import activity

from activities import claims
from activities.cluster import (
    CLUSTER_SECRET_STORE,
    EXTERNAL_SECRET,
    FIELD_MANAGER,
    MARIADB_DATABASE,
    SECRET,
    SECRET_STORE,
    Cluster,
    Object,
)
from activities.clusters import BadKubeconfig, Clusters, Unregistered
from activities.errors import ClusterError, OpenBaoError, at_boundary
from activities.instrument import instrument
from activities.openbao import OpenBao
from activities.orders import Looked
from activities.pen import Pen
from activities.projection import Projection, apply_onto, child_of
from workflows.api.controlplane import ControlPlane
from workflows.api.korc import KorcObject
from workflows.api.mariadbdatabase import Bao, MariaDBDatabaseSpec, Store
from workflows.mariadbdatabase import children, delivery, gates, provision, reasons, removal
from workflows.mariadbdatabase.children import CLIENT_KEYS, Ordered
from workflows.mariadbdatabase.schema import same_role
from workflows.scaffold import gates as shared
from workflows.scaffold.child import Seen, fingerprint
from workflows.scaffold.order import OrderRef
from workflows.scaffold.removal import Removing
from workflows.scaffold.steps import START_TO_CLOSE, STEP_DEADLINE, OrderSeen, Removal, Task
from workflows.scaffold.verdict import WAIT_SECONDS, Decision, Outcome, Verdict

_log = logging.getLogger(__name__)

_PROVISION, _DELIVERY = "MariaDBDatabaseProvision", "MariaDBDatabaseDelivery"
_REQUEST_SECONDS = (START_TO_CLOSE - STEP_DEADLINE).total_seconds()
"""How long a request may last that a step has begun before its deadline."""


@dataclass(frozen=True)
class Given:
    """One step's task, in the words of the kind, and the clusters it is about."""

    task: Task
    management: Cluster
    home: Cluster
    bao: Bao = field(default_factory=Bao)

    @property
    def plane(self) -> ControlPlane:
        if self.task.plane is None:
            raise ValueError("a database is provisioned only past the gate that reads its plane")
        return self.task.plane

    @property
    def spec(self) -> MariaDBDatabaseSpec:
        return MariaDBDatabaseSpec.model_validate(self.task.order.spec)

    @property
    def want(self) -> Ordered:
        return Ordered(order=self.task.ref, uid=self.task.order.uid, spec=self.spec, plane=self.plane, bao=self.bao)

    @property
    def log(self) -> dict[str, str]:
        return {"order": self.task.ref.workflow_id}

    @property
    def is_ready(self) -> bool:
        """Whether the order was Ready, as it is now, when the pass began."""
        return any(
            each.get("type") == "Ready"
            and each.get("status") == "True"
            and each.get("observedGeneration") == self.task.order.generation
            for each in self.task.order.status.get("conditions") or []
        )

    def pen(self, *, deleting: bool = False) -> Pen | None:
        """The right to write, from now on; a paused order gives none."""
        if self.task.order.paused:
            return None
        ref, uid = self.task.ref, self.task.order.uid
        return Pen(self.home, MARIADB_DATABASE, ref, uid, deleting=deleting, begun=time.monotonic())

    def projection(self, pen: Pen | None, elsewhere: Mapping[str, Cluster]) -> Projection:
        marks = children.marks(self.task.ref, self.task.order.uid)
        return Projection(self.management, self.task.ref, marks, pen, elsewhere=elsewhere, stands_for=stands_for)


class MariaDBDatabases:
    """The kind's activities, and what the shared ones need to know of it."""

    kind = MARIADB_DATABASE
    finalizer = children.FINALIZER
    finalizer_first = False
    blocks: tuple[str, ...] = (_PROVISION, _DELIVERY)

    def __init__(self, clusters: Clusters, openbao: OpenBao) -> None:
        self._clusters = clusters
        self._openbao = openbao

    def consent(self, ref: OrderRef, plane_key: str, plane: ControlPlane | None) -> shared.Gate | None:
        return shared.assignment(ref, plane_key, plane)

    def gate(self, plane: ControlPlane) -> shared.Gate | None:
        return gates.dynamic(plane)

    def refused(self, order: OrderSeen, gate: shared.Gate) -> tuple[Verdict, ...]:
        return gates.refused(gate)

    @activity.defn(name="provision_database")
    async def provision_database(self, task: Task) -> Outcome:
        with at_boundary(), instrument(_PROVISION):
            given = await self._given(task)
            decision, _ = await self._provisioned(given, given.pen(), ask_openbao=True)
            return decision.outcome

    @activity.defn(name="deliver_database")
    async def deliver_database(self, task: Task) -> Outcome:
        with at_boundary(), instrument(_DELIVERY):
            given = await self._given(task)
            return (await self._delivered(given, given.pen(), None)).outcome

    @activity.defn(name="remove_database")
    async def remove_database(self, task: Task) -> Removal:
        with at_boundary():
            if shared.cluster_name(task.ref) or shared.order_name(task.ref):
                return Removal()  # no child can carry such a label (contracts 14.8)
            given = await self._given(task)
            pen = given.pen(deleting=True)
            if pen is None:
                return Removal(left=(task.order.paused,))
            if task.plane is None:
                await self._fail_open(given, pen)
                return Removal()
            return await self._removed(given, pen)

    async def look(self, task: Task) -> Looked:
        """How the order stands. For one that is Ready this is the whole pass, so OpenBao is asked too; an order that
        waits waits on something else, and would log in every ten seconds."""
        given = await self._given(task)
        decision, seen = await self._provisioned(given, None, ask_openbao=given.is_ready)
        verdict, fields, do = decision.verdict, decision.fields, decision.do
        if not verdict.status:
            outcome = Outcome(verdicts=(verdict, delivery.skipped(verdict)), fields=fields)
            return Looked(outcome=outcome, due=bool(do))
        delivered = await self._delivered(given, None, seen)
        outcome = Outcome(verdicts=(verdict, delivered.verdict), fields={**fields, **delivered.fields})
        return Looked(outcome=outcome, due=bool(do or delivered.do))

    async def look_removal(self, task: Task) -> Removal:
        if task.plane is None or shared.cluster_name(task.ref) or shared.order_name(task.ref):
            return Removal()
        given = await self._given(task)
        async with given.projection(None, await self._around(given)) as projection:
            await asyncio.gather(
                projection.list(given.plane.namespace, removal.BESIDE_THE_PLANE),
                projection.list(given.plane.keystone_namespace, (removal.DATABASE,)),
                projection.get(children.delivered(given.want)),
            )
            removing = await projection.look(lambda seen: self._judged(given, seen))
        return Removal(left=("a write is due",) if removing.do else removing.left)

    async def _given(self, task: Task) -> Given:
        return Given(task, self._clusters.management, await self._clusters.get(task.ref.cluster))

    # -- schema and credential ------------------------------------------------------------------------------------

    async def _provisioned(self, given: Given, pen: Pen | None, *, ask_openbao: bool) -> tuple[Decision, Seen]:
        """How schema and credential stand, after whatever the pen may write."""
        try:
            keystone = await self._clusters.get(given.plane.keystone_cluster)
        except (Unregistered, BadKubeconfig) as error:
            return _unavailable(reasons.DATABASE_READY, given.plane, error), Seen(now=datetime.now(UTC))
        elsewhere = {"MariaDB": keystone, "Database": keystone}
        async with given.projection(pen, elsewhere) as projection:
            await asyncio.gather(
                projection.get(children.mariadb(given.want)),
                projection.list(given.plane.keystone_namespace, ("Database",), whosever=True),
            )
            if (refusal := provision.judge_name(given.want, projection.seen)) is not None:
                self._say_taken(given, refusal, projection.seen, pen)
                return refusal, projection.seen
            given, client = await self._read(given, projection)
            want = given.want
            ask = projection.drive if pen is not None else projection.look
            ground = await ask(lambda seen: provision.judge_ground(want, seen))
            if not ground.verdict.status:
                self._say_taken(given, ground, projection.seen, pen)
                return ground, projection.seen
            if not await self._has_role(given, pen, client, ask_openbao=ask_openbao):
                return provision.role_due(want), projection.seen
            decision = await ask(lambda seen: provision.judge_credential(want, seen))
            return decision, projection.seen

    async def _read(self, given: Given, projection: Projection) -> tuple[Given, dict[str, bytes]]:
        """Reads what is beside the plane, and where OpenBao is; answers that, and the client certificate."""
        namespace, want = given.plane.namespace, given.want
        client = children.client_secret(namespace)["metadata"]
        raw, bao, _ = await asyncio.gather(
            given.management.get(SECRET, namespace, client["name"]),
            self._bao(given.plane.store_ref, namespace),
            projection.get(
                children.certificate(namespace),
                children.generator(want),
                children.external_secret(want),
                children.credentials(want),
            ),
        )
        projection.take("Secret", raw)
        if not provision.fetched(want, projection.seen):
            await projection.get(children.service_account(namespace))
        if given.task.order.paused:
            return replace(given, bao=bao), _values(raw)
        if not _complete(raw):
            projection.follow_one("Secret", namespace, client["name"])
        if not provision.issued(want, projection.seen):
            projection.follow_one("Secret", namespace, children.credentials_name(want.order))
        return replace(given, bao=bao), _values(raw)

    async def _has_role(self, given: Given, pen: Pen | None, client: Mapping[str, bytes], *, ask_openbao: bool) -> bool:
        """Sees to the order's role in OpenBao; False when it is to be written and nobody may."""
        want = given.want
        if not ask_openbao or (pen is None and not given.is_ready):
            return given.task.order.status.get("roleName") == want.role_name
        if not all(client.get(key) for key in CLIENT_KEYS):  # it was issued while this step waited
            client = _values(await given.management.get(SECRET, want.plane.namespace, children.CLIENT))
        async with self._openbao.session(given.bao, client, _until(pen)) as bao:
            stored = await bao.read_role(want.role_name)
            if stored is not None and same_role(stored, want.role):
                return True
            if pen is None:
                return False
            await pen.lift()
            await bao.write_role(want.role_name, want.role)
        _log.info("role written", extra={**given.log, "role": want.role_name, "repaired": stored is not None})
        return True

    def _say_taken(self, given: Given, decision: Decision, seen: Seen, pen: Pen | None) -> None:
        """Who has the schema is for the plane's operator: in the log, and nowhere that an order's owner reads."""
        if pen is not None and decision.verdict.reason == reasons.COLLISION:
            taken = provision.taken_by(given.want, seen)
            more = {**given.log, "takenBy": taken, "schema": given.want.schema_name}
            _log.info("the database an order names is taken on the shared MariaDB", extra=more)

    async def _bao(self, ref: Mapping[str, str], namespace: str) -> Bao:
        """Where OpenBao is, by the plane's store; one that is not there leaves it at the reference's default."""
        kind = {"SecretStore": SECRET_STORE, "ClusterSecretStore": CLUSTER_SECRET_STORE}.get(ref["kind"])
        if kind is None:
            return Bao()
        raw = await self._clusters.management.get(kind, namespace if kind is SECRET_STORE else None, ref["name"])
        return Bao.of(Store.model_validate(raw) if raw else None)

    # -- delivery -------------------------------------------------------------------------------------------------

    async def _delivered(self, given: Given, pen: Pen | None, known: Seen | None) -> Decision:
        """How the Secret beside the order stands, after the one write that the pen may make.

        known  what has just been seen of the credential, by what stands for it: enough to look
        """
        want = given.want
        to = delivery.address(want)
        if isinstance(to, Decision):
            return to
        try:
            ca_raw, where = await self._ca(given)
        except (Unregistered, BadKubeconfig) as error:
            return _unavailable(reasons.DELIVERY_READY, given.plane, error)
        live, (credential, refreshed, values) = await asyncio.gather(
            given.home.get(SECRET, given.task.ref.namespace, children.delivered_name(given.task.ref)),
            self._credential(given, known),
        )
        values = {
            "host": to.host.encode(),
            "port": str(to.port).encode(),
            "database": want.schema_name.encode(),
        } | values
        ca = None
        if where is not None:
            bundle = _values(ca_raw).get(delivery.CA, b"")
            ca = delivery.Ca(where=where, value=fingerprint(bundle))
            values[delivery.CA] = bundle
        wanted = {key: stands_for(key, value) for key, value in values.items()}
        if credential is not None:
            wanted |= {key: credential.data.get(key, "") for key in ("username", "password")}
        parcel = delivery.Parcel(
            credential=credential, refreshed=refreshed, ca=ca, live=_child(live), ours=_ours(live), wanted=wanted
        )
        decision = delivery.judge_delivery(want, to, parcel)
        if not decision.do or pen is None:
            return decision
        await pen.lift()
        data = {key: b64encode(value).decode() for key, value in values.items()}
        uid = live["metadata"]["uid"] if live else None
        after = await apply_onto(given.home, SECRET, {**children.delivered(want), "data": data}, uid)
        self._say_refreshed(given, _child(live), parcel, values["username"].decode(errors="replace"))
        parcel = parcel.model_copy(update={"live": _child(after), "ours": _ours(after)})
        return delivery.judge_delivery(want, to, parcel)

    async def _credential(self, given: Given, known: Seen | None) -> tuple[KorcObject | None, str, dict[str, bytes]]:
        """The credential that External Secrets wrote, when it did, and unless it was seen already its values."""
        want = given.want
        if known is not None:
            external = known.of(children.external_secret(want))
            return known.of(children.credentials(want)), external.status.refresh_time if external else "", {}
        secret, fetched = await asyncio.gather(
            given.management.get(SECRET, want.plane.namespace, children.credentials_name(want.order)),
            given.management.get(EXTERNAL_SECRET, want.plane.namespace, children.credentials_name(want.order)),
        )
        refreshed = (((fetched or {}).get("status")) or {}).get("refreshTime") or ""
        values = {key: value for key, value in _values(secret).items() if key in ("username", "password")}
        return _child(secret), refreshed, values

    async def _ca(self, given: Given) -> tuple[Object | None, str | None]:
        """The Secret with the database's authority and where it should be; without TLS neither."""
        name, namespace = delivery.ca_secret(given.plane), given.plane.keystone_namespace
        if name is None:
            return None, None
        if not name:
            return None, f"no Secret (caBundleSecretRef of ControlPlane {given.plane.key} names none)"
        keystone = await self._clusters.get(given.plane.keystone_cluster)
        return await keystone.get(SECRET, namespace, name), f"Secret {namespace}/{name}"

    def _say_refreshed(self, given: Given, before: KorcObject | None, parcel: delivery.Parcel, username: str) -> None:
        """Once for each user that follows another: by this line the cadence of the refreshes can be seen."""
        old, new = (before.data.get("username") if before else ""), parcel.wanted["username"]
        if old and old != new:
            more = {**given.log, "username": username, "refreshTime": parcel.refreshed}
            _log.info("delivered a refreshed database credential", extra=more)

    # -- removal --------------------------------------------------------------------------------------------------

    async def _removed(self, given: Given, pen: Pen) -> Removal:
        """Leases and role, then the children in order; what was issued meanwhile is revoked before the end."""
        async with given.projection(pen, await self._around(given)) as projection:
            await asyncio.gather(
                projection.follow(given.plane.namespace, removal.BESIDE_THE_PLANE),
                projection.follow(given.plane.keystone_namespace, (removal.DATABASE,)),
                projection.get(children.delivered(given.want)),
            )
            begins = bool(self._judged(given, projection.seen).do)
            bao = await self._bao(given.plane.store_ref, given.plane.namespace)
            await self._withdraw(given, bao, pen, aloud=begins)
            removing = await projection.drive(lambda seen: self._judged(given, seen))
        if removing.left:
            return Removal(left=removing.left)
        if begins:
            await self._withdraw(given, bao, pen, aloud=False)
        await self._drop_claims(given, pen)
        return Removal()

    def _judged(self, given: Given, seen: Seen, kinds: tuple[str, ...] = removal.KINDS) -> Removing:
        marks = children.marks(given.task.ref, given.task.order.uid)
        return removal.judge_teardown(given.spec, marks, given.task.plane, seen, kinds)

    async def _around(self, given: Given) -> dict[str, Cluster]:
        """Where the kinds are that are not on the management cluster."""
        cluster = given.task.plane.keystone_cluster if given.task.plane else ""
        try:
            keystone = await self._clusters.get(cluster)
        except (Unregistered, BadKubeconfig) as error:
            raise ClusterError(f"reaching Keystone's cluster {cluster}", 0, "Unregistered", str(error)) from None
        return {removal.DATABASE: keystone, removal.DELIVERED: given.home}

    async def _withdraw(self, given: Given, bao: Bao, pen: Pen, *, aloud: bool) -> None:
        """Revokes all that the role has issued, which drops its SQL users, and only then deletes the role (D10)."""
        namespace = given.task.order.plane_namespace
        role = children.role_name(given.task.ref, namespace)
        client = await given.management.get(SECRET, namespace, children.CLIENT)
        if not _complete(client):
            if aloud:
                text = f'the OpenBao client certificate is gone; leaving database role "{role}" to its TTLs'
                _log.warning(text, extra=given.log)
            return
        try:
            async with self._openbao.session(bao, _values(client), _until(pen)) as session:
                await pen.lift()
                await session.revoke(role)
                await pen.lift()
                await session.delete_role(role)
        except OpenBaoError as error:
            text = f'removing OpenBao database role "{role}": {error}'
            raise OpenBaoError(text, error.status, passing=error.passing) from None

    async def _fail_open(self, given: Given, pen: Pen) -> None:
        """The plane is gone, and where its parts were can only be supposed: all is tried once, and gates nothing."""
        failed: list[str] = []
        namespace = given.task.order.plane_namespace

        async def attempt(doing: Awaitable[None]) -> None:
            try:
                await doing
            except (ClusterError, OpenBaoError) as error:
                failed.append(str(error))

        async def withdraw() -> None:
            bao = await self._bao({"kind": "ClusterSecretStore", "name": "openbao-cluster-store"}, namespace)
            await self._withdraw(given, bao, pen, aloud=True)

        async def sweep(kind: str) -> None:
            async with given.projection(pen, {removal.DELIVERED: given.home}) as projection:
                if kind == removal.DELIVERED:
                    name, where = children.delivered_name(given.task.ref), given.task.ref.namespace
                    await projection.get({"kind": kind, "metadata": {"name": name, "namespace": where}})
                else:
                    await projection.list(namespace, (kind,))
                await projection.drive(lambda seen: self._judged(given, seen, (kind,)))

        await pen.lift()
        await attempt(withdraw())
        for kind in removal.KINDS:
            await attempt(sweep(kind))
        await attempt(self._drop_claims(given, pen))
        left = f": {'; '.join(failed)}" if failed else ""
        _log.log(
            logging.ERROR if failed else logging.WARNING,
            "the ControlPlane is gone: the children's deletes are issued, not waited for%s", left, extra=given.log,
        )  # fmt: skip

    async def _drop_claims(self, given: Given, pen: Pen) -> None:
        await pen.lift()
        labels = children.marks(given.task.ref, "").labels
        await claims.drop(given.management, given.task.order.plane_namespace, labels)


def stands_for(key: str, value: bytes) -> str:
    return provision.stand_in(key, value, fingerprint(value))


def _child(raw: Object | None) -> KorcObject | None:
    return child_of(raw, stands_for) if raw else None


def _values(secret: Object | None) -> dict[str, bytes]:
    return {key: b64decode(value) for key, value in ((secret or {}).get("data") or {}).items()}


def _complete(client: Object | None) -> bool:
    values = _values(client)
    return all(values.get(key) for key in CLIENT_KEYS)


def _ours(secret: Object | None) -> frozenset[str]:
    """The keys that our applies own, by the Secret's own record of who has set what."""
    fields = ((secret or {}).get("metadata") or {}).get("managedFields") or []
    ours = [
        (each.get("fieldsV1") or {}).get("f:data") or {}
        for each in fields
        if each.get("manager") == FIELD_MANAGER and each.get("operation") == "Apply"
    ]
    return frozenset(name.removeprefix("f:") for data in ours for name in data if name.startswith("f:"))


def _until(pen: Pen | None) -> float:
    """When the last answer to the step's requests must have come."""
    left = pen.left if pen is not None else STEP_DEADLINE.total_seconds()
    return time.monotonic() + max(left, 0) + _REQUEST_SECONDS


def _unavailable(type_: str, plane: ControlPlane, error: Exception) -> Decision:
    message = (
        f"Cluster {plane.keystone_cluster!r}, where Keystone of ControlPlane {plane.key} is, cannot be used: {error}."
    )
    reason = reasons.CLUSTER_UNAVAILABLE
    return Decision(verdict=Verdict(type=type_, status=False, reason=reason, message=message, again=WAIT_SECONDS))
