"""How long the steps take and how often they fail: the two metrics that the contracts name (9.3), and OpenBao's share.

The label sets are closed and name no order. A refusal or a wait is a verdict, so it is observed and never counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry import metrics
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.errors import Moved

CONDITION_TYPES = {
    "KeystoneServiceCatalog": "CatalogReady",
    "KeystoneServiceAccount": "AccountReady",
    "MariaDBDatabaseProvision": "DatabaseReady",
    "MariaDBDatabaseDelivery": "DeliveryReady",
    "KeystoneProjectProvision": "ProjectReady",
}
"""Each instrumented block and the condition it writes. Gates, sweeps and teardown are not instrumented."""

UNKNOWN = "UNKNOWN"
BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

_meter = metrics.get_meter("c5c3.steps")
_seconds = _meter.create_histogram(
    "c5c3_operator_reconcile_duration_seconds",
    description="Duration of a block of an order's pass, failed ones included.",
    explicit_bucket_boundaries_advisory=BUCKETS,
)
_errors = _meter.create_counter(
    "c5c3_operator_reconcile_errors_total",
    description="Errors of a block of an order's pass. Refusals and waits are none.",
)
_openbao = metrics.get_meter("c5c3.openbao").create_histogram(
    "c5c3_openbao_request_duration_seconds",
    description="Requests to OpenBao, by method and status; the status is `none` where no answer came.",
    explicit_bucket_boundaries_advisory=BUCKETS,
)


@contextmanager
def instrument(block: str) -> Iterator[None]:
    """Around one block of a pass, `KeystoneProjectProvision` for example."""
    begun = time.perf_counter()
    try:
        yield
    except Exception as error:
        if not _expected(error):
            _errors.add(1, {"sub_reconciler": block, "condition_type": CONDITION_TYPES.get(block, UNKNOWN)})
        raise
    finally:
        observe(block, time.perf_counter() - begun)


def observe(block: str, seconds: float) -> None:
    """One call of a block that took so long."""
    _seconds.record(seconds, {"sub_reconciler": block})


@contextmanager
def openbao_request(method: str) -> Iterator[Callable[[int], None]]:
    """Around one request; it calls what it is given with the status of the answer, if there is one."""
    begun, code = time.perf_counter(), "none"

    def answered(status: int) -> None:
        nonlocal code
        code = str(status)

    try:
        yield answered
    finally:
        _openbao.record(time.perf_counter() - begun, {"method": method, "code": code})


def _expected(error: Exception) -> bool:
    """Whether the order merely moved on, or Temporal was told that this is no failure."""
    benign = isinstance(error, ApplicationError) and error.category is ApplicationErrorCategory.BENIGN
    return benign or isinstance(error, Moved)
