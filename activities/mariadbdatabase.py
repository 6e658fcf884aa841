"""MariaDBDatabase's steps: provision_database, and by their own files deliver_database and remove_database.

What is seen is judged in `workflows.mariadbdatabase`. OpenBao's role is between the two halves of that judgement.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from temporalio import activity

from activities.cluster import MARIADB_DATABASE, SECRET
from activities.clusters import BadKubeconfig, Clusters, Unregistered
from activities.errors import at_boundary, knowing
from activities.instrument import instrument
from activities.mariadbdelivery import Delivery
from activities.mariadbremoval import Withdrawal
from activities.openbao import OpenBao
from activities.ordered import Given, bao_of, complete, unavailable, until, values
from activities.orders import Looked
from activities.pen import Pen
from activities.projection import Projection
from workflows.api.controlplane import ControlPlane
from workflows.mariadbdatabase import children, delivery, gates, provision, reasons
from workflows.mariadbdatabase.children import CLIENT_KEYS
from workflows.mariadbdatabase.schema import same_role
from workflows.scaffold import gates as shared
from workflows.scaffold.child import Seen
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import OrderSeen, Removal, Task
from workflows.scaffold.verdict import Decision, Outcome, Verdict

_log = logging.getLogger(__name__)

_PROVISION, _DELIVERY = "MariaDBDatabaseProvision", "MariaDBDatabaseDelivery"


class MariaDBDatabases:
    """The kind's activities, and what the shared ones need to know of it."""

    kind = MARIADB_DATABASE
    finalizer = children.FINALIZER
    finalizer_first = False
    condition_types: tuple[str, ...] = reasons.CONDITIONS
    blocks: tuple[str, ...] = (_PROVISION, _DELIVERY)

    def __init__(self, clusters: Clusters, openbao: OpenBao) -> None:
        self._clusters = clusters
        self._openbao = openbao
        self._delivery = Delivery(clusters)
        self._withdrawal = Withdrawal(clusters, openbao)

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
            return (await self._delivery.made(given, given.pen(), None)).outcome

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
                await self._withdrawal.fail_open(given, pen)
                return Removal()
            return await self._withdrawal.made(given, pen)

    async def provide(self, task: Task, pen: Pen) -> Outcome | None:
        """Both steps at once, for an order that is new."""
        given = await self._given(task)
        with instrument(_PROVISION):
            decision, _ = await self._provisioned(given, pen, ask_openbao=True)
        verdict = decision.verdict
        if not verdict.status:
            return Outcome(verdicts=(verdict, delivery.skipped(verdict)), fields=decision.fields)
        with instrument(_DELIVERY):
            delivered = await self._delivery.made(given, pen, None)
        return Outcome(verdicts=(verdict, delivered.verdict), fields={**decision.fields, **delivered.fields})

    async def look(self, task: Task) -> Looked:
        """How the order stands. For one that is Ready this is the whole pass, so OpenBao is asked too; an order that
        waits waits on something else, and would log in every ten seconds."""
        given = await self._given(task)
        decision, seen = await self._provisioned(given, None, ask_openbao=given.task.order.was_ready)
        verdict, fields, do = decision.verdict, decision.fields, decision.do
        if not verdict.status:
            outcome = Outcome(verdicts=(verdict, delivery.skipped(verdict)), fields=fields)
            return Looked(outcome=outcome, due=bool(do))
        delivered = await self._delivery.made(given, None, seen)
        outcome = Outcome(verdicts=(verdict, delivered.verdict), fields={**fields, **delivered.fields})
        return Looked(outcome=outcome, due=bool(do or delivered.do))

    async def look_removal(self, task: Task) -> Removal:
        if task.plane is None or shared.cluster_name(task.ref) or shared.order_name(task.ref):
            return Removal()
        return await self._withdrawal.look(await self._given(task))

    async def _given(self, task: Task) -> Given:
        begun = time.monotonic()
        return Given(task, self._clusters.management, await self._clusters.get(task.ref.cluster), begun)

    # -- schema and credential ------------------------------------------------------------------------------------

    async def _provisioned(self, given: Given, pen: Pen | None, *, ask_openbao: bool) -> tuple[Decision, Seen]:
        """How schema and credential stand, after whatever the pen may write."""
        try:
            keystone = await self._clusters.get(given.plane.keystone_cluster)
        except (Unregistered, BadKubeconfig) as error:
            return unavailable(reasons.DATABASE_READY, given.plane, error), Seen(now=datetime.now(UTC))
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
            with knowing(roleName=want.role_name):
                decision = await ask(lambda seen: provision.judge_credential(want, seen))
            return decision, projection.seen

    async def _read(self, given: Given, projection: Projection) -> tuple[Given, dict[str, bytes]]:
        """Reads what is beside the plane, and where OpenBao is; answers that, and the client certificate."""
        namespace, want = given.plane.namespace, given.want
        client = children.client_secret(namespace)["metadata"]
        raw, bao, _ = await asyncio.gather(
            given.management.get(SECRET, namespace, client["name"]),
            bao_of(given.management, given.plane.store_ref, namespace),
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
            return replace(given, bao=bao), values(raw)
        if not complete(raw):
            projection.follow_secret(namespace, client["name"])
        if not provision.issued(want, projection.seen):
            projection.follow_secret(namespace, children.credentials_name(want.order))
        return replace(given, bao=bao), values(raw)

    async def _has_role(self, given: Given, pen: Pen | None, client: Mapping[str, bytes], *, ask_openbao: bool) -> bool:
        """Sees to the order's role in OpenBao; False when it is to be written and nobody may."""
        want = given.want
        if not ask_openbao or (pen is None and not given.task.order.was_ready):
            return given.task.order.status.get("roleName") == want.role_name
        if not all(client.get(key) for key in CLIENT_KEYS):  # it was issued while this step waited
            client = values(await given.management.get(SECRET, want.plane.namespace, children.CLIENT))
        async with self._openbao.session(given.bao, client, until(pen)) as bao:
            stored = await bao.read_role(want.role_name)
            if stored is not None and same_role(stored, want.role):
                return True
            if pen is None:
                return False
            await pen.lift()
            with knowing(roleName=want.role_name):  # an answer that is lost may have been a yes
                await bao.write_role(want.role_name, want.role)
        _log.info("role written", extra={**given.log, "role": want.role_name, "repaired": stored is not None})
        return True

    def _say_taken(self, given: Given, decision: Decision, seen: Seen, pen: Pen | None) -> None:
        """Who has the schema is for the plane's operator: in the log, and nowhere that an order's owner reads."""
        if pen is not None and decision.verdict.reason == reasons.COLLISION:
            taken = provision.taken_by(given.want, seen)
            more = {**given.log, "takenBy": taken, "schema": given.want.schema_name}
            _log.info("the database an order names is taken on the shared MariaDB", extra=more)
