"""One kind on one cluster, listened to for ever: list, then watch from the list's version.

Whatever ends a watch, the next one begins at the last version heard, after a pause that grows unless the watch lived
long. A new list is made when that version is too old (410, on the request or in the stream), and after a silence: an
API server sends no bookmarks of a kind that has not changed since it started, and only a list tells that from a dead
watch. No watch is asked for without a version.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass

from activities.cluster import SILENT, Cluster, Kind, Object
from activities.errors import ClusterError, NotServed
from watcher import metrics
from watcher.ear import Listener

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pace:
    """How patient a stream is, in seconds.

    silence      a watch that says nothing for longer is given up; bookmarks come every 60, health looks for 90
    lived_long   a watch that lived this long is begun again without a pause, and forgives earlier failures
    watch        how long the server is asked to keep a watch open, at least; up to half of it is added by chance
    """

    silence: float = 70.0
    lived_long: float = 30.0
    watch: float = 280.0
    first_pause: float = 0.5
    longest_pause: float = 30.0
    unserved_pause: float = 60.0


class Stream:
    """Tells its listener everything that is and happens. `fresh_at` moves with every list, event and bookmark, and
    `answered` is set once the cluster has listed the kind, or said that it does not serve it."""

    def __init__(
        self,
        cluster: Cluster,
        kind: Kind,
        listener: Listener,
        *,
        namespace: str | None = None,
        labels: dict[str, str] | None = None,
        metadata_only: bool = False,
        pace: Pace | None = None,
    ) -> None:
        self.cluster = cluster
        self.kind = kind
        self.namespace = namespace
        self.served: bool | None = None
        self.fresh_at = time.monotonic()
        self.answered = asyncio.Event()
        self.trouble = ""
        self._sort = ""
        self.listener = listener
        self._labels = labels
        self._counted_as = {"cluster": metrics.cluster_label(cluster.name), "kind": kind.kind}
        self._metadata_only = metadata_only
        self._pace = pace or Pace()
        self._version = ""
        self._failures = 0

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.kind.plural}{where} on {cluster_name(self.cluster.name)}"

    @property
    def age(self) -> float:
        """Seconds since the cluster was last heard on this stream."""
        return time.monotonic() - self.fresh_at

    @property
    def counts(self) -> bool:
        """Whether health counts it: a kind of the management cluster, unless that never served it."""
        return not self.cluster.name and self.served is not False

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            unserved = False
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except NotServed as error:
                unserved = True
                self._unserved(error)
            except ClusterError as error:
                if error.status == 410:
                    self._version = ""
                    _log.info("%s: the version heard last is too old; listing again", self)
                elif error.reason == SILENT:
                    self._version = ""  # as quiet kinds are, every minute
                    _log.debug("%s: nothing was heard for %g s; listing again", self, self._pace.silence)
                else:
                    self._complain(self._sentence(error), f"{error.status} {error.reason}")
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                self._version = ""
                self._complain(f"{self}: its answer cannot be read; listing again ({error!r:.200})", "unreadable")
            metrics.RECONNECTS.add(1, self._counted_as)
            if time.monotonic() - began >= self._pace.lived_long:
                self._failures = 0
            else:
                await asyncio.sleep(self._pace.unserved_pause * random.uniform(0.9, 1.1) if unserved else self._pause())

    async def _list(self) -> None:
        found = await self.cluster.list(
            self.kind, self.namespace, labels=self._labels, metadata_only=self._metadata_only
        )
        version = found["metadata"].get("resourceVersion")
        if not version:
            raise ClusterError(f"listing {self.kind.plural}", 0, "NoVersion", "the list carries no resourceVersion")
        self.served = True
        self.answered.set()
        metrics.RELISTS.add(1, self._counted_as)
        self.listener.listed(found["items"])
        self._version = version
        self._heard()

    async def _watch(self) -> None:
        seconds = int(self._pace.watch * random.uniform(1, 1.5)) or 1
        events = self.cluster.watch(
            self.kind, self.namespace, self._version, labels=self._labels, seconds=seconds,
            silence=self._pace.silence, metadata_only=self._metadata_only,
        )  # fmt: skip
        async for event in events:
            found: Object = event["object"]
            if event["type"] != "BOOKMARK":
                self.listener.heard(event["type"], found)
            # After the listener, so that what it could not take is heard again, and is stale meanwhile.
            self._version = found["metadata"].get("resourceVersion") or self._version
            self._heard()

    def _heard(self) -> None:
        self.fresh_at = time.monotonic()
        if self.trouble:
            _log.info("%s: heard again", self)
            self.trouble = ""

    def _pause(self) -> float:
        """Full jitter: between nothing and a limit that doubles, so that many streams do not come back at once."""
        limit = min(self._pace.longest_pause, self._pace.first_pause * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return random.uniform(0, limit)

    def _unserved(self, error: NotServed) -> None:
        """The kind is not there, which says nothing about its objects: what is known stays known."""
        self._version = ""
        usual = not self.served
        if self.served is None:
            self.served = False
        self.answered.set()
        sentence = f"{self}: this kind is not served; asking again every minute ({error})"
        self._complain(sentence, "unserved", logging.INFO if usual else logging.WARNING)

    def _sentence(self, error: ClusterError) -> str:
        if error.status == 403:
            return (
                f"{self}: not allowed. Grant list and watch on {self.kind.plural}"
                f"{'.' + self.kind.group if self.kind.group else ''} to the watcher's identity there ({error})"
            )
        if error.status == 401:
            return f"{self}: the cluster does not accept our credentials; renew them ({error})"
        return f"{self}: {error}"

    def _complain(self, sentence: str, sort: str, level: int = logging.WARNING) -> None:
        """A line when the trouble is of a new sort; the same again, in whatever words, is no news."""
        _log.log(logging.DEBUG if self.trouble and sort == self._sort else level, "%s", sentence)
        self.trouble, self._sort = sentence, sort


def cluster_name(name: str) -> str:
    """How a cluster is called where people read it."""
    return f"cluster {name}" if name else "the management cluster"
