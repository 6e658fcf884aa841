"""The account's steps: provision_account, publish_account, nudge_account. Judged in `workflows.keystoneservice`.

Passwords are made, read and written inside one step each, and leave it only into a Secret.
"""

from __future__ import annotations

import logging
import time
from base64 import b64decode
from datetime import UTC, datetime

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.cluster import (
    EVENT,
    KEYSTONE_SERVICE,
    KORC_USER,
    SECRET,
    SECRET_STORE,
    STORE_KINDS,
    Cluster,
    Object,
)
from activities.errors import ClusterError, at_boundary
from activities.instrument import instrument
from activities.pen import Pen
from activities.projection import Projection
from activities.registration import Block, Given, Judge
from workflows.api.korc import KorcObject
from workflows.api.meta import find, is_true
from workflows.keystoneservice import children, delivery, reasons, sweep
from workflows.keystoneservice.account import generation_of, judge_account, refusal
from workflows.keystoneservice.blocks import false
from workflows.keystoneservice.publish import Content, judge_publish
from workflows.scaffold.child import Body, fingerprint, key
from workflows.scaffold.steps import Nudge, Task
from workflows.scaffold.verdict import Decision, Outcome

_log = logging.getLogger(__name__)

BLOCK = "KeystoneServiceAccount"
RECORDER = "keystoneservice-controller"
"""Who the kind's event says it is from: the reference's recorder (contracts 9.4)."""
_PER_ROLE = (children.role_import, children.assignment)
_KORCS = tuple(kind for kind in sweep.KINDS["account"] if kind != sweep.SECRETS)
_UNDECLARED = (*_KORCS, *sweep.BESIDE_THE_ORDER, sweep.SECRETS)
_SWEPT = (sweep.SECRETS, *_KORCS)
"""What a sweep takes of a declared account: of its Secrets only passwords of a user that goes for another, and those
first, so that they are not there when that one is made."""


