"""An order's children during one step: what is seen of them, and every write to them, for every kind of order.

What a child means is decided in `workflows.scaffold`; which writes come next, by the kind's judge.
"""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Protocol, Self, TypeVar

from temporalio.exceptions import ApplicationError

from activities import claims
from activities.cluster import INITIAL_EVENTS_END, KINDS, Cluster, Kind, Object
from activities.errors import ClusterError, Conflict, NotServed
from activities.pen import Pen
from workflows.api.korc import KorcObject
from workflows.scaffold.child import Body, Seen, fingerprint, key
from workflows.scaffold.korc import UNLATCHED_AT
from workflows.scaffold.order import OrderRef
from workflows.scaffold.ownership import Marks
from workflows.scaffold.steps import TRANSPORT_RETRY_FAILED
from workflows.scaffold.verdict import Act, Write

_log = logging.getLogger(__name__)

LINGER_SECONDS = 6.0
"""How long a step that has just written or heard stays to see what comes of it: K-ORC answers in about a second, and
what is heard here saves a ring, a pass and their requests."""

_MOST_WRITES = 12
"""Rounds of writes of one step; a server that changes what is applied would be written to until the deadline."""


class Decided(Protocol):
    """What a judge answers, as far as it is acted on."""

    @property
    def do(self) -> tuple[Write, ...]: ...

    @property
    def stays(self) -> bool: ...


D = TypeVar("D", bound=Decided)


