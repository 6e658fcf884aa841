"""Ordered databases on the real API servers: the steps one by one, with everybody around them played by hand.

cert-manager, mariadb-operator and External Secrets answer at once through `Neighbours`; OpenBao is `Vault`, which keeps
roles and writes down who asked for what. What the product does is its own, with its own rights.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from activities.cluster import (
    CERTIFICATE,
    CONTROL_PLANE,
    DATABASE,
    EXTERNAL_SECRET,
    MARIADB,
    MARIADB_DATABASE,
    SECRET,
    VAULT_DYNAMIC_SECRET,
    Cluster,
    Kind,
    Object,
)
from activities.errors import ClusterError, OpenBaoError
from activities.mariadbdatabase import MariaDBDatabases
from activities.openbao import OpenBao
from activities.orders import Orders
from tests.world import World, retried, run
from workflows.api.mariadbdatabase import Bao
from workflows.mariadbdatabase import children, delivery, reasons
from workflows.scaffold import conditions
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import Admitted, OrderSeen, Removal, Report, State, Task
from workflows.scaffold.verdict import Outcome

CLIENT = children.CLIENT


class Vault(OpenBao):
    """OpenBao by hand. `refuse` maps a call to what it fails with."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.roles: dict[str, Object] = {}
        self.refuse: dict[str, OpenBaoError] = {}
        self.servers: list[Bao] = []

    @asynccontextmanager
    async def session(self, bao: Bao, pair: Mapping[str, bytes], until: float) -> AsyncIterator[Any]:
        self.servers.append(bao)
        assert all(pair.get(key) for key in children.CLIENT_KEYS)
        self._call("login")
        try:
            yield self
        finally:
            self.calls.append("close")

    async def read_role(self, name: str) -> Object | None:
        self._call("read")
        return self.roles.get(name)

    async def write_role(self, name: str, role: Object) -> None:
        self._call("write")
        self.roles[name] = role

    async def revoke(self, name: str) -> None:
        self._call("revoke")

    async def delete_role(self, name: str) -> None:
        self._call("delete")
        self.roles.pop(name, None)

    def _call(self, what: str) -> None:
        self.calls.append(what)
        if what in self.refuse:
            raise self.refuse[what]


