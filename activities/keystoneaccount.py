"""The account's steps: provision_account, publish_account, nudge_account. Judged in `workflows.keystoneservice`.

Passwords are made, read and written inside one step each, and leave it only into a Secret.
"""

from __future__ import annotations

import logging
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
from activities.registration import Given, Judge, without_id
from workflows.api.korc import KorcObject
from workflows.api.meta import find, is_true
from workflows.keystoneservice import children, delivery, reasons, sweep
from workflows.keystoneservice.account import generation_of, judge_account, refusal
from workflows.keystoneservice.blocks import false
from workflows.keystoneservice.publish import Content, judge_publish
from workflows.scaffold.child import fingerprint, key
from workflows.scaffold.steps import Nudge, Task
from workflows.scaffold.verdict import Decision, Outcome

_log = logging.getLogger(__name__)

BLOCK = "KeystoneServiceAccount"
_KINDS = tuple(kind for kind in sweep.BESIDE_THE_PLANE if sweep.block(kind) == reasons.ACCOUNT_READY)


class Accounts:
    """The activities, and the look that settling orders share with them."""

    def __init__(self, management: Cluster) -> None:
        self._management = management

    @activity.defn(name="provision_account")
    async def provision_account(self, task: Task) -> Outcome:
        with at_boundary(), instrument(BLOCK):
            given = Given(task)
            pen = given.pen(self._management)
            if (refused := await self._refused(given)) is not None:
                return (await self._sweep(given, pen, refused)).outcome
            async with given.projection(self._management, pen) as projection:
                judge, sweeps = await self._read(given, projection)
                try:
                    decision = await given.ask(projection, judge)
                finally:
                    await self._say_deferred(given, projection)
            if given.spec.account is None and sweeps and decision.verdict.status and pen is not None:
                await given.drop_claims(self._management, pen, "User", "Project")
            return decision.outcome

    @activity.defn(name="publish_account")
    async def publish_account(self, task: Task) -> Outcome:
        with at_boundary(), instrument(BLOCK):
            given = Given(task)
            source = await self._source(given)

            def fill(body: Object) -> Object:
                return source if source is not None and body["kind"] == "Secret" else body

            pen = given.pen(self._management)
            async with given.projection(self._management, pen, fill) as projection:
                judge = await self._delivered(given, projection, source)
                if pen is not None:
                    projection.follow_one("Secret", task.ref.namespace, delivery.consumer_name(task.ref))
                return (await given.ask(projection, judge)).outcome

    @activity.defn(name="nudge_account")
    async def nudge_account(self, nudge: Nudge) -> None:
        """Asks for the next password, as an operator does by hand: the annotation is emptied (contracts 4.7).

        Only while the User is at the generation that the caller knew, so a repeated nudge is still one generation.
        """
        with at_boundary():
            given = Given(nudge.task)
            pen, namespace = given.pen(self._management), given.plane.namespace
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
        given = Given(task)
        if (refused := await self._refused(given)) is not None:
            return refused
        async with given.projection(self._management) as projection:
            judge, _ = await self._read(given, projection)
            decision = await projection.look(judge)
        if given.spec.account is None or not decision.verdict.status:
            return decision
        known = {**task.order.status, **decision.fields}
        given = Given(task.model_copy(update={"order": task.order.model_copy(update={"status": known})}))
        async with given.projection(self._management) as projection:
            published = await projection.look(await self._delivered(given, projection, await self._source(given)))
        return published.model_copy(update={"fields": decision.fields, "do": (*decision.do, *published.do)})

    # -- up to a user that can log in ---------------------------------------------------------------------------

    async def _sweep(self, given: Given, pen: Pen | None, refused: Decision) -> Decision:
        """What is not declared any more goes all the same: a role that was taken away must not wait for a store."""
        async with given.projection(self._management, pen) as projection:
            if pen is None or not given.may_have_undeclared("account", projection.seen):
                return refused
            removal = given.removal((*_KINDS, sweep.SECRETS), keep_declared=True)
            try:
                await projection.list(given.plane.namespace, (*_KINDS, sweep.SECRETS))
                return await projection.drive(lambda seen: refused.model_copy(update={"do": removal(seen).do}))
            except ClusterError as error:  # the refusal is what there is to say; a later pass sweeps
                _log.info("not swept yet: %s", error, extra={"order": given.task.ref.workflow_id})
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
        conditions = KorcObject.model_validate(raw).status.conditions if raw else ()
        if is_true(conditions, "Ready"):
            return None
        ready = find(conditions, "Ready")
        words = f"External Secrets: {ready.reason}: {ready.message}" if ready else "External Secrets has not said so"
        where = f"{ref['kind']} {namespace}/{ref['name']}" if namespace else f"{ref['kind']} {ref['name']}"
        message = f"{where} is not ready ({words})." if raw else f"{where} does not exist."
        status = given.status.model_copy(update={"secret_name": delivery.consumer_name(given.task.ref)})
        fields = {"account": status.model_dump(mode="json", by_alias=True, exclude_none=True)}
        return Decision(verdict=false(reasons.ACCOUNT_READY, reasons.STORE_NOT_READY, message), fields=fields)

    async def _read(self, given: Given, projection: Projection) -> tuple[Judge, bool]:
        """Reads the block's children, and says how they are to be judged, and whether all there are were read."""
        reg, account, namespace = given.reg, given.spec.account, given.plane.namespace
        if account is not None:
            user, project = children.user(reg, account, 1, None), children.project(reg, account)
            roles = children.roles(account)
            bound = [body(reg, role) for role in roles for body in (children.role_import, children.assignment)]
            # Whether an account that names its domain has an import of its own depends on the plane, then and now.
            own_domain = {"name": children.domain_name(reg.order), "namespace": namespace}
            domain = [{"kind": "Domain", "metadata": own_domain}] if account.domain_name else []
            source = {"name": delivery.source_name(reg.order), "namespace": reg.order.namespace}
            taken = [{"kind": "Secret", "metadata": source}] if account.adopt else []
            await projection.get(user, project, *domain, *bound, *taken)
            if account.adopt and (live := projection.seen.of(user)) is not None:
                # Before any list, which tells nothing of what is in a Secret: it is compared with what was published.
                current = {"name": delivery.password_name(reg.order, generation_of(live)), "namespace": namespace}
                await projection.get({"kind": "Secret", "metadata": current})
        fresh, sweeps = given.fresh(projection.seen), given.may_have_undeclared("account", projection.seen)
        if account is not None and not fresh:
            gated = [(user, children.user_probe)]
            gated += [(project, children.project_probe)] if account.project.create else []
            await projection.get(*(probe(reg, account) for child, probe in gated if without_id(projection, child)))
            if not sweeps:
                await self._read_passwords(given, projection, projection.seen.of(user))
        if sweeps:
            await projection.list(namespace, (*_KINDS, sweep.SECRETS))
            if account is None:
                await given.unless_not_served(projection.get(*given.delivery_objects()))
                if given.task.ref.namespace != namespace:
                    await projection.list(given.task.ref.namespace, (sweep.SECRETS,))
        removal = given.removal((*_KINDS, *sweep.BESIDE_THE_ORDER, sweep.SECRETS), keep_declared=True)
        status = given.status
        return lambda seen: judge_account(reg, account, status, seen, removal(seen)), sweeps

    async def _read_passwords(self, given: Given, projection: Projection, user: KorcObject | None) -> None:
        """The Secret that the User refers to; all of them if there may be others, for those go."""
        namespace = given.plane.namespace
        now = generation_of(user) if user is not None else 0
        if user is None or now > 1 or user.metadata.annotations.get(children.GENERATION) == "":
            await projection.list(namespace, (sweep.SECRETS,))
        else:
            name = {"name": delivery.password_name(given.task.ref, now), "namespace": namespace}
            await projection.get({"kind": "Secret", "metadata": name})

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
            "source": {"component": "c5c3-orders"},
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