class Projection:
    """The children of one order, seen and written by one step. A context: what it follows ends with it.

    marks    by what the order's children are known
    pen      the right to write; without one this only looks
    fill     adds to a Secret's body what no judge may see
    elsewhere  kinds whose objects are on another cluster
    may_lack  kinds that need not be served: nothing is there of one that is not
    stands_for  what a judge may see of a Secret's value, by its key
    created  keys of the children that this step made
    """

    def __init__(
        self,
        cluster: Cluster,
        ref: OrderRef,
        marks: Marks,
        pen: Pen | None = None,
        fill: Callable[[Object], Object] = lambda body: body,
        elsewhere: Mapping[str, Cluster] | None = None,
        may_lack: Collection[str] = (),
        stands_for: Callable[[str, bytes], str] = lambda _, value: fingerprint(value),
    ) -> None:
        self._cluster = cluster
        self._elsewhere = elsewhere or {}
        self._may_lack = may_lack
        self._stands_for = stands_for
        self._ref = ref
        self._marks = marks
        self._pen = pen
        self._fill = fill
        self.created: set[str] = set()
        self._children: dict[str, KorcObject] = {}
        self._claims: dict[str, str] = {}
        self._unserved: set[str] = set()
        self._places: set[tuple[str, str]] = set()
        self._since: dict[tuple[str, str], str] = {}
        self._streams: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._moved = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for stream in self._streams.values():
            stream.cancel()
        await asyncio.gather(*self._streams.values(), return_exceptions=True)

    @property
    def seen(self) -> Seen:
        return Seen(
            children=dict(self._children),
            claims=dict(self._claims),
            unserved=frozenset(self._unserved),
            now=datetime.now(UTC),
        )

    async def get(self, *bodies: Body) -> None:
        """Reads these children by name, whosever they are."""
        await asyncio.gather(
            *(self._get(body["kind"], body["metadata"]["namespace"], body["metadata"]["name"]) for body in bodies)
        )

    async def list(
        self, namespace: str, kinds: Iterable[str], *, whosever: bool = False, contents: bool = False
    ) -> None:
        """Reads all objects of these kinds that carry the order's labels, or all.

        contents  also what is in Secrets; without it nothing but their metadata
        """
        await asyncio.gather(*(self._list(kind, namespace, whosever, contents) for kind in kinds))

    async def held(self, namespace: str, names: Collection[str]) -> frozenset[str]:
        """Those of these claims that the order holds."""
        holders = await asyncio.gather(*(claims.holder_of(self._cluster, namespace, name) for name in names))
        return frozenset(name for name, holder in zip(names, holders, strict=True) if holder == self._ref.workflow_id)

    def take(self, kind: str, raw: Object | None) -> None:
        """What somebody else has read of an object."""
        if raw is not None:
            self._learn(kind, raw)

    async def follow(self, namespace: str, kinds: Iterable[str], bodies: Iterable[Body] = ()) -> None:
        """Like `list`, and of the bodies like `get`; and goes on hearing of them: one request each does both."""
        wanted = [(kind, namespace, "") for kind in kinds]
        wanted += [(body["kind"], body["metadata"]["namespace"], body["metadata"]["name"]) for body in bodies]
        heard = []
        for kind, where, name in wanted:
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._streams[kind, where] = asyncio.create_task(self._stream(kind, where, "", ready, name))
            heard.append(ready)
        await asyncio.gather(*heard)

    def follow_secret(self, namespace: str, name: str) -> None:
        """Goes on hearing of a Secret that need not carry the labels, and reads it anew when it changed."""
        self._streams["Secret", f"{namespace}/{name}"] = asyncio.create_task(
            self._stream("Secret", namespace, "", name=name, contents=True)
        )

    async def look(self, decide: Callable[[Seen], D]) -> D:
        """What the judge says, without a write; whose a claim is can be read, so that a loser is told as such."""
        decision = decide(self.seen)
        asked = [write for write in decision.do if write.act is Act.CLAIM]
        for write in asked:
            await self._read_claim(write)
        return decide(self.seen) if asked else decision

    async def drive(self, decide: Callable[[Seen], D]) -> D:
        """Writes what the judge wants until it wants nothing, and stays a while for the answer to each write."""
        until, rounds = 0.0, 0
        decision = decide(self.seen)
        while rounds < _MOST_WRITES:
            self._moved.clear()
            if decision.do:
                rounds += 1
                for write in decision.do:
                    await self._act(write)
                until = self._lingering()
            elif not decision.stays or not await self._change(until):
                return decision
            else:
                until = self._lingering()
            decision = decide(self.seen)
        _log.warning("writes do not stick, a later pass goes on", extra={"order": self._ref.workflow_id})
        return decision

    def _lingering(self) -> float:
        """Until when an answer is waited for from now on, after a write or another answer."""
        return time.monotonic() + min(LINGER_SECONDS, self._lent().left)

    # -- writes -------------------------------------------------------------------------------------------------

    async def _act(self, write: Write) -> None:
        await self._lent().lift()
        kind, live = KINDS[write.kind], self._children.get(key(write.kind, write.namespace, write.name))
        match write.act:
            case Act.CLAIM:
                await self._claim(write)
            case Act.CREATE:
                await self._create(kind, write)
            case Act.APPLY:
                await self._apply(kind, write, live)
            case Act.DELETE if live is not None:
                await self._delete(kind, live, exact=write.exact)
            case Act.UNLATCH if live is not None:
                await self._unlatch(kind, live)
            case Act.PATCH if live is not None:
                await self._patch(kind, live, write.body)
                self._say("child changed", write.kind, live.metadata.namespace, write.name)
            case Act.DETACH if live is not None:
                await self._detach(kind, live)

    def _say(self, done: str, kind: str, namespace: str, name: str, level: int = logging.INFO) -> None:
        """One line for each effect; none for a write that turned out to be none."""
        _log.log(level, done, extra={"order": self._ref.workflow_id, "child": f"{kind} {namespace}/{name}"})

    async def _claim(self, write: Write) -> None:
        namespace = write.body["metadata"]["namespace"]
        labels = {**self._marks.labels, **write.body["metadata"].get("labels", {})}
        holder = await claims.claim(self._cluster, namespace, write.name, self._ref.workflow_id, labels)
        if holder is not None:
            self._claims[write.name] = holder
        if holder == self._ref.workflow_id:
            self._say("identity claimed", "Lease", namespace, write.name)

    async def _read_claim(self, write: Write) -> None:
        holder = await claims.holder_of(self._cluster, write.body["metadata"]["namespace"], write.name)
        if holder is not None:
            self._claims[write.name] = holder

    async def _create(self, kind: Kind, write: Write) -> None:
        """An object that has the name already is not touched, whosever it is."""
        namespace = write.body["metadata"]["namespace"]
        try:
            self._written(write.kind, await self._at(write.kind).create(kind, self._fill(write.body)))
            self._say("child created", write.kind, namespace, write.name)
        except Conflict:
            await self._get(write.kind, namespace, write.name)

    async def _apply(self, kind: Kind, write: Write, live: KorcObject | None) -> None:
        body = self._fill(write.body)
        if live is not None and write.exact:
            body = {**body, "metadata": {**body["metadata"], "resourceVersion": live.metadata.resource_version}}
        made = await apply_onto(self._at(write.kind), kind, body, live.metadata.uid if live else None)
        self._written(write.kind, made)
        if live is None:
            self.created.add(key(write.kind, write.namespace, write.name))
            self._say("child created", write.kind, body["metadata"]["namespace"], write.name)
        elif made["metadata"]["resourceVersion"] != live.metadata.resource_version:
            self._say("child changed", write.kind, body["metadata"]["namespace"], write.name)

    async def _delete(self, kind: Kind, child: KorcObject, *, exact: bool = False) -> None:
        """Deletes a child of the order. A managed one without an id goes only as it was judged: K-ORC, which deletes
        such a one by name, may have begun to make it since.

        exact  any other, too, only as it was judged
        """
        meta = child.metadata
        if child.deleting or not self._marks.own(meta):
            return
        settled = child.status.id or child.spec.get("managementPolicy") != "managed"
        version = "" if settled and not exact else meta.resource_version
        left = await self._at(kind.kind).delete(kind, meta.namespace, meta.name, meta.uid, version)
        if left is None:
            self._children.pop(key(kind.kind, meta.namespace, meta.name), None)
        else:
            self._written(kind.kind, left)
        if left is None or left["metadata"].get("deletionTimestamp"):
            self._say("child deleted", kind.kind, meta.namespace, meta.name)

    async def _unlatch(self, kind: Kind, child: KorcObject) -> None:
        """Clears `Progressing` so that K-ORC tries again; a wrong moment is seen by the next pass (contracts 4.14)."""
        meta = child.metadata
        kept: list[dict[str, Any]] = [
            condition.model_dump(mode="json", by_alias=True, exclude_none=True)
            for condition in child.status.conditions
            if condition.type != "Progressing"
        ]
        body = {"metadata": {"resourceVersion": meta.resource_version}, "status": {"conditions": kept}}
        try:
            live = await self._cluster.patch(kind, meta.namespace, meta.name, body, sub="status")
        except ClusterError as error:
            if not error.passing and error.status != 404:
                raise ApplicationError(str(error), type=TRANSPORT_RETRY_FAILED, non_retryable=True) from None
            _log.info("a latched transport error is cleared later: %s", error, extra={"order": self._ref.workflow_id})
            await self._get(kind.kind, meta.namespace, meta.name)
            return
        self._say("latched transport error cleared", kind.kind, meta.namespace, meta.name)
        stamp = {"metadata": {"annotations": {UNLATCHED_AT: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}}
        try:
            live = await self._cluster.patch(kind, meta.namespace, meta.name, stamp)
        except ClusterError as error:
            _log.info("the clearing could not be stamped: %s", error, extra={"order": self._ref.workflow_id})
        self._written(kind.kind, live)

    async def _patch(self, kind: Kind, child: KorcObject, body: Object, *, exact: bool = False) -> None:
        """Sets fields of that very object, if it is still there.

        exact  nobody may have written it since it was read; otherwise whatever else is written to it meanwhile stays
        """
        meta = child.metadata
        only = {"uid": meta.uid, **({"resourceVersion": meta.resource_version} if exact else {})}
        try:
            live = await self._at(kind.kind).patch(kind, meta.namespace, meta.name, {"metadata": only, **body})
        except ClusterError as error:
            if error.status != 404 or isinstance(error, NotServed):
                raise
            self._children.pop(key(kind.kind, meta.namespace, meta.name), None)
        else:
            self._written(kind.kind, live)

    async def _detach(self, kind: Kind, child: KorcObject) -> None:
        """Makes the child's controller forget what it made of it instead of deleting that, when the child goes."""
        meta, pushed = child.metadata, kind.kind == "PushSecret"
        spec = {"deletionPolicy": "None"} if pushed else {"managedOptions": {"onDelete": "detach"}}
        await self._patch(kind, child, {"spec": spec}, exact=True)
        done = (
            "let go of what was pushed to a store that is gone: it stays in OpenBao"
            if pushed
            else "let go of a resource in Keystone that may be a stranger's: it stays when the child is deleted"
        )
        self._say(done, kind.kind, meta.namespace, meta.name, logging.WARNING)

    def _at(self, kind: str) -> Cluster:
        return self._elsewhere.get(kind, self._cluster)

    def _lent(self) -> Pen:
        if self._pen is None:
            raise ValueError("only a step that has a pen writes")
        return self._pen

    # -- reads --------------------------------------------------------------------------------------------------

    async def _get(self, kind: str, namespace: str, name: str) -> None:
        with self._unless_unserved(kind):
            raw = await self._at(kind).get(KINDS[kind], namespace, name)
            if raw is None:
                self._children.pop(key(kind, namespace, name), None)
            else:
                self._learn(kind, raw)

    async def _list(self, kind: str, namespace: str, whosever: bool, contents: bool) -> None:
        labels, partial = None if whosever else self._marks.labels, kind == "Secret" and not contents
        with self._unless_unserved(kind):
            found = await self._at(kind).list(KINDS[kind], namespace, labels=labels, metadata_only=partial)
            for item in found["items"]:
                self._learn(kind, item, partial=partial)

    @contextmanager
    def _unless_unserved(self, kind: str) -> Iterator[None]:
        """Around a read: there is nothing of a kind that nobody serves, where the order can do without."""
        try:
            yield
        except NotServed as error:
            if kind not in self._may_lack:
                raise
            self._unserved.add(kind)
            _log.debug("nothing is there: %s", error, extra={"order": self._ref.workflow_id})

    def _written(self, kind: str, raw: Object) -> None:
        """Takes the answer to a write; what came after the first of a kind is heard when its stream begins."""
        meta = raw["metadata"]
        self._since.setdefault((kind, meta["namespace"]), meta["resourceVersion"])
        self._learn(kind, raw)

    def _learn(self, kind: str, raw: Object, *, partial: bool = False) -> None:
        """Takes an object as it is now; a version that is no newer than what is known already is no news."""
        child = child_of(raw, self._stands_for).model_copy(update={"partial": partial})
        name = key(kind, child.metadata.namespace, child.metadata.name)
        known = self._children.get(name)
        same = known is not None and known.metadata.uid == child.metadata.uid
        if known is not None and same and not _newer(child, known) and not (known.partial and not partial):
            return
        self._children[name] = child
        if self._marks.own(child.metadata):
            self._places.add((kind, child.metadata.namespace))
        self._moved.set()

    async def _change(self, until: float) -> bool:
        """Waits for news of any kind that was seen; False when none came in time, or nobody waits any more."""
        if until <= time.monotonic():
            return False
        for where in {place for place in self._places if place[0] != "Secret"} - self._streams.keys():
            self._streams[where] = asyncio.create_task(self._stream(*where, self._since.get(where, "")))
        try:
            async with asyncio.timeout(until - time.monotonic()):
                await self._moved.wait()
        except TimeoutError:
            return False
        return True

    async def _stream(
        self,
        kind: str,
        namespace: str,
        version: str,
        ready: asyncio.Future[None] | None = None,
        name: str = "",
        *,
        contents: bool = False,
    ) -> None:
        """Hears of the order's objects of one kind: after a version, or of all that are there and then of changes.

        name      hears of the object of that name instead, whatever its labels
        contents  reads what was heard of, for of Secrets nothing but their metadata is told
        A watch that fails just ends, unless it is yet to say what is there.
        """
        partial = kind == "Secret"
        options: dict[str, Any] = {"name": name} if name else {"labels": self._marks.labels}
        options |= {"seconds": max(1, round(self._lent().left) + 1), "metadata_only": partial}
        cluster, of = self._at(kind), KINDS[kind]
        heard = (
            cluster.list_and_watch(of, namespace, **options)
            if ready
            else cluster.watch(of, namespace, version, **options)
        )
        try:
            with self._unless_unserved(kind):
                async for event in heard:
                    raw = event["object"]
                    match event["type"]:
                        case "BOOKMARK":
                            ends = INITIAL_EVENTS_END in raw["metadata"].get("annotations", {})
                            if ready and not ready.done() and ends:
                                ready.set_result(None)
                        case "DELETED":
                            self._forget(kind, raw)
                        case _ if not contents:
                            self._learn(kind, raw, partial=partial)
                        case _ if self._is_news(kind, raw["metadata"]):
                            await self._get(kind, namespace, name)
            if ready and not ready.done() and kind in self._unserved:
                ready.set_result(None)
        except Exception as error:
            if ready and not ready.done():
                ready.set_exception(error)
            elif isinstance(error, ClusterError) and error.status == 410 and version:
                await self._stream(kind, namespace, "", name=name)
            else:
                _log.debug("stopped following %s: %s", kind, error)
        finally:
            if ready and not ready.done():
                ended = f"following {kind} {namespace}"
                ready.set_exception(ClusterError(ended, 0, "Ended", "the watch ended before it said what is there"))

    def _is_news(self, kind: str, meta: Object) -> bool:
        known = self._children.get(key(kind, meta["namespace"], meta["name"]))
        return known is None or known.metadata.resource_version != meta["resourceVersion"]

    def _forget(self, kind: str, raw: Object) -> None:
        name = key(kind, raw["metadata"]["namespace"], raw["metadata"]["name"])
        known = self._children.get(name)
        if known is not None and known.metadata.uid == raw["metadata"]["uid"]:
            del self._children[name]
            self._moved.set()


def child_of(raw: Object, stands_for: Callable[[str, bytes], str]) -> KorcObject:
    """An object as judges see it: of a Secret's values what stands for them."""
    if "data" in raw and raw.get("kind", "Secret") == "Secret":
        values = {key: b64decode(value) for key, value in (raw["data"] or {}).items()}
        raw = {**raw, "data": {key: stands_for(key, value) for key, value in values.items()}}
    return KorcObject.model_validate(raw)


async def apply_onto(cluster: Cluster, kind: Kind, body: Object, uid: str | None) -> Object:
    """Applies onto the very object that was read, or onto none (contracts 14.5). `Conflict` if it is another now."""
    if uid is not None:
        body = {**body, "metadata": {**body["metadata"], "uid": uid}}
    return await cluster.apply(kind, body, force=uid is not None)


def _newer(one: KorcObject, other: KorcObject) -> bool:
    """Versions of one object are compared as numbers, as Kubernetes has come to allow."""
    versions = one.metadata.resource_version, other.metadata.resource_version
    with suppress(ValueError):
        return int(versions[0]) > int(versions[1])
    return versions[0] != versions[1]
