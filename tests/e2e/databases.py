"""Ordered databases as outsiders see them: MariaDB itself, OpenBao's audit log, the Secrets, the status.

Each estate is a plane of its test's own, with a database connection of its own over the one MariaDB. Names and bodies
are computed anew from the contracts, so an error of the product cannot hide in a helper it shares.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import hvac
import pymysql

from deploy.local import kube
from deploy.local.parts import mariadb, openbao, planes
from deploy.openbao.bootstrap import Bootstrap
from deploy.openbao.layout import Tenant, tenant_store
from tests.e2e.stage import TARGET, Object, Placed, Stage, condition, until

ORDERS = "mariadbdatabases.c5c3.io"
DATABASES = "databases.k8s.mariadb.com"
GENERATORS = "vaultdynamicsecrets.generators.external-secrets.io"
EXTERNALS = "externalsecrets.external-secrets.io"
CERTIFICATES = "certificates.cert-manager.io"
CLIENT = "order-db-openbao-client"
FINALIZER = "c5c3.io/mariadbdatabase-teardown"
US = "kubernetes-management-c5c3-system-c5c3-operator"
ESO = "order-db-creds"


@dataclass
class Estate:
    """A plane with its own namespace, its own MariaDB object and its own connection in OpenBao."""

    stage: Stage
    namespace: str
    bao: hvac.Client = field(repr=False)
    name: str = "cp"

    @property
    def tenant(self) -> Tenant:
        return Tenant(self.namespace, self.namespace, f"127.0.0.1:{self.stage.stack.ports['mariadb']}")

    def database(self, name: str, **more: Any) -> Database:
        return Database(self, name, **more)

    async def onboard(self) -> None:
        """As the plane's operator does."""
        password = await asyncio.to_thread(mariadb.root_password, self.stage.stack)
        steps = Bootstrap(openbao.connection(self.stage.stack))
        await asyncio.to_thread(steps.database_tenant, self.tenant, password)

    async def assign(self, *entries: Object) -> None:
        change = {"spec": {"namespaceAssignments": list(entries)}}
        await self.patch("controlplanes.c5c3.io", self.name, change)

    async def patch(self, resource: str, name: str, change: Object, sub: str = "") -> None:
        await kube.patch(self.stage.stack, "management", resource, self.namespace, name, change, sub)

    async def get(self, resource: str, name: str) -> Object | None:
        return await kube.get(self.stage.stack, "management", resource, self.namespace, name)

    async def items(self, resource: str, selector: str = "") -> list[Object]:
        return await kube.items(self.stage.stack, "management", resource, self.namespace, selector)

    async def role(self, name: str) -> Object | None:
        found = await asyncio.to_thread(self.bao.read, f"database/mariadb/roles/{name}")
        return dict(found["data"]) if found else None

    async def leases(self, role: str) -> list[str]:
        found = await asyncio.to_thread(self.bao.list, f"sys/leases/lookup/database/mariadb/creds/{role}")
        return list(found["data"]["keys"]) if found else []


