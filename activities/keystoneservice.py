"""KeystoneService's other steps: provision_catalog and remove_registration. The account's are `keystoneaccount`."""

from __future__ import annotations

import asyncio
import logging
import time

from temporalio import activity

from activities.cluster import KEYSTONE_SERVICE
from activities.clusters import Clusters
from activities.errors import ClusterError, at_boundary
from activities.instrument import instrument
from activities.keystoneaccount import BLOCK as ACCOUNT_BLOCK
from activities.keystoneaccount import Accounts
from activities.orders import Looked
from activities.pen import Pen
from activities.projection import Projection
from activities.registration import Block, Given, Judge
from workflows.api.controlplane import ControlPlane
from workflows.keystoneservice import children, gates, reasons, sweep
from workflows.keystoneservice.catalog import judge_catalog
from workflows.scaffold import gates as shared
from workflows.scaffold.child import Body
from workflows.scaffold.order import OrderRef
from workflows.scaffold.removal import judge_pushed
from workflows.scaffold.steps import RETRY, OrderSeen, Removal, Task
from workflows.scaffold.verdict import Decision, Outcome, Verdict

_log = logging.getLogger(__name__)

_BLOCK = "KeystoneServiceCatalog"
_ALL_KINDS = (*sweep.BESIDE_THE_PLANE, *sweep.BESIDE_THE_ORDER, sweep.SECRETS)


class KeystoneServices:
    """The kind's activities, and what the shared ones need to know of it."""

    kind = KEYSTONE_SERVICE
    finalizer = children.FINALIZER
    finalizer_first = True
    condition_types: tuple[str, ...] = reasons.CONDITIONS
    blocks: tuple[str, ...] = (_BLOCK, ACCOUNT_BLOCK)

    def __init__(self, clusters: Clusters) -> None:
        self._management = clusters.management
        self.accounts = Accounts(clusters.management)

    def consent(self, ref: OrderRef, plane_key: str, plane: ControlPlane | None) -> shared.Gate | None:
        return gates.consent(ref, plane_key, plane)

    def gate(self, plane: ControlPlane) -> shared.Gate | None:
        return shared.admin_credential(plane)

    def refused(self, order: OrderSeen, gate: shared.Gate) -> tuple[Verdict, ...]:
        return gates.refused(order.spec, gate)

    async def provide(self, task: Task, pen: Pen) -> Outcome | None:
        """A registration takes a second, and people look for its blocks by name."""
        return None

    @activity.defn(name="provision_catalog")
    async def provision_catalog(self, task: Task) -> Outcome:
        with at_boundary(), instrument(_BLOCK):
            given = self._given(task)
            pen = given.pen()
            async with given.projection(pen) as projection:
                judge, block = await self._read(given, projection, pen)
                decision = await given.ask(projection, judge)
                await given.settle_claims(pen, block, projection, decision)
            return decision.outcome

    @activity.defn(name="remove_registration")
    async def remove_registration(self, task: Task) -> Removal:
        with at_boundary():
            if shared.order_name(task.ref):
                return Removal()  # no child can carry such a label (contracts 14.8)
            given = self._given(task)
            pen = given.pen(deleting=True)
            if task.plane is None:
                await self._fail_open(given, pen)
                return Removal()
            async with given.projection(pen) as projection:
                await self._follow(given, projection)
                removing = await projection.drive(given.removal(_ALL_KINDS))
            if not removing.left:
                await given.drop_claims(pen)
            return Removal(left=removing.left)

    async def look(self, task: Task) -> Looked:
        given = self._given(task)
        async with given.projection() as projection:
            judge, _ = await self._read(given, projection, None)
            catalog: Decision = await projection.look(judge)
        account = await self.accounts.look(task)
        outcome = Outcome(verdicts=(catalog.verdict, account.verdict), fields={**catalog.fields, **account.fields})
        return Looked(outcome=outcome, due=bool(catalog.do or account.do))

    async def look_removal(self, task: Task) -> Removal:
        if task.plane is None or shared.order_name(task.ref):
            return Removal()
        given = self._given(task)
        async with given.projection() as projection:
            await self._list(given, projection)
            removing = await projection.look(given.removal(_ALL_KINDS))
        return Removal(left=("a write is due",) if removing.do else removing.left)

    def _given(self, task: Task) -> Given:
        return Given(task, self._management, self._management, time.monotonic())

    async def _read(self, given: Given, projection: Projection, pen: Pen | None) -> tuple[Judge, Block]:
        """Reads the catalog's children, and says how they are to be judged."""
        reg, catalog = given.reg, given.spec.catalog
        wanted, probes = list[Body](), dict[str, Body]()
        if catalog is not None:
            service = children.service(reg, catalog)
            wanted = [service, *(children.endpoint(reg, each) for each in catalog.endpoints)]
            probes = {service["metadata"]["name"]: children.service_probe(reg, catalog)}
        block = await given.read(projection, "catalog", pen, wanted, probes)
        removal = given.removal(sweep.KINDS["catalog"], block)
        return lambda seen: judge_catalog(reg, catalog, seen, removal(seen), block.replaced(seen).was), block

    # -- removal ------------------------------------------------------------------------------------------------

    async def _follow(self, given: Given, projection: Projection) -> None:
        """Reads all that can be there, and goes on hearing of it."""
        plane, *order = given.namespaces
        kinds, delivers = self._can_be(given)
        await asyncio.gather(
            projection.follow(plane, kinds),
            *(projection.follow(namespace, (sweep.SECRETS,)) for namespace in order if delivers),
            projection.follow("", (), given.delivery_objects() if delivers else ()),
        )

    async def _list(self, given: Given, projection: Projection) -> None:
        plane, *order = given.namespaces
        kinds, delivers = self._can_be(given)
        await asyncio.gather(
            projection.list(plane, kinds),
            *(projection.list(namespace, (sweep.SECRETS,)) for namespace in order if delivers),
            projection.get(*(given.delivery_objects() if delivers else ())),
        )

    def _can_be(self, given: Given) -> tuple[tuple[str, ...], bool]:
        """The kinds beside the plane that the order can have children of, and whether it can have delivered anything.

        One that was never edited has only what it declares. (The API server counts the deletion as a generation.)
        """
        spec, account = given.spec, given.spec.account
        if given.task.order.generation > 2:
            return (*sweep.BESIDE_THE_PLANE, sweep.SECRETS), True
        none = set[str]()
        none |= {"Endpoint", "Service"} if spec.catalog is None else set()
        none |= {"Domain"} if account is not None and not account.domain_name else set()
        if account is None:
            return tuple(kind for kind in sweep.KINDS["catalog"] if kind not in none), False
        return (*(kind for kind in sweep.BESIDE_THE_PLANE if kind not in none), sweep.SECRETS), True

    async def _fail_open(self, given: Given, pen: Pen | None) -> None:
        """The plane is gone and K-ORC has no credentials left: the deletes are issued, their outcome gates nothing.

        What External Secrets holds all the same, for its store has gone too, is let go of: nobody comes back for it.
        """
        try:
            async with given.projection(pen) as projection:
                await self._follow(given, projection)
                left = (await projection.drive(given.removal(_ALL_KINDS))).left
                await projection.drive(lambda seen: judge_pushed(given.marks, seen))
            await given.drop_claims(pen)
            _log.error("the ControlPlane is gone: %d children deleted, not waited for", len(left), extra=given.log)
        except ClusterError as error:
            if error.passing and activity.info().attempt < RETRY.maximum_attempts:
                raise
            _log.error("the ControlPlane is gone and a child may be left: %s", error, extra=given.log)
