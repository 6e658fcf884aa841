"""The made-up world of a KeystoneService: its steps' findings are a test's to dictate, its password generation is kept.

The shared steps are the product's own, as in `tests.flows.world`, and so are the gates.
"""

from __future__ import annotations

from typing import Any

from temporalio.exceptions import ApplicationError

from activities.cluster import KEYSTONE_SERVICE
from activities.errors import at_boundary
from activities.keystoneservice import KeystoneServices
from activities.orders import KindSteps, Looked
from tests.flows.world import Dictated, World, found
from workflows.keystoneservice import children, gates, reasons
from workflows.scaffold.steps import Nudge, Removal, Task
from workflows.scaffold.verdict import Outcome, Verdict

CATALOG = {"serviceType": "image", "serviceName": "images"}
ACCOUNT = {"project": {"name": "service"}}
Finding = Verdict | Exception


def registered() -> Verdict:
    return Verdict(type=reasons.CATALOG_READY, status=True, reason=reasons.CATALOG_REGISTERED, message="It is there.")


def provisioned(message: str = "It can log in.") -> Verdict:
    return Verdict(type=reasons.ACCOUNT_READY, status=True, reason=reasons.ACCOUNT_PROVISIONED, message=message)


def waits(type_: str, reason: str, message: str = "for K-ORC", again: float | None = 10.0) -> Verdict:
    return Verdict(type=type_, status=False, reason=reason, message=message, again=again)


class ServiceWorld(World):
    """One registration. `catalog`, `account` and `published` are what its steps find next."""

    order_kind = KEYSTONE_SERVICE
    finalizer = children.FINALIZER
    steps = ("provision_catalog", "provision_account", "publish_account", "nudge_account", "remove_registration")

    def __init__(self, name: str, *blocks: str) -> None:
        self.blocks = blocks or ("catalog", "account")
        self.catalog: Finding = registered()
        self.account: Finding = provisioned("A user is there.")
        self.published: Finding = provisioned()
        self.nudge: Exception | None = None
        self.generation = 1
        """Of the password that the User refers to; 0 while there is no User."""
        self.nudged = False
        self.tasks: list[tuple[str, Task]] = []
        super().__init__(name)

    def declared(self) -> dict[str, Any]:
        every = {"catalog": CATALOG, "account": ACCOUNT}
        return {block: every[block] for block in self.blocks}

    def declare(self, *blocks: str) -> None:
        """An edit of the spec: a new generation."""
        self.blocks, live = blocks, self.live
        assert live is not None
        meta = {**live["metadata"], "generation": live["metadata"]["generation"] + 1}
        spec = {"controlPlaneRef": live["spec"]["controlPlaneRef"], **self.declared()}
        self.home.put(self.order_kind, {**live, "metadata": meta, "spec": spec})

    def plane_spec(self, assigned: bool) -> dict[str, Any]:
        allowed = [self.ref.namespace] if assigned else []
        return {"korc": {"serviceRegistrations": {"allowedNamespaces": allowed}}}

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(self.condition(type_).get("reason", "") for type_ in reasons.CONDITIONS)

    def kind(self) -> KindSteps:
        return FakeService(self)


class FakeService(Dictated, KeystoneServices):
    """KeystoneServices that find what the world says."""

    _world: ServiceWorld

    def __init__(self, world: ServiceWorld) -> None:
        self._world = world

    async def provision_catalog(self, task: Task) -> Outcome:
        self._world.tasks.append(("provision_catalog", task))
        if not task.order.spec.get("catalog"):
            return Outcome(verdicts=(gates.undeclared("catalog"),), fields={"catalog": None})
        return Outcome(verdicts=(found(self._world.catalog),), fields={"catalog": {"serviceID": "s"}})

    async def provision_account(self, task: Task) -> Outcome:
        self._world.tasks.append(("provision_account", task))
        if not task.order.spec.get("account"):
            return Outcome(verdicts=(gates.undeclared("account"),), fields={"account": None})
        verdict = found(self._world.account)
        if self._world.nudged:
            self._world.nudged, self._world.generation = False, self._world.generation + 1
        return Outcome(verdicts=(verdict,), fields=self._fields())

    async def publish_account(self, task: Task) -> Outcome:
        self._world.tasks.append(("publish_account", task))
        return Outcome(verdicts=(found(self._world.published),))

    async def nudge_account(self, nudge: Nudge) -> None:
        if self._world.nudge is not None:
            with at_boundary():
                raise self._world.nudge
        if not self._world.generation:
            raise ApplicationError("the account has no user yet", type="NoUser", non_retryable=True)
        if nudge.generation == self._world.generation:
            self._world.nudged = True

    async def remove_registration(self, task: Task) -> Removal:
        return found(self._world.remove)

    async def look(self, task: Task) -> Looked:
        world = self._world
        spec = task.order.spec
        catalog = found(world.catalog) if spec.get("catalog") else gates.undeclared("catalog")
        account = gates.undeclared("account")
        if spec.get("account"):
            account = found(world.account)
            account = found(world.published) if account.status else account
        outcome = Outcome(verdicts=(catalog, account), fields=self._fields())
        return self.looked(outcome, due=world.nudged)

    def _fields(self) -> dict[str, Any]:
        generation = {"passwordGeneration": self._world.generation} if self._world.generation else {}
        return {"account": {"secretName": "x-credentials", **generation}} if "account" in self._world.blocks else {}
