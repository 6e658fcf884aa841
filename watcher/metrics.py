"""The watcher's metrics: what its parts add to, and gauges that look at whatever runs at the moment.

No label names an order: the sets of label values are as small as the sets of clusters, kinds and reasons. All names are
in docs/metrics.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from workflows.scaffold.search import MANAGEMENT

_meter = metrics.get_meter("c5c3.watcher")

RECONNECTS = _meter.create_counter("c5c3_watcher_reconnects", description="Watches begun again")
RELISTS = _meter.create_counter("c5c3_watcher_relists", description="Lists read, the first ones included")
RINGS = _meter.create_counter("c5c3_watcher_rings", description="Rings, by what Temporal made of them")
EVENTS = _meter.create_counter("c5c3_watcher_events", description="Objects heard of, by whether that was news")
RING_LATENCY = _meter.create_histogram(
    "c5c3_watcher_ring_latency_seconds",
    description="From the news of an order to the ring that Temporal took, the folding included",
    explicit_bucket_boundaries_advisory=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
TIME_TO_READY = _meter.create_histogram(
    "c5c3_order_time_to_ready_seconds",
    description="From the creation of an order to its first Ready",
    explicit_bucket_boundaries_advisory=(1, 2, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300, 600, 1800, 3600),
)

_ONE_SCRAPE_SECONDS = 0.1


@dataclass
class Sight:
    """What the gauges show. The parts that know put their values in; an empty one is a standby."""

    stream_ages: dict[tuple[str, str], float] = field(default_factory=dict)
    clusters: dict[str, bool] = field(default_factory=dict)
    orders: Mapping[tuple[str, bool, str], int] = field(default_factory=dict)
    unready: dict[tuple[str, str], float] = field(default_factory=dict)
    deletions: dict[tuple[str, str], float] = field(default_factory=dict)
    orphans: dict[str, int] = field(default_factory=dict)
    pending: int = 0
    backlog: int = 0
    oldest_pending: float = 0.0
    leading: bool = False


_look: Callable[[], Sight] = Sight
_seen: tuple[float, Sight] = (0.0, Sight())


def expose(look: Callable[[], Sight]) -> None:
    """Shows what `look` answers from now on."""
    global _look, _seen
    _look, _seen = look, (0.0, Sight())


def cluster_label(name: str) -> str:
    """An empty label is none to Prometheus."""
    return name or MANAGEMENT


def _sight() -> Sight:
    """One look serves all gauges of a scrape: counting is no request, but there may be thousands to count."""
    global _seen
    if time.monotonic() - _seen[0] > _ONE_SCRAPE_SECONDS:
        _seen = (time.monotonic(), _look())
    return _seen[1]


def _gauge(name: str, description: str, values: Callable[[Sight], Iterable[Observation]]) -> None:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return list(values(_sight()))

    _meter.create_observable_gauge(name, [observe], description=description)


_gauge(
    "c5c3_watcher_stream_age_seconds", "Seconds since a stream was last heard, by the stalest of a cluster and kind",
    lambda s: (Observation(age, {"cluster": cluster_label(c), "kind": k}) for (c, k), age in s.stream_ages.items()),
)  # fmt: skip
_gauge(
    "c5c3_watcher_cluster_engaged", "Whether a registered target cluster is listened to",
    lambda sight: (Observation(int(engaged), {"cluster": name}) for name, engaged in sight.clusters.items()),
)  # fmt: skip
_gauge("c5c3_watcher_pending_rings", "Rings that Temporal has not taken yet", lambda s: [Observation(s.pending)])
_gauge("c5c3_watcher_backlog_rings", "Orders of a cold start still to be rung", lambda s: [Observation(s.backlog)])
_gauge(
    "c5c3_watcher_oldest_pending_ring_age_seconds", "Age of the oldest ring that Temporal has not taken",
    lambda sight: [Observation(sight.oldest_pending)],
)  # fmt: skip
_gauge("c5c3_watcher_leading", "Whether this replica is the active one", lambda s: [Observation(int(s.leading))])
_gauge(
    "c5c3_orders", "Orders there are, by kind, whether they are Ready, and the first reason why not",
    lambda sight: (
        Observation(count, {"kind": kind, "ready": str(ready), "reason": reason})
        for (kind, ready, reason), count in sight.orders.items()
    ),
)  # fmt: skip
_gauge(
    "c5c3_oldest_unready_order_age_seconds", "Seconds since the first order of a kind and reason ceased to be Ready",
    lambda s: (Observation(age, {"kind": kind, "reason": reason}) for (kind, reason), age in s.unready.items()),
)  # fmt: skip
_gauge(
    "c5c3_oldest_deletion_age_seconds", "Seconds since the first order of a kind was deleted that is still here",
    lambda s: (Observation(age, {"kind": kind, "reason": reason}) for (kind, reason), age in s.deletions.items()),
)  # fmt: skip
_gauge(
    "c5c3_children_without_order", "Children whose labels or owner name an order that is gone",
    lambda sight: (Observation(count, {"kind": kind}) for kind, count in sight.orphans.items()),
)  # fmt: skip
