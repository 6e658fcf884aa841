"""What the watcher alone needs of the environment, beside what it shares with the worker."""

from __future__ import annotations

from pydantic import Field

from watcher.dispatch import Rates
from worker.settings import ConnectionSettings


class WatcherSettings(ConnectionSettings):
    operator_namespace: str = Field("c5c3-system", min_length=1, description="the namespace of the watcher's Lease")
    leader_election: bool = Field(True, description="whether a Lease makes one of several replicas the active one")
    rings_per_second: float = Field(
        50.0, ge=1, le=1000, description="how many rings a second Temporal is given at most"
    )
    cold_rings_per_second: float = Field(
        10.0, ge=0.1, le=1000, description="how many converged orders a second are rung after a start"
    )
    ring_concurrency: int = Field(10, ge=1, le=200, description="how many rings are on their way at once")

    @property
    def rates(self) -> Rates:
        return Rates(
            per_second=self.rings_per_second, concurrency=self.ring_concurrency, cold=self.cold_rings_per_second
        )