class Accounts:
    """The activities, and the look that settling orders share with them."""

    def __init__(self, management: Cluster) -> None:
        self._management = management

    @activity.defn(name="provision_account")
    async def provision_account(self, task: Task) -> Outcome:
        with at_boundary(), instrument(BLOCK):
            given = self._given(task)
            pen = given.pen()
            if (refused := await self._refused(given)) is not None:
                return (await self._sweep(given, pen, refused)).outcome
            async with given.projection(pen) as projection:
                judge, block = await self._read(given, projection, pen)
                try:
                    decision = await given.ask(projection, judge)
                finally:
                    await self._say_deferred(given, projection)
                await given.settle_claims(pen, block, projection, decision)
            return decision.outcome

    @activity.defn(name="publish_account")
    async def publish_account(self, task: Task) -> Outcome:
        with at_boundary(), instrument(BLOCK):
            given = self._given(task)
            source = await self._source(given)

            def fill(body: Object) -> Object:
                return source if source is not None and body["kind"] == "Secret" else body

            pen = given.pen()
            async with given.projection(pen, fill) as projection:
                judge = await self._delivered(given, projection, source)
                if pen is not None:
                    projection.follow_secret(task.ref.namespace, delivery.consumer_name(task.ref))
                return (await given.ask(projection, judge)).outcome

    @activity.defn(name="nudge_account")
    async def nudge_account(self, nudge: Nudge) -> None:
        """Asks for the next password, as an operator does by hand: the annotation is emptied (contracts 4.7).

        Only while the User is at the generation that the caller knew, so a repeated nudge is still one generation.
        """
        with at_boundary():
            given = self._given(nudge.task)
            pen, namespace = given.pen(), given.plane.namespace
            name = children.user(given.reg, given.account, 1, None)["metadata"]["name"]
            raw = await self._management.get(KORC_USER, namespace, name)
            live = KorcObject.model_validate(raw) if raw else None
            if live is None or not given.marks.own(live.metadata):
                raise ApplicationError("the account has no user yet", type="NoUser", non_retryable=True)
            if generation_of(live) != nudge.generation or live.metadata.annotations.get(children.GENERATION) == "":
                return
            if pen is not None:
                await pen.lift()
            mark = {"resourceVersion": live.metadata.resource_version, "annotations": {children.GENERATION: ""}}
            await self._management.patch(KORC_USER, namespace, name, {"metadata": mark})
            _log.info("asked for the next password", extra={"order": nudge.task.ref.workflow_id})

    async def look(self, task: Task) -> Decision:
        """How the account stands, as its steps would find it. Reads only."""
        given = self._given(task)
        if (refused := await self._refused(given)) is not None:
            return refused
        async with given.projection() as projection:
            judge, _ = await self._read(given, projection, None)
            decision = await projection.look(judge)
        if given.spec.account is None or not decision.verdict.status:
            return decision
        known = {**task.order.status, **decision.fields}
        given = self._given(task.model_copy(update={"order": task.order.model_copy(update={"status": known})}))
        async with given.projection() as projection:
            published = await projection.look(await self._delivered(given, projection, await self._source(given)))
        return published.model_copy(update={"fields": decision.fields, "do": (*decision.do, *published.do)})

    def _given(self, task: Task) -> Given:
        return Given(task, self._management, self._management, time.monotonic())

    # -- up to a user that can log in ---------------------------------------------------------------------------

    async def _sweep(self, given: Given, pen: Pen | None, refused: Decision) -> Decision:
        """What is not declared any more goes all the same: a role that was taken away must not wait for a store."""
        if pen is None or given.new:
            return refused
        async with given.projection(pen) as projection:
            try:
                block = await given.read(projection, "account", pen, (), {})
                removal = given.removal(_SWEPT, block)
                return await projection.drive(lambda seen: refused.model_copy(update={"do": removal(seen).do}))
            except ClusterError as error:  # the refusal is what there is to say; a later pass sweeps
                _log.info("not swept yet: %s", error, extra=given.log)
                return refused

    async def _refused(self, given: Given) -> Decision | None:
        """What stands in the way before any child is looked at: the admin's own name, or a store that is not ready."""
        account, reg = given.spec.account, given.reg
        if account is None:
            return None
        if refusal(reg, account, None, unknown=False) is None:
            return await self._store(given)
        name = children.user(reg, account, 1, None)["metadata"]["name"]
        try:
            raw = await self._management.get(KORC_USER, given.plane.namespace, name)
        except ClusterError:
            return refusal(reg, account, None, unknown=True)
        return refusal(reg, account, KorcObject.model_validate(raw) if raw else None, unknown=False)

    async def _store(self, given: Given) -> Decision | None:
        """The plane's store has to be ready in the order's namespace: an outage is said at once, not an hour later."""
        ref = given.plane.store_ref
        kind = STORE_KINDS.get(ref["kind"])
        if kind is None:
            message = f"ControlPlane {given.plane.key} names a store of kind {ref['kind']!r}, which is none."
            return Decision(verdict=false(reasons.ACCOUNT_READY, reasons.ACCOUNT_ERROR, message))
        namespace = given.task.ref.namespace if kind is SECRET_STORE else None
        raw = await self._management.get(kind, namespace, ref["name"])
        store = KorcObject.model_validate(raw) if raw else None
        conditions = store.status.conditions if store else ()
        going = store is not None and store.deleting
        if is_true(conditions, "Ready") and not going:
            return None
        ready = find(conditions, "Ready")
        words = f"External Secrets: {ready.reason}: {ready.message}" if ready else "External Secrets has not said so"
        where = f"{ref['kind']} {namespace}/{ref['name']}" if namespace else f"{ref['kind']} {ref['name']}"
        message = f"{where} is not ready ({words})." if raw else f"{where} does not exist."
        if going:  # External Secrets passes over it without a word, and what it says of itself stays as it was
            message = f"{where} is being deleted; orders that push through it hold it."
        status = given.status.model_copy(update={"secret_name": delivery.consumer_name(given.task.ref)})
        fields = {"account": status.model_dump(mode="json", by_alias=True, exclude_none=True)}
        return Decision(verdict=false(reasons.ACCOUNT_READY, reasons.STORE_NOT_READY, message), fields=fields)

    async def _read(self, given: Given, projection: Projection, pen: Pen | None) -> tuple[Judge, Block]:
        """Reads the block's children, and says how they are to be judged."""
        reg, account, namespace = given.reg, given.spec.account, given.plane.namespace
        wanted, probes = list[Body](), dict[str, Body]()
        if account is not None:
            user, project = children.user(reg, account, 1, None), children.project(reg, account)
            # Whether an account that names its domain has an import of its own depends on the plane, then and now.
            own_domain = {"name": children.domain_name(reg.order), "namespace": namespace}
            domain = [{"kind": "Domain", "metadata": own_domain}] if account.domain_name else []
            roles = [body(reg, role) for role in children.roles(account) for body in _PER_ROLE]
            wanted = [user, project, *domain, *roles]
            probes = {user["metadata"]["name"]: children.user_probe(reg, account)}
            if account.project.create:
                probes[project["metadata"]["name"]] = children.project_probe(reg, account)
        block = await given.read(projection, "account", pen, wanted, probes)
        if account is None and block.whole:
            await projection.get(*given.delivery_objects())
            if given.task.ref.namespace != namespace:
                await projection.list(given.task.ref.namespace, (sweep.SECRETS,))
        if account is not None and (block.whole or not given.new):
            if not block.whole:
                await projection.list(namespace, (sweep.SECRETS,), contents=True)
            live = projection.seen.of(user)
            current = delivery.password_secret(reg, generation_of(live) if live else 1)
            taken = [delivery.source_secret(reg)] if account.adopt else []
            await projection.get(*(each for each in (current, *taken) if projection.seen.of(each) is None))
        removal, status = given.removal(_UNDECLARED if account is None else _SWEPT, block), given.status
        return lambda seen: judge_account(reg, account, status, seen, removal(seen), block.replaced(seen).was), block

    async def _say_deferred(self, given: Given, projection: Projection) -> None:
        """The one event of the kind, tied to the creation of the User: at most once (row A14)."""
        account, order = given.spec.account, given.task.ref
        if account is None or not account.scheduled:
            return
        user = children.user(given.reg, account, 1, None)["metadata"]
        if key("User", user["namespace"], user["name"]) not in projection.created:
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = {"apiVersion": KEYSTONE_SERVICE.api_version, "kind": KEYSTONE_SERVICE.kind, "name": order.name,
                 "namespace": order.namespace, "uid": given.task.order.uid}  # fmt: skip
        event = {
            "metadata": {"generateName": f"{order.name}.", "namespace": order.namespace},
            "involvedObject": about,
            "type": "Normal",
            "reason": reasons.SCHEDULED_ROTATION_DEFERRED,
            "message": "rotation.mode Scheduled is accepted, but passwords are not rotated on a schedule yet.",
            "source": {"component": RECORDER},
            "reportingComponent": RECORDER,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._management.create(EVENT, event)
        except ClusterError as error:
            _log.warning("the event could not be written: %s", error, extra={"order": order.workflow_id})

    # -- from the user to the service ---------------------------------------------------------------------------

    async def _source(self, given: Given) -> Object | None:
        """The source Secret as it should be; None when the password, or the Secret it should be in, is not there."""
        name = delivery.password_name(given.task.ref, given.status.password_generation or 1)
        raw = await self._management.get(SECRET, given.plane.namespace, name)
        if raw is None or not given.marks.own(KorcObject.model_validate({"metadata": raw["metadata"]}).metadata):
            return None
        value = b64decode((raw.get("data") or {}).get("password") or "")
        try:
            password = value.decode()
        except UnicodeDecodeError:
            return None  # nothing of ours, and no text that a document could hold; the error would tell of it
        return delivery.source(given.reg, given.account, password) if password else None

    async def _delivered(self, given: Given, projection: Projection, source: Object | None) -> Judge:
        """Reads the delivery's objects, and says how they are to be judged. No value is in what the judge sees."""
        reg, generation = given.reg, given.status.password_generation or 1
        if source is None:
            return lambda seen: judge_publish(reg, generation, None, seen)
        values = {name: b64decode(value) for name, value in source["data"].items()}
        fingerprints = {name: fingerprint(value) for name, value in values.items()}
        content = Content(digest=delivery.digest(values["clouds.yaml"]), source=fingerprints)
        await projection.get(*given.delivery_objects(), source, delivery.consumer(reg.order))
        return lambda seen: judge_publish(reg, generation, content, seen)