@dataclass
class Database(Placed):
    """One MariaDBDatabase."""

    resource = ORDERS
    estate: Estate
    name: str
    namespace: str = "team-a"
    cluster: str = "management"
    schema: str = ""
    policy: str = ""

    def __post_init__(self) -> None:
        self.stage = self.estate.stage

    @property
    def workflow_id(self) -> str:
        return f"MariaDBDatabase:{self.namespace}/{self.name}" + (f"@{TARGET}" if self.cluster == "target" else "")

    @property
    def where(self) -> str:
        return TARGET if self.cluster == "target" else ""

    @property
    def prefix(self) -> str:
        digest = hashlib.sha256(f"{self.where}/{self.namespace}/{self.name}".encode()).hexdigest()[:8]
        return f"{self.name}-{digest}-database"

    @property
    def role(self) -> str:
        return f"order.{self.estate.namespace}.{self.prefix}"

    @property
    def labels(self) -> dict[str, str]:
        stem = "c5c3.io/mariadbdatabase"
        return {f"{stem}-name": self.name, f"{stem}-namespace": self.namespace, f"{stem}-cluster": self.where}

    @property
    def effective(self) -> str:
        return self.schema or self.name.replace("-", "_")

    @property
    def body(self) -> Object:
        spec: Object = {"controlPlaneRef": {"name": self.estate.name, "namespace": self.estate.namespace}}
        spec |= {"databaseName": self.schema} if self.schema else {}
        spec |= {"deletionPolicy": self.policy} if self.policy else {}
        meta = {"name": self.name, "namespace": self.namespace}
        return {"apiVersion": "c5c3.io/v1alpha1", "kind": "MariaDBDatabase", "metadata": meta, "spec": spec}

    async def settles(self, seconds: float = 60) -> Object:
        """Ready, and not rung for as long as news folds: External Secrets may fetch twice, it sees its writes late."""
        await self.is_ready(seconds)
        length, since, deadline = 0, time.monotonic(), time.monotonic() + seconds
        while time.monotonic() < since + 6:
            assert time.monotonic() < deadline, "the order does not come to rest"
            if (now := (await self.handle.describe()).history_length) != length:
                length, since = now, time.monotonic()
            await asyncio.sleep(0.2)
        return await self.is_ready(seconds)

    async def reads(self, type_: str, *reasons: str, seconds: float = 60) -> Object:
        found = await until(self.live, lambda live: condition(live, type_).get("reason") in reasons, seconds)
        return condition(found, type_)

    async def delivered(self) -> dict[str, str]:
        """What the Secret beside the order says."""
        seen = await self.secret()
        data = {key: base64.b64decode(value).decode() for key, value in ((seen or {}).get("data") or {}).items()}
        self.stage.secrets |= {data["password"]} if data.get("password") else set()
        return data

    async def secret(self) -> Object | None:
        return await kube.get(self.stage.stack, self.cluster, "secrets", self.namespace, f"{self.name}-credentials")

    async def external(self) -> Object | None:
        return await self.estate.get(EXTERNALS, f"{self.prefix}-credentials")

    async def live_database(self) -> Object | None:
        return await self.estate.get(DATABASES, f"{self.prefix}-database")

    async def refresh(self) -> None:
        """As a person forces it."""
        mark = {"metadata": {"annotations": {"force-sync": secrets.token_hex(4)}}}
        await self.estate.patch(EXTERNALS, f"{self.prefix}-credentials", mark)

    async def resync(self) -> Object:
        return dict(await self.handle.execute_update("resync_now", result_type=dict))

    async def annotate(self, **annotations: str | None) -> None:
        change = {"metadata": {"annotations": annotations}}
        await kube.patch(self.stage.stack, self.cluster, ORDERS, self.namespace, self.name, change)

    async def children(self) -> list[Object]:
        """Everything beside the plane that carries the order's labels."""
        selector = ",".join(f"{key}={value}" for key, value in self.labels.items())
        kinds = (DATABASES, GENERATORS, EXTERNALS, "secrets", "leases.coordination.k8s.io")
        return [one for kind in kinds for one in await self.estate.items(kind, selector)]

    # -- MariaDB itself -------------------------------------------------------------------------------------------

    async def sql(self, data: dict[str, str], *statements: str) -> list[Any]:
        """As the delivered user; by this machine's address, for there is no Service here."""

        def work() -> list[Any]:
            port = self.stage.stack.ports["mariadb"]
            user, password = data["username"], data["password"]
            with (
                pymysql.connect(host="127.0.0.1", port=port, user=user, password=password, autocommit=True) as one,
                one.cursor() as cursor,
            ):
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())

        return await asyncio.to_thread(work)

    async def logs_in(self, data: dict[str, str]) -> bool:
        try:
            await self.sql(data, "SELECT 1")
        except pymysql.err.OperationalError as error:
            if error.args[0] != 1045:
                raise
            return False
        return True

    async def users(self) -> set[str]:
        """The SQL users that may do something in its schema."""
        query = "SELECT User FROM mysql.db WHERE Db IN (%s, %s)"
        names = (self.effective, self.effective.replace("_", "\\_"))
        rows = await asyncio.to_thread(mariadb.execute, self.stage.stack, (query, names))
        return {row[0] for row in rows}

    async def has_schema(self) -> bool:
        rows = await asyncio.to_thread(mariadb.execute, self.stage.stack, ("SHOW DATABASES", ()))
        return self.effective in {row[0] for row in rows}


