"""What can go wrong between us and the world, in three kinds: retried, final, expected.

No error here carries a request body, a header or a token: its text may end in a history, a log, a condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from workflows.scaffold.steps import MOVED, OPENBAO

# 409 is decided by the caller; these heal without anybody changing a request of ours.
_PASSING = frozenset({408, 409, 410, 429, 500, 502, 503, 504})
# OpenBao's, of a node that is not the active one (yet).
_STANDBY = frozenset({307, 308, 412, 472, 473})


class Failure(Exception):
    """What a step may fail with.

    known  status fields that it had found out by then, to be reported all the same
    """

    known: Mapping[str, Any] = MappingProxyType({})


class ClusterError(Failure):
    """An API server refused, or could not be asked.

    status  HTTP status, or 0 when there was no answer
    reason  the `reason` of the Kubernetes Status (`Forbidden`, `Conflict`, ...), or of our own making
    """

    def __init__(self, doing: str, status: int, reason: str, message: str) -> None:
        super().__init__(f"{doing}: {status or 'no answer'} {reason}" + (f": {message}" if message else ""))
        self.status = status
        self.reason = reason

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later with nobody's help."""
        return self.status == 0 or self.status in _PASSING


class Conflict(ClusterError):
    """409: the object changed, or exists, since it was looked at."""


class NotServed(ClusterError):
    """404 for the kind, not for the object: the CRD is missing. Never read as absence (contracts 14.4)."""


class OpenBaoError(Failure):
    """OpenBao refused, or could not be asked. The text carries its words, and never a token.

    status   HTTP status, or 0 when there was no answer
    passing  whether the same request may succeed later with nobody's help
    """

    def __init__(self, text: str, status: int = 0, *, passing: bool | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.passing = (status == 0 or status in _PASSING | _STANDBY) if passing is None else passing


class Moved(Exception):
    """The order is gone, another one, being deleted or paused: what the step was about to write is not wanted."""


class StepExpired(Failure):
    """The step's own deadline has passed; the next attempt may already be running, so nothing more is written."""


@contextmanager
def knowing(**fields: Any) -> Iterator[None]:
    """What fails in here tells these status fields."""
    try:
        yield
    except Failure as error:
        error.known = {**error.known, **fields}
        raise


@contextmanager
def at_boundary() -> Iterator[None]:
    """Turns what an activity raises into what Temporal should do about it.

    `from None` keeps the chain out of history: an error's context may hold what its text was careful to omit.
    """
    try:
        yield
    except Moved as error:
        raise ApplicationError(
            str(error), type=MOVED, non_retryable=True, category=ApplicationErrorCategory.BENIGN
        ) from None
    except StepExpired as error:
        raise ApplicationError(str(error), *_told(error), type="StepExpired") from None
    except ClusterError as error:
        raise ApplicationError(str(error), *_told(error), type=error.reason, non_retryable=not error.passing) from None
    except OpenBaoError as error:
        raise ApplicationError(str(error), *_told(error), type=OPENBAO, non_retryable=not error.passing) from None


def _told(error: Failure) -> tuple[dict[str, Any], ...]:
    return (dict(error.known),) if error.known else ()
