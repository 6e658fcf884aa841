"""Every activity: its name, what it takes and answers, how long it may take and how often it is tried.

The methods are signatures; `activities/` implements them under the same names. Nothing secret is in any of them.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any

from pydantic import Field
from temporalio import activity
from temporalio.common import RetryPolicy

from workflows.api.controlplane import ControlPlane
from workflows.api.meta import Model
from workflows.scaffold.order import OrderRef
from workflows.scaffold.verdict import Outcome, Verdict

STEP_DEADLINE = timedelta(seconds=15)
"""After this a step begins no more write. One that it just began lasts 10 seconds at most, which is START_TO_CLOSE: so
two attempts never write at the same time."""
START_TO_CLOSE = timedelta(seconds=25)
RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=500),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=8),
    maximum_attempts=6,
)
"""About 20 seconds of trying; then the workflow says what failed and comes back after a pause."""

LOOK_START_TO_CLOSE = timedelta(seconds=30)
LOOK_RETRY = RetryPolicy(initial_interval=timedelta(seconds=10), backoff_coefficient=1.0)
"""A look repeats until something moved; each says itself when the next is due (`next_retry_delay`)."""

MOVED = "OrderMoved"
"""Error type of a step that found its order gone, replaced, being deleted or paused before its first write."""

TRANSPORT_RETRY_FAILED = "TransportErrorRetryFailed"
"""Error type of a step that may not clear a latched transport error, and the reason that is read of it."""

OPENBAO = "OpenBaoError"
"""Error type of a step that OpenBao refused, or that could not ask it."""


class State(Enum):
    """What a read of the order found."""

    GONE = "gone"
    DELETING = "deleting"
    PRESENT = "present"


class OrderSeen(Model):
    """The order as a pass read it.

    plane_key     `namespace/name` of the ControlPlane it names
    finalized     whether our finalizer is on it
    paused        why nothing may be written for it, or empty
    status, spec  as the API server holds them
    """

    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    plane_key: str = ""
    finalized: bool = False
    paused: str = ""
    spec: dict[str, Any] = Field(default_factory=dict)
    status: dict[str, Any] = Field(default_factory=dict)

    @property
    def was_ready(self) -> bool:
        """Whether it was Ready, for the generation that it has now."""
        return any(
            each.get("type") == "Ready"
            and each.get("status") == "True"
            and each.get("observedGeneration") == self.generation
            for each in self.status.get("conditions") or []
        )

    @property
    def plane_namespace(self) -> str:
        return self.plane_key.partition("/")[0]


class Admitted(Model):
    """The answer of `admit` and `examine`.

    refused  verdicts of the gate that holds the order
    found    how the order stands, when its steps have nothing left to do in this pass: it was Ready and still is, or it
             is new and they were all taken in its admission
    trouble  what could not be found out although the order itself could be read
    begun    this admission put the finalizer on
    unknown  nobody can say whether the order is gone: its cluster is not registered
    """

    state: State
    order: OrderSeen = OrderSeen()
    plane: ControlPlane | None = None
    refused: tuple[Verdict, ...] = ()
    found: Outcome | None = None
    trouble: str = ""
    begun: bool = False
    unknown: bool = False


class Task(Model):
    """What a step of a kind works on.

    gone  the order is no more, and nobody had a chance to take down what was made for it
    """

    ref: OrderRef
    order: OrderSeen
    plane: ControlPlane | None = None
    gone: bool = False


class Nudge(Model):
    """Asks for the next password of an account that is at this generation."""

    task: Task
    generation: int


class Removal(Model):
    """What is left of an order's children, in words; nothing means that the finalizer may go.

    held  verdicts of what keeps the deletion from starting at all
    """

    left: tuple[str, ...] = ()
    held: tuple[Verdict, ...] = ()


class Report(Model):
    """A JSON merge patch of `status`, to be written onto exactly the version that was judged."""

    ref: OrderRef
    uid: str
    resource_version: str
    status: dict[str, Any]


class Wait(Model):
    """What a settling order waits for: the looks go on while they find what is said here.

    every    seconds between looks
    refresh  seconds after which a whole pass is due in any case
    blind    no look can tell more than a whole pass: one follows after `every`
    """

    ref: OrderRef
    tearing_down: bool = False
    generation: int = 0
    paused: str = ""
    verdicts: tuple[Verdict, ...] = ()
    left: tuple[str, ...] = ()
    every: float
    refresh: float | None = None
    blind: bool = False
    words: str = ""


class Steps:
    """The activities, as workflows name them."""

    @activity.defn(name="admit")
    async def admit(self, ref: OrderRef) -> Admitted:
        """Reads the order and its plane, asks the gates, puts the finalizer on, looks whether all is as it was.

        A new order, which gets its finalizer here, goes straight on: through the kind's steps to its first status.
        """
        raise NotImplementedError

    @activity.defn(name="examine")
    async def examine(self, ref: OrderRef) -> Admitted:
        """Reads an order that is being deleted, and its plane. No gate is asked: deletion is decided before them."""
        raise NotImplementedError

    @activity.defn(name="report")
    async def report(self, report: Report) -> bool:
        """Writes the status; False when the order has moved since it was read."""
        raise NotImplementedError

    @activity.defn(name="release")
    async def release(self, task: Task) -> None:
        """Takes our finalizer, and no other, off the order."""
        raise NotImplementedError

    @activity.defn(name="settle")
    async def settle(self, wait: Wait) -> None:
        """Looks, without writing, until something is other than reported; then a pass is due."""
        raise NotImplementedError

    @activity.defn(name="provision_project")
    async def provision_project(self, task: Task) -> Outcome:
        """Probes, then projects the managed K-ORC Project, and reads what became of it."""
        raise NotImplementedError

    @activity.defn(name="remove_project")
    async def remove_project(self, task: Task) -> Removal:
        """Deletes the order's children, managed before probe, unless references hold it."""
        raise NotImplementedError

    @activity.defn(name="provision_catalog")
    async def provision_catalog(self, task: Task) -> Outcome:
        """Probes for the service, then projects it and its endpoints, and reads what became of them."""
        raise NotImplementedError

    @activity.defn(name="provision_account")
    async def provision_account(self, task: Task) -> Outcome:
        """Probes for project and user, projects them, the password and the roles, and reads what became of them."""
        raise NotImplementedError

    @activity.defn(name="publish_account")
    async def publish_account(self, task: Task) -> Outcome:
        """Mirrors the account's password to OpenBao and sees it delivered to the Secret that the service reads."""
        raise NotImplementedError

    @activity.defn(name="nudge_account")
    async def nudge_account(self, nudge: Nudge) -> None:
        """Empties the managed User's password-generation annotation, which asks for the next password."""
        raise NotImplementedError

    @activity.defn(name="remove_registration")
    async def remove_registration(self, task: Task) -> Removal:
        """Deletes the order's children, dependents first."""
        raise NotImplementedError

    @activity.defn(name="provision_database")
    async def provision_database(self, task: Task) -> Outcome:
        """Sees to schema, OpenBao role and credential, up to the Secret that External Secrets writes."""
        raise NotImplementedError

    @activity.defn(name="deliver_database")
    async def deliver_database(self, task: Task) -> Outcome:
        """Writes the credential and the database's address into the Secret beside the order."""
        raise NotImplementedError

    @activity.defn(name="remove_database")
    async def remove_database(self, task: Task) -> Removal:
        """Revokes the order's leases, deletes its role, and then its children in order."""
        raise NotImplementedError