class Witness:
    """What OpenBao was asked from now on, by its own audit log."""

    def __init__(self, stage: Stage) -> None:
        self._file = openbao.audit_log(stage.stack)
        self._from = self._file.stat().st_size

    async def asked(self, who: str = US, settle: float = 0.3) -> list[str]:
        """Every request by this login, as `operation path`, in order; refused ones end in `!`."""
        return [what for _, what in await self.moments(who, settle)]

    async def moments(self, who: str = US, settle: float = 0.3) -> list[tuple[float, str]]:
        """The same, with when each was answered, in epoch seconds."""
        await asyncio.sleep(settle)
        found = []
        with self._file.open("rb") as log:
            log.seek(self._from)
            for line in log:
                if not line.endswith(b"\n"):
                    continue
                entry = json.loads(line)
                if entry["type"] != "response":
                    continue
                by = [(entry.get("auth") or {}), ((entry.get("response") or {}).get("auth") or {})]
                if any(one.get("display_name") == who for one in by):
                    request = entry["request"]
                    failed = "!" if entry.get("error") else ""
                    at = datetime.fromisoformat(entry["time"]).timestamp()
                    found.append((at, f"{request['operation']} {request['path']}{failed}"))
        return found


LOGIN, LOGOUT = "update auth/kubernetes/management/login", "update auth/token/revoke-self"


@asynccontextmanager
async def sealed(stage: Stage) -> AsyncIterator[None]:
    """OpenBao answers, and says that it is sealed."""
    await asyncio.to_thread(openbao.connection(stage.stack).client().sys.seal)
    try:
        yield
    finally:
        await openbao._unseal(stage.stack)


@asynccontextmanager
async def estate(stage: Stage, *, tls: Object | None = None, keystone: Object | None = None) -> AsyncIterator[Estate]:
    """A plane that assigns team-a and team-b here and team-a on the target; with it go its namespace and connection.

    keystone  where its Keystone is, if not beside it
    """
    made = Estate(stage, f"db-{secrets.token_hex(3)}", openbao.connection(stage.stack).client())
    here, where = stage.stack, {"namespace": made.namespace}
    address = f"127.0.0.1:{here.ports['mariadb']}"
    database: Object = {"clusterRef": {"name": "mariadb"}, "credentialsMode": "Dynamic"}
    plane = {
        "openStackRelease": "2026.2",
        "region": "RegionOne",
        "infrastructure": {
            "database": database | ({"tls": tls} if tls else {}),
            "publishedDatabaseEndpoint": address,
        },
        "services": {"keystone": {"mode": "Managed", **(keystone or {})}},
        "namespaceAssignments": [
            {"namespace": "team-a"},
            {"namespace": "team-b"},
            {"namespace": "team-a", "targetClusterRef": {"name": TARGET}},
        ],
    }
    objects: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": made.namespace}},
        planes.secret(made.namespace, "mariadb-root", password=mariadb.root_password(here)),
        {
            "apiVersion": "k8s.mariadb.com/v1alpha1",
            "kind": "MariaDB",
            "metadata": {**where, "name": "mariadb"},
            "spec": {"rootPasswordSecretKeyRef": {"name": "mariadb-root", "key": "password"}},
        },
        {
            "apiVersion": "c5c3.io/v1alpha1",
            "kind": "ControlPlane",
            "metadata": {**where, "name": made.name},
            "spec": plane,
        },
    ]
    await kube.apply(here, "management", [*objects, *tenant_store(made.namespace, openbao.url(here))])
    await planes.set_conditions(here, "MariaDB", made.namespace, "mariadb", {"Ready": ("Ready", "Running")})
    await made.onboard()
    good = {"DBCredentialsReady": ("DBCredentialsReady", "Set by a test in place of the plane's operator")}
    await planes.set_conditions(here, "ControlPlane", made.namespace, made.name, good)
    try:
        yield made
    finally:
        await _drop(made)


async def _drop(made: Estate) -> None:
    """What orders of it are still there goes first."""
    stage = made.stage
    for cluster in ("management", "target"):
        for namespace in ("team-a", "team-b"):
            for one in await kube.items(stage.stack, cluster, ORDERS, namespace):
                if one["spec"]["controlPlaneRef"].get("namespace") == made.namespace:
                    order = Database(made, one["metadata"]["name"], namespace, cluster)
                    await order.delete()
                    await order.gone(120)
    await stage.delete("management", "controlplanes.c5c3.io", made.namespace, made.name)
    await stage.delete("management", "namespaces", None, made.namespace)
    await asyncio.to_thread(made.bao.delete, f"database/mariadb/config/keystone-{made.namespace}")