class Ordering:
    """What a test needs beside its `World`, for databases."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.admin = world.admin
        self.vault = Vault()
        self.databases = MariaDBDatabases(world.clusters, self.vault)
        self.orders = Orders(world.clusters, {"MariaDBDatabase": self.databases})
        self.users = 0

    # -- arranging ------------------------------------------------------------------------------------------------

    async def plane(self, *, mariadb: bool = True, credentials: bool = True, **more: Any) -> None:
        await self.world.plane(**more)
        if credentials:
            await self.flip("True")
        if mariadb:
            await self.server()

    async def flip(self, status: str) -> None:
        said = [
            {"type": "DBCredentialsReady", "status": status, "reason": "R", "message": "", "lastTransitionTime": _now()}
        ]
        body = {"status": {"conditions": said}}
        await self.admin.patch(CONTROL_PLANE, self.world.plane_ns, "cp", body, sub="status")

    async def server(self, status: str = "True", *, cluster: Cluster | None = None) -> None:
        on = cluster or self.admin
        meta = {"name": "mariadb", "namespace": self.world.plane_ns}
        if await on.get(MARIADB, meta["namespace"], meta["name"]) is None:
            await on.create(MARIADB, {"metadata": meta, "spec": {}})
        await ready_on(on, MARIADB, meta["namespace"], meta["name"], status, "Running")

    async def order(self, name: str = "reports", *, cluster: str = "", finalizers: tuple[str, ...] = (), **spec: Any) -> OrderRef:  # noqa: E501  # fmt: skip
        plane = {"controlPlaneRef": {"name": "cp", "namespace": self.world.plane_ns}}
        meta = {"name": name, "namespace": self.world.order_ns, "finalizers": list(finalizers)}
        await self.world.home(cluster).create(MARIADB_DATABASE, {"metadata": meta, "spec": {**plane, **spec}})
        return OrderRef(kind="MariaDBDatabase", cluster=cluster, namespace=self.world.order_ns, name=name)

    async def edit(self, ref: OrderRef, **spec: Any) -> None:
        await self.world.home(ref.cluster).patch(MARIADB_DATABASE, ref.namespace, ref.name, {"spec": spec})

    async def delete(self, ref: OrderRef) -> None:
        live = await self.live(ref)
        await self.world.home(ref.cluster).delete(MARIADB_DATABASE, ref.namespace, ref.name, live["metadata"]["uid"])

    async def ready(self, name: str = "reports", **more: Any) -> OrderRef:
        ref = await self.order(name, **more)
        async with self.neighbours():
            await self.passes_until(ref, reasons.DELIVERED)
        return ref

    async def passes_until(self, ref: OrderRef, reason: str, type_: str = reasons.DELIVERY_READY) -> None:
        async with asyncio.timeout(60):
            await self.one_pass(ref)
            while (await self.reasons(ref)).get(type_) != reason:
                await self.one_pass(ref)

    # -- looking --------------------------------------------------------------------------------------------------

    async def find(self, ref: OrderRef) -> Object | None:
        return await self.world.home(ref.cluster).get(MARIADB_DATABASE, ref.namespace, ref.name)

    async def live(self, ref: OrderRef) -> Object:
        found = await self.find(ref)
        assert found is not None
        return found

    async def status(self, ref: OrderRef) -> Object:
        return dict((await self.live(ref)).get("status") or {})

    async def conditions(self, ref: OrderRef) -> dict[str, Object]:
        return {each["type"]: each for each in (await self.status(ref)).get("conditions") or []}

    async def reasons(self, ref: OrderRef) -> dict[str, str]:
        return {type_: each["reason"] for type_, each in (await self.conditions(ref)).items()}

    async def secret(self, ref: OrderRef) -> Object | None:
        return await self.world.home(ref.cluster).get(SECRET, ref.namespace, children.delivered_name(ref))

    async def delivered(self, ref: OrderRef) -> dict[str, str]:
        data = ((await self.secret(ref)) or {}).get("data") or {}
        return {key: b64decode(value).decode() for key, value in data.items()}

    async def children(self) -> list[str]:
        """What is in the plane's namespace of the kinds that orders make there."""
        kinds = (DATABASE, VAULT_DYNAMIC_SECRET, EXTERNAL_SECRET, CERTIFICATE)
        return [
            f"{kind.kind} {one['metadata']['name']}"
            for kind in kinds
            for one in (await self.admin.list(kind, self.world.plane_ns))["items"]
        ]

    async def database(self, ref: OrderRef) -> Object | None:
        return await self.admin.get(DATABASE, self.world.plane_ns, f"{children.prefix(ref)}database")

    # -- the product's steps --------------------------------------------------------------------------------------

    async def one_pass(self, ref: OrderRef) -> Admitted:
        """A pass as the workflow walks it, with the real steps and without Temporal."""
        admitted = await run(self.orders.admit, ref)
        assert admitted.state is State.PRESENT, admitted
        assert not admitted.trouble, admitted.trouble
        if admitted.refused:
            outcome = Outcome(verdicts=admitted.refused)
        elif admitted.found is not None:
            outcome = admitted.found
        else:
            task = Task(ref=ref, order=admitted.order, plane=admitted.plane)
            outcome = await retried(self.databases.provision_database, task)
            (verdict,) = outcome.verdicts
            if verdict.status:
                parcel = await retried(self.databases.deliver_database, task)
                outcome = Outcome(verdicts=(verdict, *parcel.verdicts), fields={**outcome.fields, **parcel.fields})
            else:
                outcome = Outcome(verdicts=(verdict, delivery.skipped(verdict)), fields=outcome.fields)
        await self.report(ref, admitted.order, outcome, admitted.order.paused)
        return admitted

    async def report(self, ref: OrderRef, order: OrderSeen, outcome: Outcome, note: str = "") -> None:
        patch = conditions.changes(
            order.status, order.generation, reasons.CONDITIONS, outcome.verdicts, outcome.fields, note,
            datetime.now(UTC),
        )  # fmt: skip
        if patch is not None:
            report = Report(ref=ref, uid=order.uid, resource_version=order.resource_version, status=patch)
            await run(self.orders.report, report)

    async def task(self, ref: OrderRef) -> Task:
        """What `admit` would hand on; it is not asked, for it may do the work itself."""
        live = await self.live(ref)
        plane = await run(self.orders.examine, ref)
        order = OrderSeen(
            uid=live["metadata"]["uid"], generation=live["metadata"]["generation"],
            resource_version=live["metadata"]["resourceVersion"], plane_key=f"{self.world.plane_ns}/cp",
            finalized=True, spec=live["spec"], status=live.get("status") or {},
        )  # fmt: skip
        return Task(ref=ref, order=order, plane=plane.plane)

    async def torn_down(self, ref: OrderRef) -> Removal:
        examined = await run(self.orders.examine, ref)
        assert examined.state is State.DELETING, examined
        task = Task(ref=ref, order=examined.order, plane=examined.plane)
        removal = await retried(self.databases.remove_database, task)
        if not removal.left and not removal.held:
            await run(self.orders.release, task)
        return removal

    # -- who else acts --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def neighbours(self, *, database: bool = True, external: bool = True, username: str = "v-user") -> AsyncIterator[None]:  # noqa: E501  # fmt: skip
        """cert-manager, mariadb-operator and External Secrets, answering whatever is there."""

        async def play() -> None:
            while True:
                with suppress(ClusterError):
                    await self.certificate()
                    if database:
                        await self._schemas()
                    if external:
                        await self._credentials(username)
                await asyncio.sleep(0.05)

        playing = asyncio.create_task(play())
        try:
            yield
        finally:
            playing.cancel()
            with suppress(asyncio.CancelledError):
                await playing

    async def certificate(self, *keys: str) -> None:
        """What cert-manager writes once it is asked."""
        namespace = self.world.plane_ns
        if await self.admin.get(CERTIFICATE, namespace, CLIENT) is None:
            return
        if await self.admin.get(SECRET, namespace, CLIENT) is None:
            data = dict.fromkeys(keys or children.CLIENT_KEYS, "cGVt")
            await self.admin.create(SECRET, {"metadata": {"name": CLIENT, "namespace": namespace}, "data": data})

    async def _schemas(self) -> None:
        for one in (await self.admin.list(DATABASE, self.world.plane_ns))["items"]:
            if not (one.get("status") or {}).get("conditions"):
                await ready_on(self.admin, DATABASE, self.world.plane_ns, one["metadata"]["name"], "True", "Created")

    async def _credentials(self, username: str) -> None:
        for one in (await self.admin.list(EXTERNAL_SECRET, self.world.plane_ns))["items"]:
            if not (one.get("status") or {}).get("refreshTime") and not one["metadata"].get("deletionTimestamp"):
                await self.issue(one["metadata"]["name"], username)

    async def issue(self, name: str, username: str = "v-user") -> str:
        """A new user, as External Secrets fetches it; answers its name."""
        user = await self.write(name, username)
        await self.say(name, _now())
        return user

    async def write(self, name: str, username: str = "v-user") -> str:
        """The first half of a fetch: the Secret."""
        self.users += 1
        live = await self.admin.get(EXTERNAL_SECRET, self.world.plane_ns, name)
        assert live is not None
        user = f"{username}-{self.users}"
        body = {
            "metadata": {
                "name": name,
                "namespace": self.world.plane_ns,
                "labels": live["spec"]["target"]["template"]["metadata"]["labels"],
            },
            "data": {
                "username": b64encode(user.encode()).decode(),
                "password": b64encode(f"p{self.users}".encode()).decode(),
            },
        }
        await self.admin.apply(SECRET, body, force=True)
        return user

    async def say(self, name: str, when: str) -> None:
        """The second half: what is said of it."""
        said = _condition("True", "SecretSynced")
        status = {"conditions": [said], "refreshTime": when, "syncedResourceVersion": str(self.users)}
        await self.admin.patch(EXTERNAL_SECRET, self.world.plane_ns, name, {"status": status}, sub="status")


async def ready_on(
    cluster: Cluster, kind: Kind, namespace: str, name: str, status: str = "True", reason: str = "Created"
) -> None:
    body = {"status": {"conditions": [_condition(status, reason)]}}
    await cluster.patch(kind, namespace, name, body, sub="status")


def _condition(status: str, reason: str) -> Object:
    return {"type": "Ready", "status": status, "reason": reason, "message": reason, "lastTransitionTime": _now()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
