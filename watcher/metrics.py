"""The watcher's metrics: counters that its parts add to, and gauges that look at whatever runs at the moment.

No label names an order: the sets of label values are as small as the sets of clusters and kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

_meter = metrics.get_meter("c5c3.watcher")

RECONNECTS = _meter.create_counter("c5c3_watcher_reconnects", description="Watches begun again")
RELISTS = _meter.create_counter("c5c3_watcher_relists", description="Lists read, the first ones included")
RINGS = _meter.create_counter("c5c3_watcher_rings", description="Rings, by what Temporal made of them")
EVENTS = _meter.create_counter("c5c3_watcher_events", description="Objects heard of, by whether that was news")


@dataclass
class Sight:
    """What the gauges show. The parts that know put their values in; an empty one is a standby."""

    stream_ages: dict[tuple[str, str], float] = field(default_factory=dict)
    clusters: dict[str, bool] = field(default_factory=dict)
    pending: int = 0
    backlog: int = 0
    oldest_pending: float = 0.0
    leading: bool = False


_look: Callable[[], Sight] = Sight


def expose(look: Callable[[], Sight]) -> None:
    """Shows what `look` answers from now on."""
    global _look
    _look = look


def _gauge(name: str, description: str, values: Callable[[Sight], Iterable[Observation]]) -> None:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return list(values(_look()))

    _meter.create_observable_gauge(name, [observe], description=description)


_gauge(
    "c5c3_watcher_stream_age_seconds", "Seconds since a stream was last heard, by the stalest of a cluster and kind",
    lambda sight: (Observation(age, {"cluster": c, "kind": k}) for (c, k), age in sight.stream_ages.items()),
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
