"""One of several replicas is the active one, by a Lease in the watcher's namespace.

Time is only ever measured here, by the monotonic clock: a Lease is free when nobody touched it for its whole duration
while we looked, whatever the clocks of the machines say. Two active replicas for a moment are harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from activities.cluster import LEASE, Cluster, Object
from activities.errors import ClusterError, Conflict
from workflows.scaffold.naming import WATCHER_LEASE

NAME = WATCHER_LEASE

_RELEASE_SECONDS = 3.0

_log = logging.getLogger(__name__)


class Leader:
    """Campaigns for ever, and runs `lead` while the Lease is ours. `looked_at` moves whenever the Lease was read."""

    def __init__(
        self, cluster: Cluster, namespace: str, identity: str, *, duration: float = 15.0, renew: float = 4.0
    ) -> None:
        self.looked_at = time.monotonic()
        self.leading = False
        self._cluster = cluster
        self._namespace = namespace
        self._identity = identity
        self._duration = duration
        self._renew = renew
        self._holder = ""
        self._trouble = False
        self._seen: tuple[str, float] = ("", 0.0)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        while True:
            if not await self._try():
                await asyncio.sleep(self._renew * random.uniform(0.5, 1))
                continue
            _log.info("this replica, %s, is the active one", self._identity)
            self.leading = True
            work = asyncio.ensure_future(lead())
            try:
                await self._hold(work)
            finally:
                self.leading = False
                work.cancel()
                await asyncio.wait([work])
            if not work.cancelled():
                work.result()
            _log.warning("this replica, %s, is no longer the active one", self._identity)

    async def release(self) -> None:
        """Gives the Lease back, so that another replica need not wait for it to expire."""
        with contextlib.suppress(ClusterError, TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._release()

    async def _release(self) -> None:
        lease = await self._cluster.get(LEASE, self._namespace, NAME)
        if lease and (lease.get("spec") or {}).get("holderIdentity") == self._identity:
            await self._cluster.update(LEASE, self._written(lease, holder=""))

    async def _hold(self, work: asyncio.Future[None]) -> None:
        """Returns when the Lease is lost, could not be renewed in time, or the work ended by itself."""
        renewed = time.monotonic()
        while time.monotonic() - renewed < self._duration * 2 / 3:
            done, _ = await asyncio.wait([work], timeout=self._renew * random.uniform(0.5, 1))
            if done:
                return
            before = time.monotonic()
            if await self._try():
                renewed = before
            elif self._holder != self._identity:
                return

    async def _try(self) -> bool:
        """Takes or renews the Lease. False when it is somebody else's, or nothing could be found out."""
        try:
            async with asyncio.timeout(self._renew):
                lease = await self._cluster.get(LEASE, self._namespace, NAME)
                if lease is None:
                    meta = {"name": NAME, "namespace": self._namespace}
                    lease = await self._cluster.create(LEASE, self._written({"metadata": meta}, self._identity))
                elif self._may_take(lease):
                    lease = await self._cluster.update(LEASE, self._written(lease, self._identity))
                self._look(lease)
        except Conflict:
            return False
        except (ClusterError, TimeoutError) as error:
            level = logging.DEBUG if self._trouble else logging.WARNING
            self._trouble = True
            what = f"the Lease {self._namespace}/{NAME} cannot be read or written"
            _log.log(level, "%s, which is tried again every few seconds: %s", what, error or "no answer")
            return False
        return self._holder == self._identity

    def _may_take(self, lease: Object) -> bool:
        self._look(lease)
        return self._holder in ("", self._identity) or time.monotonic() - self._seen[1] > self._duration

    def _look(self, lease: Object) -> None:
        self.looked_at = time.monotonic()
        if self._trouble:
            self._trouble = False
            _log.info("the Lease %s/%s answers again", self._namespace, NAME)
        self._holder = (lease.get("spec") or {}).get("holderIdentity") or ""
        version = lease["metadata"]["resourceVersion"]
        if version != self._seen[0]:
            self._seen = (version, self.looked_at)

    def _written(self, lease: Object, holder: str) -> Object:
        spec = lease.get("spec") or {}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        taken = spec.get("holderIdentity") != holder
        return {
            **lease,
            "spec": {
                **spec,
                "holderIdentity": holder,
                "leaseDurationSeconds": round(self._duration) if holder else 1,
                "renewTime": now,
                "acquireTime": now if taken else spec.get("acquireTime") or now,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + bool(taken and holder),
            },
        }
