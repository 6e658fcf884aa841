"""A registration as its steps read it: what the order declares, what it said last, where its children are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from activities import claims, passwords
from activities.cluster import KEYSTONE_SERVICE, Object
from activities.job import Job
from activities.pen import Pen
from activities.projection import Projection
from workflows.api.controlplane import ControlPlane
from workflows.api.keystoneservice import Account, AccountStatus, KeystoneServiceSpec
from workflows.keystoneservice import children, delivery, gates, identity, sweep
from workflows.keystoneservice.account import ASSIGNMENT
from workflows.keystoneservice.children import Registration
from workflows.keystoneservice.identity import Replaced
from workflows.scaffold import gates as shared
from workflows.scaffold.child import Body, Seen
from workflows.scaffold.naming import CLAIMS
from workflows.scaffold.ownership import Marks
from workflows.scaffold.removal import Removing, judge_removal
from workflows.scaffold.verdict import Decision

_MAY_LACK = (ASSIGNMENT, *sweep.BESIDE_THE_ORDER)
"""Kinds of which nothing is there where they are not served: a write is what fails then."""

_CLAIMED = {"catalog": ("Service",), "account": ("User", "Project")}
"""The kinds that each block claims identities of."""

_RIVALS = {"catalog": ("Service",), "account": ("User", "Domain")}
"""The kinds of which an adopting block looks at everybody's: what another managed child keeps is not taken over."""

Judge = Callable[[Seen], Decision]


@dataclass(frozen=True)
class Block:
    """One block's children as they were read.

    whole     all there are were read, not only those that are wanted
    replaced  which of them stand for another identity than the block declares
    begins    some were not there that stand for its identity, or stood for another: it is made anew
    """

    name: str
    whole: bool = False
    replaced: Callable[[Seen], Replaced] = lambda _: Replaced()
    begins: bool = False


