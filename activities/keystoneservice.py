"""KeystoneService's steps: provision_catalog, provision_account, publish_account, nudge_account, remove_registration.

What is seen is judged in `workflows.keystoneservice`. Passwords are made, read and written inside one step each, and
leave it only into a Secret.
"""

from __future__ import annotations

import logging
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities import claims, passwords
from activities.cluster import (
    CLUSTER_SECRET_STORE,
    EVENT,
    KEYSTONE_SERVICE,
    KORC_USER,
    SECRET,
    SECRET_STORE,
    Object,
)
from activities.clusters import Clusters
from activities.errors import ClusterError, NotServed, at_boundary
from activities.instrument import instrument
from activities.orders import Looked
from activities.pen import Pen
from activities.projection import Projection
from workflows.api.controlplane import ControlPlane
from workflows.api.keystoneservice import Account, AccountStatus, KeystoneServiceSpec
from workflows.api.korc import KorcObject
from workflows.api.meta import find, is_true
from workflows.keystoneservice import account as accounts
from workflows.keystoneservice import children, delivery, gates, reasons, sweep
from workflows.keystoneservice.account import judge_account
from workflows.keystoneservice.blocks import false
from workflows.keystoneservice.catalog import judge_catalog
from workflows.keystoneservice.children import Registration
from workflows.keystoneservice.publish import Content, judge_publish
from workflows.scaffold import gates as shared
from workflows.scaffold.child import Body, Seen, fingerprint, key
from workflows.scaffold.order import OrderRef
from workflows.scaffold.removal import Removing, judge_removal
from workflows.scaffold.steps import Nudge, OrderSeen, Removal, Task
from workflows.scaffold.verdict import Decision, Outcome, Verdict

_log = logging.getLogger(__name__)

_CATALOG, _ACCOUNT = "KeystoneServiceCatalog", "KeystoneServiceAccount"
_CATALOG_KINDS = tuple(kind for kind in sweep.BESIDE_THE_PLANE if sweep.block(kind) == reasons.CATALOG_READY)
_ACCOUNT_KINDS = tuple(kind for kind in sweep.BESIDE_THE_PLANE if sweep.block(kind) == reasons.ACCOUNT_READY)
_ALL_KINDS = (*sweep.BESIDE_THE_PLANE, *sweep.BESIDE_THE_ORDER, sweep.SECRETS)

Judge = Callable[[Seen], Decision]


