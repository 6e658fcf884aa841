"""What a test on the whole stack has of KeystoneServices: orders by the admin's hand, and what outsiders show of them.

Like `stage`, it asks the product nothing: names are computed anew from the contracts, and Keystone, OpenBao, Temporal
and the API server tell how things are. What secret value it sees goes onto the stage's list of what must show up
nowhere.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from dataclasses import dataclass, field

import yaml

from deploy.local import kube
from deploy.local.parts import openbao
from tests.audit import OPERATOR, Audit, Request
from tests.e2e.stage import PATIENCE, Object, Placed, Plane, Stage, condition, until

ORDERS = "keystoneservices.c5c3.io"
FINALIZER = "c5c3.io/keystoneservice-teardown"
GENERATION = "cobaltcore.c5c3.io/password-generation"
KORC = "openstack.k-orc.cloud"
SECRETS, LEASES = "secrets", "leases.coordination.k8s.io"
PUSHES, FETCHES = "pushsecrets.external-secrets.io", "externalsecrets.external-secrets.io"
BESIDE_THE_PLANE = ("RoleAssignment", "Role", "Endpoint", "Service", "User", "Project", "Domain")
RESOURCES = {kind: f"{kind.lower()}s.{KORC}" for kind in BESIDE_THE_PLANE} | {
    "Secret": SECRETS,
    "Lease": LEASES,
    "PushSecret": PUSHES,
    "ExternalSecret": FETCHES,
}


def slug(role: str) -> str:
    """Contracts 4.6."""
    base = re.sub("[^a-z0-9]+", "-", role.lower()).strip("-")[:16]
    return f"{base}-{hashlib.sha256(role.encode()).hexdigest()[:8]}"


def catalog(*interfaces: str, type_: str = "registry", **more: object) -> Object:
    """A catalog block with these interfaces."""
    urls = [{"interface": each, "url": f"http://{each}.example.org:8080/v1"} for each in interfaces]
    return {"serviceType": type_, **({"endpoints": urls} if urls else {}), **more}


def account(project: str, *roles: str, create: bool = True, **more: object) -> Object:
    """An account block that works in this project."""
    return {"project": {"name": project, "create": create}, **({"roles": list(roles)} if roles else {}), **more}


@dataclass
class Service(Placed):
    """One KeystoneService, as it is to be placed."""

    resource = ORDERS
    cluster = "management"
    stage: Stage = field(repr=False)
    name: str
    namespace: str
    plane: Plane
    catalog: Object | None
    account: Object | None
    meta: Object = field(default_factory=dict)

    # -- what it is called ----------------------------------------------------------------------------------------

    @property
    def workflow_id(self) -> str:
        return f"KeystoneService:{self.namespace}/{self.name}"

    @property
    def prefix(self) -> str:
        digest = hashlib.sha256(f"{self.namespace}/{self.name}".encode()).hexdigest()[:8]
        return f"{self.name}-{digest}-registration-"

    @property
    def labels(self) -> dict[str, str]:
        stem = "c5c3.io/keystoneservice"
        return {f"{stem}-name": self.name, f"{stem}-namespace": self.namespace}

    @property
    def remote_key(self) -> str:
        return f"openstack/keystone/{self.namespace}/{self.name}/service-accounts/credentials"

    @property
    def service_name(self) -> str:
        return str((self.catalog or {}).get("serviceName") or self.name)

    @property
    def user_name(self) -> str:
        return str((self.account or {}).get("userName") or self.name)

    @property
    def project(self) -> str:
        return str((self.account or {})["project"]["name"])

    @property
    def body(self) -> Object:
        spec: Object = {"controlPlaneRef": {"name": self.plane.name, "namespace": self.plane.namespace}}
        spec |= {"catalog": self.catalog} if self.catalog is not None else {}
        spec |= {"account": self.account} if self.account is not None else {}
        meta = {**self.meta, "name": self.name, "namespace": self.namespace}
        return {"apiVersion": "c5c3.io/v1alpha1", "kind": "KeystoneService", "metadata": meta, "spec": spec}

    # -- by the admin's hand --------------------------------------------------------------------------------------

    async def edit(self, **spec: object) -> Object:
        """Merges into its spec: `edit(catalog=None)` removes the block."""
        return await kube.patch(self.stage.stack, "management", ORDERS, self.namespace, self.name, {"spec": spec})

    async def nudge(self) -> None:
        """Asks for the next password as an operator does by hand: the managed User's annotation is emptied."""
        change = {"metadata": {"annotations": {GENERATION: ""}}}
        resource = RESOURCES["User"]
        await kube.patch(self.stage.stack, "management", resource, self.plane.namespace, f"{self.prefix}user", change)

    # -- as the API server has it ---------------------------------------------------------------------------------

    async def conditions(self) -> dict[str, Object]:
        return {each["type"]: each for each in ((await self.live()) or {}).get("status", {}).get("conditions", [])}

    async def reads(self, block: str, *reasons: str, seconds: float = PATIENCE) -> Object:
        """Waits until the block ("catalog", "account") reads one of these reasons, and answers its condition."""
        type_ = f"{block.capitalize()}Ready"
        found = await until(self.live, lambda live: condition(live, type_).get("reason") in reasons, seconds)
        return condition(found, type_)

    async def is_ready(self, seconds: float = PATIENCE) -> Object:
        """Waits until it is Ready for the generation that it has, and answers the order."""

        def holds(live: Object | None) -> bool:
            ready = condition(live, "Ready")
            generation = (live or {}).get("metadata", {}).get("generation")
            return ready.get("status") == "True" and ready.get("observedGeneration") == generation

        found = await until(self.live, holds, seconds)
        assert found is not None
        await self.secrets()
        return found

    async def child(self, kind: str, suffix: str) -> Object | None:
        """One child by the end of its name; those beside the order, too."""
        beside_order = kind in ("PushSecret", "ExternalSecret") or suffix == "source"
        namespace = self.namespace if beside_order else self.plane.namespace
        return await kube.get(self.stage.stack, "management", RESOURCES[kind], namespace, f"{self.prefix}{suffix}")

    async def push_secret(self) -> Object | None:
        return await self.child("PushSecret", "backup")

    async def external_secret(self) -> Object | None:
        return await kube.get(self.stage.stack, "management", FETCHES, self.namespace, f"{self.name}-credentials")

    async def consumer(self) -> Object | None:
        """The Secret that the service reads, as an object."""
        found = await kube.get(self.stage.stack, "management", SECRETS, self.namespace, f"{self.name}-credentials")
        self._remember(decoded(found))
        return found

    async def objects(self) -> dict[str, Object]:
        """Everything that carries its labels, by `Kind/end of the name`; the claims by `Lease/name`."""
        found: dict[str, Object] = {}
        if len(self.name) > 63:
            return found  # no object can carry such a label, nor can the server be asked for one
        selector = ",".join(f"{key}={value}" for key, value in self.labels.items())
        namespaces = dict.fromkeys((self.plane.namespace, self.namespace))
        where = [(kind, namespace) for kind in RESOURCES for namespace in namespaces]
        listed = await asyncio.gather(
            *(kube.items(self.stage.stack, "management", RESOURCES[kind], space, selector) for kind, space in where)
        )
        for (kind, _), items in zip(where, listed, strict=True):
            found |= {f"{kind}/{item['metadata']['name'].removeprefix(self.prefix)}": item for item in items}
        return found

    async def children(self) -> set[str]:
        """The same by name alone, without the claims and what External Secrets made (it copies our labels onto it)."""
        return self.of_ours(await self.objects())

    def of_ours(self, objects: Object) -> set[str]:
        return {name for name in objects if not name.startswith("Lease/")} - {f"Secret/{self.name}-credentials"}

    # -- the secret values ----------------------------------------------------------------------------------------

    async def credentials(self) -> dict[str, str]:
        """What was delivered."""
        return decoded(await self.consumer())

    async def passwords(self) -> dict[int, str]:
        """The password of every generation that is there."""
        selector = ",".join(f"{key}={value}" for key, value in self.labels.items())
        found = await kube.items(self.stage.stack, "management", SECRETS, self.plane.namespace, selector)
        start = f"{self.prefix}password-v"
        passwords = {
            int(name.removeprefix(start)): decoded(each).get("password", "")
            for each in found
            if (name := each["metadata"]["name"]).startswith(start)
        }
        self.stage.secrets |= {value for value in passwords.values() if value}
        return passwords

    async def stored(self, part: str = "data") -> Object | None:
        """What OpenBao has at its key: the "data", or the "metadata" with every version."""
        bao = openbao.connection(self.stage.stack).client()
        found = await asyncio.to_thread(bao.read, f"kv-v2/{part}/{self.remote_key}")
        if not found:
            return None
        if part == "data":
            self._remember((found["data"] or {}).get("data") or {})
        return dict(found["data"])

    async def secrets(self) -> None:
        """Puts every secret value of the order on the stage's list."""
        await asyncio.gather(self.credentials(), self.passwords())

    async def logs_in(self) -> Object | None:
        """The token's body that the delivered clouds.yaml gets of Keystone, or None when it is refused."""
        clouds = (await self.credentials())["clouds.yaml"]
        # Every plane here is over one Keystone, and only the stack's own has a name that is known on this machine.
        theirs = f"{self.plane.name}-keystone.{self.plane.namespace}.svc"
        return await self.stage.keystone.login_with(clouds.replace(theirs, "cp-keystone.openstack.svc"))

    def _remember(self, data: dict[str, str]) -> None:
        self.stage.secrets |= {data[key] for key in ("password", "clouds.yaml") if data.get(key)}

    # -- as Keystone has it ---------------------------------------------------------------------------------------

    async def service_rows(self) -> list[Object]:
        return await self.stage.keystone.services(name=self.service_name, type=(self.catalog or {})["serviceType"])

    async def user_rows(self) -> list[Object]:
        return await self.stage.keystone.users(name=self.user_name, domain="default")

    async def project_rows(self) -> list[Object]:
        return await self.stage.keystone.projects(name=self.project, domain="default")

    async def role_names(self) -> set[str]:
        """The roles that its user has on its project."""
        (user,), (project,) = await asyncio.gather(self.user_rows(), self.project_rows())
        bound = await self.stage.keystone.assignments(user=user["id"], project=project["id"])
        names = {row["id"]: row["name"] for row in await self.stage.keystone.roles()}
        return {names[each["role"]["id"]] for each in bound}

    async def left_nothing(self, *, project_stays: bool = False) -> None:
        """No child, no claim, nothing in OpenBao or Keystone, and no run is left of a deleted order."""
        assert await self.objects() == {}
        assert await self.consumer() is None
        assert (await self.stored(), await self.stored("metadata")) == (None, None)
        assert self.catalog is None or await self.service_rows() == []
        if self.account is not None:
            assert await self.user_rows() == []
            assert project_stays or await self.project_rows() == []
        await until(self.open_runs, lambda runs: not runs, 30)

    # -- as Temporal has it ---------------------------------------------------------------------------------------

    async def events(self) -> int:
        """Events of all its runs so far."""
        total = 0
        for run in await self.runs():
            handle = self.stage.temporal.get_workflow_handle(run.id, run_id=run.run_id)
            total += (await handle.describe()).history_length
        return total

    async def quiet(self, seconds: float = 2) -> None:
        """Waits until the run rests: no new event for so long. The last news of a child may be folded for some."""
        length, still = -1, 0
        while still < 2 * seconds:
            await asyncio.sleep(0.5)
            now = (await self.handle.describe()).history_length
            length, still = (length, still + 1) if now == length else (now, 0)

    # -- as the audit log has it ----------------------------------------------------------------------------------

    def asked(self, audit: Audit, mark: int) -> list[Request]:
        """Every request of worker and watcher since the mark that names this order or one of its children."""
        names = (self.prefix, f"keystoneservice-name={self.name}", f"/{self.name}", f"={self.name}-credentials")
        every = audit.since(mark, OPERATOR)
        return [one for one in every if one.name.startswith(self.prefix) or any(text in one.uri for text in names)]


def decoded(secret: Object | None) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in ((secret or {}).get("data") or {}).items()}


def login_of(clouds: str, cloud: str = "admin") -> Object:
    """The auth block of a clouds.yaml."""
    return dict(yaml.safe_load(clouds)["clouds"][cloud]["auth"])