@dataclass(frozen=True)
class Given(Job):
    """One step's task, in the words of the kind."""

    kind = KEYSTONE_SERVICE

    def consent(self, plane: ControlPlane | None) -> shared.Gate | None:
        return gates.consent(self.task.ref, self.task.order.plane_key, plane)

    @cached_property
    def reg(self) -> Registration:
        return Registration(order=self.task.ref, uid=self.task.order.uid, plane=self.plane)

    @cached_property
    def spec(self) -> KeystoneServiceSpec:
        return KeystoneServiceSpec.model_validate(self.task.order.spec)

    @property
    def account(self) -> Account:
        account = self.spec.account
        if account is None:
            raise ValueError("only a declared account is published or rotated")
        return account

    @property
    def status(self) -> AccountStatus:
        return AccountStatus.model_validate(self.task.order.status.get("account") or {})

    @property
    def marks(self) -> Marks:
        return children.marks(self.task.ref, self.task.order.uid)

    @property
    def new(self) -> bool:
        """Whether no pass has reported on it, and its spec never changed."""
        return self.task.order.generation == 1 and not self.task.order.status.get("conditions")

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Where children are, the plane's first; once if it is the order's own."""
        return tuple(dict.fromkeys((self.task.order.plane_namespace, self.task.ref.namespace)))

    def believes(self, block: str, pen: Pen | None) -> bool:
        """Whether a look takes it from a pass that nothing is left but what the block declares.

        A pass never does: a child may come back, out of a backup, that nobody asked for. Nor does a look that stands
        for one.
        """
        order = self.task.order
        return pen is None and not order.was_ready and gates.swept(order.status, order.generation, block)

    async def read(
        self, projection: Projection, block: str, pen: Pen | None, wanted: Sequence[Body], probes: Mapping[str, Body]
    ) -> Block:
        """Reads a block's children beside the plane: all there are, or for a look only what is wanted of them.

        One list a kind tells what is there, declared or not; what it does not tell may be a stranger's, without our
        labels. Of a new order nothing is there, most likely.

        probes  by the name of the child that each is for; one matters until K-ORC has an id of the child
        """
        believed = self.believes(block, pen)
        if self.new or believed:
            await projection.get(*wanted)
            if self.new and not projection.seen.children:
                await self._read_rivals(projection, block)
                return Block(block)
        if not believed:
            await projection.list(self.plane.namespace, sweep.KINDS[block], contents=True)
        missing = [body for body in wanted if projection.seen.of(body) is None]
        await projection.get(*([] if believed else missing))
        asked = [probe for child in wanted if (probe := _probe_of(child, probes, projection.seen)) is not None]
        await projection.get(*(probe for probe in asked if projection.seen.of(probe) is None))
        begins = any(body["metadata"]["name"] in probes for body in missing)
        if begins:
            await self._read_rivals(projection, block)
        order, reg, spec, seen = self.task.order, self.reg, self.spec, projection.seen
        # What the spec declares is what it was when a pass found it so: a difference is somebody's edit.
        settled = gates.swept(order.status, order.generation, block)
        if settled or not identity.replaced(block, reg, spec, seen, None).names:
            return Block(block, whole=not believed, begins=begins)
        held = await projection.held(reg.plane.namespace, identity.telling(block, reg, spec, seen))
        return Block(block, True, lambda seen: identity.replaced(block, reg, spec, seen, held), begins=True)

    async def _read_rivals(self, projection: Projection, block: str) -> None:
        """Of a block that adopts: nobody is asked whether what it wants exists, so whoever keeps it has to be seen."""
        declared = self.spec.catalog if block == "catalog" else self.spec.account
        if declared is not None and declared.adopt:
            await projection.list(self.plane.namespace, _RIVALS[block], whosever=True)

    def removal(self, kinds: Sequence[str], block: Block | None = None) -> Callable[[Seen], Removing]:
        """The judge of what goes: all children of these kinds, or of a block that was read what it does not declare."""
        spec = self.spec
        keeps = sweep.keeps(self.task.ref, spec)

        def bound(seen: Seen) -> str:
            """The Domain that user and project refer to stays with them, whatever the spec calls it by now."""
            return identity.bound_to(self.reg, spec.account, seen) if spec.account else ""

        def judge(seen: Seen) -> Removing:
            gone = block.replaced(seen).names if block is not None else frozenset()

            def stays(name: str) -> bool:
                if block is None or name in gone:
                    return False
                return keeps(name) or (spec.account is not None and name == bound(seen))

            return judge_removal(kinds, self.marks, self.task.plane, seen, stays)

        return judge

    def projection(self, pen: Pen | None = None, fill: Callable[[Object], Object] | None = None) -> Projection:
        return Projection(
            self.management, self.task.ref, self.marks, pen, fill or with_password, may_lack=_MAY_LACK
        )  # fmt: skip

    async def ask(self, projection: Projection, judge: Judge) -> Decision:
        """Does what the judge wants, or for a paused order says what it finds."""
        return await (projection.look(judge) if self.task.order.paused else projection.drive(judge))

    async def settle_claims(self, pen: Pen | None, block: Block, projection: Projection, decision: Decision) -> None:
        """Gives free what the block claimed before the spec was edited, once nothing of it is left: as soon as the
        block begins anew, for another order may wait for the name, and when it is as declared for the first time.
        """
        order = self.task.order
        first = decision.verdict.status and not gates.swept(order.status, order.generation, block.name)
        begins = block.begins and not block.replaced(projection.seen).names
        if pen is not None and order.generation > 1 and (first or begins):
            kept = identity.telling(block.name, self.reg, self.spec, projection.seen)
            # The plane may have renamed its domain since: then what the order holds is called otherwise, and stays.
            if begins or not kept or await projection.held(self.plane.namespace, kept):
                await self.drop_claims(pen, *_CLAIMED[block.name], keep=kept)

    async def drop_claims(self, pen: Pen | None, *kinds: str, keep: Collection[str] = ()) -> None:
        """Drops the order's claims: those of these kinds, or all; but for some, by name."""
        if pen is not None:
            await pen.lift()
        for labels in [{CLAIMS: kind.lower()} for kind in kinds] or [{}]:
            await claims.drop(self.management, self.task.order.plane_namespace, {**self.marks.labels, **labels}, keep)

    def delivery_objects(self) -> tuple[Body, ...]:
        """PushSecret and ExternalSecret, by name: those of the reference operator do not carry our labels."""
        ref = self.task.ref
        return (
            {"kind": "PushSecret", "metadata": {"name": delivery.backup_name(ref), "namespace": ref.namespace}},
            {"kind": "ExternalSecret", "metadata": {"name": delivery.consumer_name(ref), "namespace": ref.namespace}},
        )


def _probe_of(child: Body, probes: Mapping[str, Body], seen: Seen) -> Body | None:
    """The child's probe, if it matters: the child is not there, or K-ORC never got an id of it."""
    live = seen.of(child)
    return probes.get(child["metadata"]["name"]) if live is None or not live.status.id else None


def with_password(body: Object) -> Object:
    """A password Secret's body with a password, made at the moment of writing."""
    return {**body, "data": delivery.password_data(passwords.new())} if body["kind"] == "Secret" else body
