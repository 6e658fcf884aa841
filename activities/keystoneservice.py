"""KeystoneService's other steps: provision_catalog and remove_registration. The account's are `keystoneaccount`."""

from __future__ import annotations

import asyncio
import logging

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
from activities.registration import Given, Judge, without_id
from workflows.api.controlplane import ControlPlane
from workflows.keystoneservice import children, gates, reasons, sweep
from workflows.keystoneservice.catalog import judge_catalog
from workflows.scaffold import gates as shared
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import RETRY, OrderSeen, Removal, Task
from workflows.scaffold.verdict import Decision, Outcome, Verdict

_log = logging.getLogger(__name__)

_BLOCK = "KeystoneServiceCatalog"
_KINDS = tuple(kind for kind in sweep.BESIDE_THE_PLANE if sweep.block(kind) == reasons.CATALOG_READY)
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
            given, pen = Given(task), Given(task).pen(self._management)
            async with given.projection(self._management, pen) as projection:
                judge, sweeps = await self._read(given, projection)
                decision = await given.ask(projection, judge)
            if given.spec.catalog is None and sweeps and decision.verdict.status and pen is not None:
                await given.drop_claims(self._management, pen, "Service")
            return decision.outcome

    @activity.defn(name="remove_registration")
    async def remove_registration(self, task: Task) -> Removal:
        with at_boundary():
            if shared.order_name(task.ref):
                return Removal()  # no child can carry such a label (contracts 14.8)
            given = Given(task)
            pen = given.pen(self._management, deleting=True)
            if task.plane is None:
                await self._fail_open(given, pen)
                return Removal()
            async with given.projection(self._management, pen) as projection:
                await self._follow(given, projection)
                removing = await projection.drive(given.removal(_ALL_KINDS))
            if not removing.left:
                await given.drop_claims(self._management, pen)
            return Removal(left=removing.left)

    async def look(self, task: Task) -> Looked:
        given = Given(task)
        async with given.projection(self._management) as projection:
            judge, _ = await self._read(given, projection)
            catalog: Decision = await projection.look(judge)
        account = await self.accounts.look(task)
        outcome = Outcome(verdicts=(catalog.verdict, account.verdict), fields={**catalog.fields, **account.fields})
        return Looked(outcome=outcome, due=bool(catalog.do or account.do))

    async def look_removal(self, task: Task) -> Removal:
        if task.plane is None or shared.order_name(task.ref):
            return Removal()
        given = Given(task)
        async with given.projection(self._management) as projection:
            await self._list(given, projection)
            removing = await projection.look(given.removal(_ALL_KINDS))
        return Removal(left=("a write is due",) if removing.do else removing.left)

    async def _read(self, given: Given, projection: Projection) -> tuple[Judge, bool]:
        """Reads the catalog's children, and says how they are to be judged, and whether all there are were read."""
        reg, catalog = given.reg, given.spec.catalog
        if catalog is not None:
            service = children.service(reg, catalog)
            await projection.get(service, *(children.endpoint(reg, each) for each in catalog.endpoints))
        sweeps = given.may_have_undeclared("catalog", projection.seen)
        if catalog is not None and not given.fresh(projection.seen) and without_id(projection, service):
            await projection.get(children.service_probe(reg, catalog))
        if sweeps:
            await projection.list(reg.plane.namespace, _KINDS)
        removal = given.removal(_KINDS, keep_declared=True)
        return lambda seen: judge_catalog(reg, catalog, seen, removal(seen)), sweeps

    # -- removal ------------------------------------------------------------------------------------------------

    async def _follow(self, given: Given, projection: Projection) -> None:
        """Reads all that can be there, and goes on hearing of it."""
        plane, *order = given.namespaces
        kinds, delivers = self._can_be(given)
        await asyncio.gather(
            projection.follow(plane, kinds),
            *(projection.follow(namespace, (sweep.SECRETS,)) for namespace in order if delivers),
            given.unless_not_served(projection.follow("", (), given.delivery_objects() if delivers else ())),
        )

    async def _list(self, given: Given, projection: Projection) -> None:
        plane, *order = given.namespaces
        kinds, delivers = self._can_be(given)
        await asyncio.gather(
            projection.list(plane, kinds),
            *(projection.list(namespace, (sweep.SECRETS,)) for namespace in order if delivers),
            given.unless_not_served(projection.get(*(given.delivery_objects() if delivers else ()))),
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
            return tuple(kind for kind in _KINDS if kind not in none), False
        return (*(kind for kind in sweep.BESIDE_THE_PLANE if kind not in none), sweep.SECRETS), True

    async def _fail_open(self, given: Given, pen: Pen | None) -> None:
        """The plane is gone and K-ORC has no credentials left: the deletes are issued, their outcome gates nothing."""
        order = {"order": given.task.ref.workflow_id}
        try:
            async with given.projection(self._management, pen) as projection:
                await self._list(given, projection)
                left = (await projection.drive(given.removal(_ALL_KINDS))).left
            await given.drop_claims(self._management, pen)
            _log.error("the ControlPlane is gone: %d children deleted, not waited for", len(left), extra=order)
        except ClusterError as error:
            if error.passing and activity.info().attempt < RETRY.maximum_attempts:
                raise
            _log.error("the ControlPlane is gone and a child may be left: %s", error, extra=order)