class KeystoneServices:
    """The kind's activities, and what the shared ones need to know of it."""

    kind = KEYSTONE_SERVICE
    finalizer = children.FINALIZER
    finalizer_first = True
    blocks: tuple[str, ...] = (_CATALOG, _ACCOUNT)

    def __init__(self, clusters: Clusters) -> None:
        self._management = clusters.management

    def consent(self, ref: OrderRef, plane_key: str, plane: ControlPlane | None) -> shared.Gate | None:
        return gates.consent(ref, plane_key, plane)

    def gate(self, plane: ControlPlane) -> shared.Gate | None:
        return shared.admin_credential(plane)

    def refused(self, order: OrderSeen, gate: shared.Gate) -> tuple[Verdict, ...]:
        return gates.refused(order.spec, gate)

    # -- catalog ------------------------------------------------------------------------------------------------

    @activity.defn(name="provision_catalog")
    async def provision_catalog(self, task: Task) -> Outcome:
        with at_boundary(), instrument(_CATALOG):
            async with self._projection(task, self._pen(task)) as projection:
                judge = await self._catalog(task, projection)
                return (await _ask(projection, task, judge)).outcome

    async def _catalog(self, task: Task, projection: Projection) -> Judge:
        """Reads the block's children, and says how they are to be judged."""
        reg, spec = _registration(task), _spec(task)
        if spec.catalog is not None:
            service = children.service(reg, spec.catalog)
            await projection.get(service, *(children.endpoint(reg, each) for each in spec.catalog.endpoints))
            if not _fresh(task) and _open(projection, service):
                await projection.get(children.service_probe(reg, spec.catalog))
        if _swept(task, "catalog"):
            await projection.list(reg.plane.namespace, _CATALOG_KINDS)
        removing = _removal(task, _CATALOG_KINDS, keep=True)
        return lambda seen: judge_catalog(reg, spec.catalog, seen, removing(seen))

    # -- account ------------------------------------------------------------------------------------------------

    @activity.defn(name="provision_account")
    async def provision_account(self, task: Task) -> Outcome:
        with at_boundary(), instrument(_ACCOUNT):
            if (refused := await self._refusal(task)) is not None:
                return refused.outcome
            async with self._projection(task, self._pen(task)) as projection:
                judge = await self._account(task, projection)
                outcome = (await _ask(projection, task, judge)).outcome
                await self._say_deferred(task, projection)
                return outcome

    async def _refusal(self, task: Task) -> Decision | None:
        """What stands in the way before any child is looked at: the admin's own name, or a store that is not ready."""
        reg, account = _registration(task), _spec(task).account
        if account is None:
            return None
        if accounts.refusal(reg, account, None, unknown=False) is not None:
            name = children.user(reg, account, 1, None)["metadata"]["name"]
            try:
                raw = await self._management.get(KORC_USER, reg.plane.namespace, name)
            except ClusterError:
                return accounts.refusal(reg, account, None, unknown=True)
            return accounts.refusal(reg, account, KorcObject.model_validate(raw) if raw else None, unknown=False)
        return await self._store(reg, account)

    async def _store(self, reg: Registration, account: Account) -> Decision | None:
        """The plane's store has to be ready in the order's namespace: an outage is said at once, not an hour later."""
        ref = reg.plane.store_ref
        kind = {"SecretStore": SECRET_STORE, "ClusterSecretStore": CLUSTER_SECRET_STORE}.get(ref["kind"])
        if kind is None:
            message = f"ControlPlane {reg.plane.key} names a store of kind {ref['kind']!r}, which is none."
            return Decision(verdict=false(reasons.ACCOUNT_READY, reasons.ACCOUNT_ERROR, message))
        namespace = reg.order.namespace if kind is SECRET_STORE else None
        raw = await self._management.get(kind, namespace, ref["name"])
        store = KorcObject.model_validate(raw) if raw else None
        if store is not None and is_true(store.status.conditions, "Ready"):
            return None
        ready = find(store.status.conditions, "Ready") if store else None
        where = f"{namespace}/{ref['name']}" if namespace else ref["name"]
        words = f"External Secrets: {ready.reason}: {ready.message}" if ready else "External Secrets has not said so"
        message = f"{ref['kind']} {where} " + (f"is not ready ({words})." if store else "does not exist.")
        return Decision(verdict=false(reasons.ACCOUNT_READY, reasons.STORE_NOT_READY, message))

    async def _account(self, task: Task, projection: Projection) -> Judge:
        """Reads the block's children, and says how they are to be judged."""
        reg, spec, status = _registration(task), _spec(task), _account_status(task)
        account, namespace = spec.account, reg.plane.namespace
        if account is not None:
            user, project = children.user(reg, account, 1, None), children.project(reg, account)
            own_domain = children.domain(reg, account)
            bound = [
                b(reg, role) for role in children.roles(account) for b in (children.role_import, children.assignment)
            ]
            await projection.get(user, project, *([own_domain] if own_domain else []), *bound)
            if not _fresh(task):
                probes = [
                    probe(reg, account)
                    for child, probe in ((user, children.user_probe), (project, children.project_probe))
                    if _open(projection, child) and (child is user or account.project.create)
                ]
                await projection.get(*probes)
            await self._read_passwords(reg, projection, projection.seen.of(user))
        if _swept(task, "account"):
            await projection.list(namespace, (*_ACCOUNT_KINDS, sweep.SECRETS))
            if account is None:
                await projection.get(*_delivered(reg))
                if reg.order.namespace != namespace:
                    await projection.list(reg.order.namespace, (sweep.SECRETS,))
        removing = _removal(task, (*_ACCOUNT_KINDS, *sweep.BESIDE_THE_ORDER, sweep.SECRETS), keep=True)
        ready = _is_true(task, reasons.ACCOUNT_READY)
        return lambda seen: judge_account(reg, account, status, seen, removing(seen), ready=ready)

    async def _read_passwords(self, reg: Registration, projection: Projection, user: KorcObject | None) -> None:
        """The Secret that the User refers to; from the second generation on, those of all, for the old ones go."""
        if user is None:
            return
        now = accounts.generation(user)
        if now > 1 or user.metadata.annotations.get(children.GENERATION) == "":
            await projection.list(reg.plane.namespace, (sweep.SECRETS,))
        else:
            name = {"name": delivery.password_name(reg.order, now), "namespace": reg.plane.namespace}
            await projection.get({"kind": "Secret", "metadata": name})

    async def _say_deferred(self, task: Task, projection: Projection) -> None:
        """The one event of the kind, tied to the creation of the User: at most once (row A14)."""
        reg, account = _registration(task), _spec(task).account
        if account is None or not account.scheduled:
            return
        if key("User", children.user(reg, account, 1, None)["metadata"]["name"]) not in projection.created:
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"apiVersion": KEYSTONE_SERVICE.api_version, "kind": KEYSTONE_SERVICE.kind, "name": reg.order.name,
                 "namespace": reg.order.namespace, "uid": reg.uid}  # fmt: skip
        event = {
            "metadata": {"generateName": f"{reg.order.name}.", "namespace": reg.order.namespace},
            "involvedObject": about,
            "type": "Normal",
            "reason": reasons.SCHEDULED_ROTATION_DEFERRED,
            "message": "rotation.mode Scheduled is accepted, but passwords are not rotated on a schedule yet.",
            "source": {"component": "c5c3-orders"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._management.create(EVENT, event)
        except ClusterError as error:
            _log.warning("the event could not be written: %s", error, extra={"order": task.ref.workflow_id})

    # -- publish ------------------------------------------------------------------------------------------------

    @activity.defn(name="publish_account")
    async def publish_account(self, task: Task) -> Outcome:
        with at_boundary(), instrument(_ACCOUNT):
            reg, account = _registration(task), _account_of(task)
            password = await self._password(task)
            source = delivery.source(reg, account, password) if password else None
            pen = self._pen(task)
            async with self._projection(
                task, pen, lambda body: source if source and body["kind"] == "Secret" else body
            ) as projection:
                judge = await self._publish(task, projection, source)
                if pen is not None:
                    projection.follow_one("Secret", reg.order.namespace, delivery.consumer_name(reg.order))
                return (await _ask(projection, task, judge)).outcome

    async def _publish(self, task: Task, projection: Projection, source: Object | None) -> Judge:
        reg = _registration(task)
        generation = _account_status(task).password_generation or 1
        if source is None:
            return lambda seen: judge_publish(reg, generation, None, seen)
        values = {name: b64decode(value) for name, value in source["data"].items()}
        content = Content(
            digest=delivery.digest(values["clouds.yaml"]),
            source={name: fingerprint(value) for name, value in values.items()},
        )
        await projection.get(*_delivered(reg))
        return lambda seen: judge_publish(reg, generation, content, seen)

    async def _password(self, task: Task) -> str | None:
        """The current generation's password; None when the Secret, or what should be in it, is not there."""
        reg, generation = _registration(task), _account_status(task).password_generation or 1
        name = delivery.password_name(reg.order, generation)
        raw = await self._management.get(SECRET, reg.plane.namespace, name)
        if raw is None or not children.marks(reg.order, reg.uid).own(KorcObject.model_validate(raw).metadata):
            return None
        return b64decode((raw.get("data") or {}).get("password") or "").decode() or None

    # -- rotation -----------------------------------------------------------------------------------------------

    @activity.defn(name="nudge_account")
    async def nudge_account(self, nudge: Nudge) -> None:
        """Asks for the next password, as an operator does by hand: the annotation is emptied (contracts 4.7).

        Only while the User is at the generation that the caller knew, so a repeated nudge is still one generation.
        """
        with at_boundary():
            task = nudge.task
            reg, account = _registration(task), _account_of(task)
            pen = self._pen(task)
            name = children.user(reg, account, 1, None)["metadata"]["name"]
            raw = await self._management.get(KORC_USER, reg.plane.namespace, name)
            live = KorcObject.model_validate(raw) if raw else None
            if live is None or not children.marks(task.ref, task.order.uid).own(live.metadata):
                raise ApplicationError("the account has no user yet", type="NoUser", non_retryable=True)
            if (
                accounts.generation(live) != nudge.generation
                or live.metadata.annotations.get(children.GENERATION) == ""
            ):
                return
            if pen is not None:
                await pen.lift()
            mark = {"resourceVersion": live.metadata.resource_version, "annotations": {children.GENERATION: ""}}
            await self._management.patch(KORC_USER, reg.plane.namespace, name, {"metadata": mark})
            _log.info("asked for the next password", extra={"order": task.ref.workflow_id})

    # -- looks --------------------------------------------------------------------------------------------------

    async def look(self, task: Task) -> Looked:
        """Both blocks as their steps would find them. Reads only."""
        looks = [await self._looked(task, self._catalog, None), await self._looked(task, self._account, self._refusal)]
        if looks[1].verdict.status and _spec(task).account is not None:
            known = {**task.order.status, **looks[1].fields}
            task = task.model_copy(update={"order": task.order.model_copy(update={"status": known})})
            published = await self._looked(task, self._published, None)
            looks[1] = published.model_copy(update={"fields": looks[1].fields, "do": (*looks[1].do, *published.do)})
        fields = {name: value for decision in looks for name, value in decision.fields.items()}
        verdicts = tuple(decision.verdict for decision in looks)
        return Looked(outcome=Outcome(verdicts=verdicts, fields=fields), due=any(decision.do for decision in looks))

    async def _looked(
        self,
        task: Task,
        read: Callable[[Task, Projection], Awaitable[Judge]],
        refusal: Callable[[Task], Awaitable[Decision | None]] | None,
    ) -> Decision:
        if refusal is not None and (refused := await refusal(task)) is not None:
            return refused
        async with self._projection(task) as projection:
            return await projection.look(await read(task, projection))

    async def _published(self, task: Task, projection: Projection) -> Judge:
        password = await self._password(task)
        reg, account = _registration(task), _account_of(task)
        return await self._publish(task, projection, delivery.source(reg, account, password) if password else None)

    # -- removal ------------------------------------------------------------------------------------------------

    @activity.defn(name="remove_registration")
    async def remove_registration(self, task: Task) -> Removal:
        with at_boundary():
            if shared.order_name(task.ref):
                return Removal()  # no child can carry such a label (contracts 14.8)
            pen = self._pen(task, deleting=True)
            if task.plane is None:
                await self._fail_open(task, pen)
                return Removal()
            async with self._projection(task, pen) as projection:
                await self._follow(task, projection)
                removing = await projection.drive(_removal(task, _ALL_KINDS))
            if not removing.left:
                await self._drop_claims(task, pen)
            return Removal(left=removing.left)

    async def look_removal(self, task: Task) -> Removal:
        if task.plane is None or shared.order_name(task.ref):
            return Removal()
        async with self._projection(task) as projection:
            await self._list(task, projection)
            removing = await projection.look(_removal(task, _ALL_KINDS))
        return Removal(left=("a write is due",) if removing.do else removing.left)

    async def _follow(self, task: Task, projection: Projection) -> None:
        places = _places(task)
        await projection.follow(places[0], (*sweep.BESIDE_THE_PLANE, sweep.SECRETS))
        if len(places) > 1:
            await projection.follow(places[1], (sweep.SECRETS,))
        await self._get_delivered(task, projection)

    async def _list(self, task: Task, projection: Projection) -> None:
        for place in _places(task):
            kinds = (
                (*sweep.BESIDE_THE_PLANE, sweep.SECRETS) if place == task.order.plane_namespace else (sweep.SECRETS,)
            )
            await projection.list(place, kinds)
        await self._get_delivered(task, projection)

    async def _get_delivered(self, task: Task, projection: Projection) -> None:
        """The delivery objects, whoever wrote them. Where External Secrets is not installed there are none."""
        try:
            await projection.get(*_delivery_objects(task.ref))
        except NotServed as error:
            _log.info("no delivery objects: %s", error, extra={"order": task.ref.workflow_id})

    async def _fail_open(self, task: Task, pen: Pen | None) -> None:
        """The plane is gone and K-ORC has no credentials left: the deletes are issued, their outcome gates nothing."""
        try:
            async with self._projection(task, pen) as projection:
                await self._list(task, projection)
                left = await projection.drive(_removal(task, _ALL_KINDS))
            await self._drop_claims(task, pen)
            _log.error(
                "the ControlPlane is gone; deleted without waiting: %d",
                len(left.left),
                extra={"order": task.ref.workflow_id},
            )
        except ClusterError as error:
            _log.error(
                "the ControlPlane is gone and a child may be left: %s", error, extra={"order": task.ref.workflow_id}
            )

    async def _drop_claims(self, task: Task, pen: Pen | None) -> None:
        if pen is not None:
            await pen.lift()
        await claims.drop(self._management, task.order.plane_namespace, children.labels(task.ref))

    # -- inner parts --------------------------------------------------------------------------------------------

    def _pen(self, task: Task, *, deleting: bool = False) -> Pen | None:
        """The right to write; a paused order gives none."""
        if task.order.paused:
            return None
        begun = time.monotonic()
        return Pen(self._management, KEYSTONE_SERVICE, task.ref, task.order.uid, deleting=deleting, begun=begun)

    def _projection(
        self, task: Task, pen: Pen | None = None, fill: Callable[[Object], Object] | None = None
    ) -> Projection:
        marks, failed = children.marks(task.ref, task.order.uid), reasons.TRANSPORT_RETRY_FAILED
        return Projection(self._management, task.ref, marks, pen, failed, fill or _with_password)


async def _ask(projection: Projection, task: Task, judge: Judge) -> Decision:
    return await (projection.look(judge) if task.order.paused else projection.drive(judge))


def _with_password(body: Object) -> Object:
    """A password Secret's body with a password, made at the moment of writing."""
    if body["kind"] != "Secret":
        return body
    return {**body, "data": delivery.password_data(passwords.new())}


def _spec(task: Task) -> KeystoneServiceSpec:
    return KeystoneServiceSpec.model_validate(task.order.spec)


def _account_of(task: Task) -> Account:
    account = _spec(task).account
    if account is None:
        raise ValueError("only a declared account is published or rotated")
    return account


def _account_status(task: Task) -> AccountStatus:
    return AccountStatus.model_validate(task.order.status.get("account") or {})


def _registration(task: Task) -> Registration:
    if task.plane is None:
        raise ValueError("a registration is provisioned only past the gate that reads its plane")
    return Registration(order=task.ref, uid=task.order.uid, plane=task.plane)


def _fresh(task: Task) -> bool:
    """Whether no pass has reported on the order yet: there is nothing then but what an interrupted one has left."""
    return not task.order.status.get("conditions")


def _is_true(task: Task, type_: str) -> bool:
    """Whether the condition was True, for the order as it is now, when the pass began."""
    return any(
        each.get("type") == type_
        and each.get("status") == "True"
        and each.get("observedGeneration") == task.order.generation
        for each in task.order.status.get("conditions") or []
    )


def _swept(task: Task, block: str) -> bool:
    """Whether children may be there that the spec does not declare any more: it changed, or they are not gone yet."""
    declared, type_ = task.order.spec.get(block), gates.BLOCKS[block][0]
    return not declared if _fresh(task) else not _is_true(task, type_)


def _open(projection: Projection, child: Body) -> bool:
    """Whether the child's probe matters: the child is not there, or K-ORC never got an id of it."""
    live = projection.seen.of(child)
    return live is None or not live.status.id


def _delivered(reg: Registration) -> tuple[Body, ...]:
    consumer = {"name": delivery.consumer_name(reg.order), "namespace": reg.order.namespace}
    source = {"name": delivery.source_name(reg.order), "namespace": reg.order.namespace}
    secrets = ({"kind": "Secret", "metadata": source}, {"kind": "Secret", "metadata": consumer})
    return (*_delivery_objects(reg.order), *secrets)


def _delivery_objects(ref: OrderRef) -> tuple[Body, ...]:
    return (
        {"kind": "PushSecret", "metadata": {"name": delivery.backup_name(ref), "namespace": ref.namespace}},
        {"kind": "ExternalSecret", "metadata": {"name": delivery.consumer_name(ref), "namespace": ref.namespace}},
    )


def _places(task: Task) -> tuple[str, ...]:
    """The namespaces that children are in, once if they are the same."""
    return tuple(dict.fromkeys((task.order.plane_namespace, task.ref.namespace)))


def _removal(task: Task, kinds: tuple[str, ...], *, keep: bool = False) -> Callable[[Seen], Removing]:
    spec = _spec(task) if keep else None
    stays = (lambda name: sweep.keeps(task.ref, spec, name)) if spec is not None else (lambda _: False)
    return lambda seen: judge_removal(kinds, children.marks(task.ref, task.order.uid), task.plane, seen, stays)
