"""What the Temporal SDK measures, and workflows by its meter, moved from the SDK's buffer to OpenTelemetry.

Label sets are told apart by what they say. The SDK's own exporter remembers them by the address of an object that may
be gone by then, and counts for a label set what belongs to another one (temporalio 1.35).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Self

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from temporalio.common import MetricAttributes
from temporalio.runtime import (
    BUFFERED_METRIC_KIND_COUNTER,
    BUFFERED_METRIC_KIND_HISTOGRAM,
    BufferedMetric,
    MetricBuffer,
)

_EVERY_SECONDS = 1.0

Take = Callable[[int | float, MetricAttributes], None]


class CoreMetrics:
    """Within `async with` the buffer is emptied every second, and once more at the end."""

    def __init__(self, buffer: MetricBuffer, meters: MeterProvider) -> None:
        self._buffer = buffer
        self._meter = meters.get_meter("temporalio")
        self._takes: dict[str, Take] = {}
        self._moving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._moving = asyncio.create_task(self._move_for_ever())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._moving:
            self._moving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._moving
        self.move()

    def move(self) -> None:
        """Takes what the SDK has measured since."""
        for update in self._buffer.retrieve_updates():
            take = self._takes.get(update.metric.name) or self._new(update.metric)
            take(update.value, update.attributes)

    async def _move_for_ever(self) -> None:
        while True:
            self.move()
            await asyncio.sleep(_EVERY_SECONDS)

    def _new(self, metric: BufferedMetric) -> Take:
        named = (metric.name, metric.unit or "", metric.description or "")
        if metric.kind == BUFFERED_METRIC_KIND_COUNTER:
            take: Take = self._meter.create_counter(*named).add
        elif metric.kind == BUFFERED_METRIC_KIND_HISTOGRAM:
            take = self._meter.create_histogram(*named).record
        else:
            take = self._new_gauge(named)
        self._takes[metric.name] = take
        return take

    def _new_gauge(self, named: tuple[str, str, str]) -> Take:
        last: dict[frozenset[tuple[str, object]], Observation] = {}

        def take(value: int | float, attributes: MetricAttributes) -> None:
            last[frozenset(attributes.items())] = Observation(value, attributes)

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return list(last.values())

        name, unit, description = named
        self._meter.create_observable_gauge(name, [observe], unit, description)
        return take
