"""Registrations on the real API servers: a plane that lets the test's namespace register, and the steps, one by one.

K-ORC and External Secrets are played by hand; what the product does is its own, with its own rights.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from temporalio.exceptions import ApplicationError

from activities.cluster import (
    CONTROL_PLANE,
    EXTERNAL_SECRET,
    KEYSTONE_SERVICE,
    KORC_DOMAIN,
    LEASE,
    PUSH_SECRET,
    SECRET,
    SECRET_STORE,
    Cluster,
    Object,
)
from activities.clusters import Clusters
from activities.keystoneservice import KeystoneServices
from tests.external_secrets_by_hand import ExternalSecretsByHand
from tests.korc_by_hand import KorcByHand
from tests.korc_of_all_kinds import KINDS as KORC_KINDS
from tests.korc_of_all_kinds import Korc
from tests.world import REGISTRATIONS, World, retried, run, run_attempt
from workflows.keystoneservice import children, delivery, gates, reasons
from workflows.scaffold import conditions
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import Admitted, Removal, Report, State, Task, Wait
from workflows.scaffold.verdict import Outcome, Verdict

CATALOG: Object = {
    "serviceType": "image",
    "endpoints": [
        {"interface": "public", "url": "https://image.example.com"},
        {"interface": "internal", "url": "http://image.svc:9292"},
    ],
}
OF_A_REGISTRATION = (*KORC_KINDS, PUSH_SECRET, EXTERNAL_SECRET, SECRET, LEASE)
ACCOUNT: Object = {"project": {"name": "imaging", "create": True}, "roles": ["reader"]}


class Registered:
    """What a test needs beside its `World`, for registrations."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.admin = world.admin
        self.korc = Korc(world.admin, world.plane_ns)
        self.korc.keystone.add("Role", "reader")
        self.korc.keystone.add("Role", "member")
        self.korc.keystone.add("Domain", "Default")
        self.eso = ExternalSecretsByHand(world.admin, world.order_ns)
        self.steps = world.services
        self._again: dict[str, float | None] = {}

    # -- arranging ----------------------------------------------------------------------------------------------

    async def plane(
        self, *, listed: bool = True, store: bool = True, external: bool = False, credential: bool = True, **admin: str
    ) -> None:
        """A plane with its own domain import, and the tenant's store where it lets register."""
        names = {"userName": "admin", "projectName": "admin", "domainName": "Default", **admin}
        cloud = {"secretName": "k-orc-clouds-yaml", "cloudName": "admin"}
        korc = {
            "adminCredential": {"cloudCredentialsRef": cloud, **names},
            "serviceRegistrations": {"allowedNamespaces": [self.world.order_ns] if listed else []},
        }
        await self.world.plane(assigned=False, external=external, credential=credential, korc=korc)
        spec = {"cloudCredentialsRef": cloud, "managementPolicy": "unmanaged",
                "import": {"filter": {"name": names["domainName"]}}}  # fmt: skip
        meta = {"name": "cp-domain-default", "namespace": self.world.plane_ns}
        await self.admin.create(KORC_DOMAIN, {"metadata": meta, "spec": spec})
        await self.korc.of("Domain").available("cp-domain-default", "default")
        for namespace in (self.world.order_ns, self.world.plane_ns):
            await self.store(store, namespace)

    async def listed(self, *namespaces: str) -> None:
        body = {"spec": {"korc": {"serviceRegistrations": {"allowedNamespaces": list(namespaces)}}}}
        await self.admin.patch(CONTROL_PLANE, self.world.plane_ns, "cp", body)

    async def store(self, ready: bool, namespace: str | None = None) -> None:
        namespace, name = namespace or self.world.order_ns, "openbao-tenant-store"
        if await self.admin.get(SECRET_STORE, namespace, name) is None:
            vault = {"server": "https://bao.example.com", "path": "kv-v2", "version": "v2",
                     "auth": {"kubernetes": {"mountPath": "kubernetes/management", "role": "eso-tenant"}}}  # fmt: skip
            body = {"metadata": {"name": name, "namespace": namespace}, "spec": {"provider": {"vault": vault}}}
            await self.admin.create(SECRET_STORE, body)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": str(ready), "reason": "Valid" if ready else "InvalidProviderConfig",
                     "message": "store validated" if ready else "sealed", "lastTransitionTime": now}  # fmt: skip
        status = {"status": {"conditions": [condition]}}
        await self.admin.patch(SECRET_STORE, namespace, name, status, sub="status")

    async def order(
        self,
        name: str = "images",
        *,
        catalog: Object | None = CATALOG,
        account: Object | None = ACCOUNT,
        namespace: str | None = None,
        plane: str = "cp",
    ) -> OrderRef:
        ref = OrderRef(kind="KeystoneService", cluster="", namespace=namespace or self.world.order_ns, name=name)
        blocks = {key: value for key, value in (("catalog", catalog), ("account", account)) if value is not None}
        body = {
            "metadata": {"name": name, "namespace": ref.namespace},
            "spec": {"controlPlaneRef": {"name": plane, "namespace": self.world.plane_ns}, **blocks},
        }
        await self.admin.create(KEYSTONE_SERVICE, body)
        return ref

    async def edit(self, ref: OrderRef, **spec: Any) -> Object:
        return await self.admin.patch(KEYSTONE_SERVICE, ref.namespace, ref.name, {"spec": spec})

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        async with self.korc.playing(), self.eso.playing():
            yield

    # -- looking ------------------------------------------------------------------------------------------------

    def name(self, ref: OrderRef, suffix: str) -> str:
        return f"{children.prefix(ref)}{suffix}"

    def hand(self, ref: OrderRef, suffix: str) -> tuple[KorcByHand, str]:
        """K-ORC's hand on a child, and its name."""
        kind = {"service": "Service", "endpoint": "Endpoint", "user": "User", "project": "Project", "domain": "Domain",
                "role": "Role", "assign": "RoleAssignment"}[suffix.split("-")[0]]  # fmt: skip
        return self.korc.of(kind), self.name(ref, suffix)

    async def children(self) -> list[tuple[str, Object]]:
        """Everything a registration can have made, in both namespaces: kind and object."""
        found = []
        for namespace in (self.world.plane_ns, self.world.order_ns):
            for kind in OF_A_REGISTRATION:
                for item in (await self.admin.list(kind, namespace))["items"]:
                    if item["metadata"]["name"] != "cp-domain-default":
                        found.append((kind.kind, item))
        return found

    async def names(self, *kinds: str) -> list[str]:
        """Their names without what all of an order's share."""
        return sorted(
            f"{kind}/{item['metadata']['name'].partition('-registration-')[2] or item['metadata']['name']}"
            for kind, item in await self.children()
            if not kinds or kind in kinds
        )

    async def versions(self) -> dict[str, str]:
        return {f"{k}/{i['metadata']['name']}": i["metadata"]["resourceVersion"] for k, i in await self.children()}

    async def leases(self) -> list[Object]:
        return list((await self.admin.list(LEASE, self.world.plane_ns))["items"])

    async def secret(self, namespace: str, name: str) -> dict[str, str] | None:
        live = await self.admin.get(SECRET, namespace, name)
        return None if live is None else dict(live.get("data") or {})

    async def delivery(self, ref: OrderRef) -> tuple[Object | None, Object | None]:
        push = await self.admin.get(PUSH_SECRET, ref.namespace, delivery.backup_name(ref))
        return push, await self.admin.get(EXTERNAL_SECRET, ref.namespace, delivery.consumer_name(ref))

    async def reasons(self, ref: OrderRef) -> tuple[str, str]:
        found = await self.world.conditions(ref)
        return found["CatalogReady"]["reason"], found["AccountReady"]["reason"]

    async def message(self, ref: OrderRef, type_: str) -> str:
        return str((await self.world.conditions(ref))[type_]["message"])

    async def status(self, ref: OrderRef) -> Object:
        return dict((await self.world.live(ref)).get("status") or {})

    # -- the product's steps ------------------------------------------------------------------------------------

    def through(self, cluster: Cluster | None) -> KeystoneServices:
        """Leads the steps through another connection from now on; None is the product's own."""
        self.steps = self.world.services if cluster is None else KeystoneServices(Clusters(cluster, REGISTRATIONS))
        return self.steps

    async def moved(self, ref: OrderRef) -> bool:
        """Whether the look of an order that waits calls for a pass, after what its status says."""
        live, found = await self.world.live(ref), []
        for each in live["status"]["conditions"]:
            if each["type"] != "Ready":
                about = {key: each[key] for key in ("type", "reason", "message")}
                found.append(Verdict(status=each["status"] == "True", again=self._again.get(each["type"]), **about))
        generation, paused = live["metadata"]["generation"], (await run(self.world.orders.examine, ref)).order.paused
        wait = Wait(ref=ref, generation=generation, paused=paused, verdicts=tuple(found), every=10)
        try:
            await run_attempt(2, self.world.orders.settle, wait)
        except ApplicationError as error:
            if error.type == "Settling":
                return False
            raise
        return True

    async def catalog(self, ref: OrderRef) -> Verdict:
        (verdict,) = (await retried(self.steps.provision_catalog, await self.world.task(ref))).verdicts
        return verdict

    async def account(self, ref: OrderRef) -> Verdict:
        """The account's two steps, as the workflow walks them."""
        outcome = await self._account(await self.world.task(ref))
        return outcome.verdicts[0]

    async def _account(self, task: Task) -> Outcome:
        accounts = self.steps.accounts
        outcome = await retried(accounts.provision_account, task)
        if not task.order.spec.get("account") or not all(verdict.status for verdict in outcome.verdicts):
            return outcome
        known = task.order.model_copy(update={"status": {**task.order.status, **outcome.fields}})
        published = await retried(accounts.publish_account, task.model_copy(update={"order": known}))
        return Outcome(verdicts=published.verdicts, fields=outcome.fields)

    async def one_pass(self, ref: OrderRef) -> Admitted:
        """A pass as the workflow walks it, with the real steps and without Temporal."""
        admitted = await run(self.world.orders.admit, ref)
        assert admitted.state is State.PRESENT, admitted
        assert not admitted.trouble, admitted.trouble
        if admitted.refused:
            outcome = Outcome(verdicts=admitted.refused, fields=gates.fields(admitted.order.spec))
        elif admitted.found is not None:
            outcome = admitted.found
        else:
            task = Task(ref=ref, order=admitted.order, plane=admitted.plane)
            one, other = await asyncio.gather(retried(self.steps.provision_catalog, task), self._account(task))
            outcome = Outcome(verdicts=(*one.verdicts, *other.verdicts), fields={**one.fields, **other.fields})
        await self.report(ref, admitted, outcome)
        return admitted

    async def report(self, ref: OrderRef, seen: Admitted, outcome: Outcome) -> None:
        order, self._again = seen.order, {verdict.type: verdict.again for verdict in outcome.verdicts}
        patch = conditions.changes(
            order.status, order.generation, reasons.CONDITIONS, outcome.verdicts, outcome.fields, order.paused,
            datetime.now(UTC),
        )  # fmt: skip
        if patch is not None:
            report = Report(ref=ref, uid=order.uid, resource_version=order.resource_version, status=patch)
            await run(self.world.orders.report, report)

    async def ready(self, name: str = "images", **order: Any) -> OrderRef:
        """A registration that was served by the product until it was Ready, everybody playing along."""
        ref = await self.order(name, **order)
        async with self.playing():
            await self.passes_until_ready(ref)
        return ref

    async def passes_until_ready(self, ref: OrderRef, seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            await self.one_pass(ref)
            while (await self.world.conditions(ref))["Ready"]["status"] != "True":
                await self.one_pass(ref)

    async def torn_down(self, ref: OrderRef) -> Removal:
        """A teardown's pass: what is left, after the release if nothing is."""
        task = await self.world.removal(ref)
        removal = await retried(self.steps.remove_registration, task)
        if not removal.left:
            await run(self.world.orders.release, task)
        return removal

    async def removed(self, ref: OrderRef, seconds: float = 60) -> None:
        """Deletes the order and tears it down, everybody playing along, until it is gone."""
        await self.world.delete(ref)
        async with self.playing(), asyncio.timeout(seconds):
            while await self.world.find(ref) is not None:
                await self.torn_down(ref)
