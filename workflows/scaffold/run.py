"""What every order's run does whatever its kind: hear rings, pass, report, wait, hand over.

A run begins with a full pass and keeps nothing that the cluster does not hold, so losing, doubling or reordering a
ring is harmless, and a run may start anew at any point.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, NoReturn, TypeVar

from temporalio import workflow
from temporalio.common import Priority
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError
from temporalio.exceptions import TimeoutError as TemporalTimeout
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from workflows.scaffold import conditions, search, steps
    from workflows.scaffold.carry import Carry, Described
    from workflows.scaffold.order import OrderRef
    from workflows.scaffold.verdict import FROZEN_SECONDS, REFRESH_SECONDS, Outcome, Verdict

LONG_HISTORY = 500
CONVERGED_HISTORY = 100
MANY_RINGS = 200
FIRST_PAUSE = 10.0
LONGEST_PAUSE = 300.0

Answer = TypeVar("Answer")


class Trouble(Exception):
    """A step could not find out or do what it is for, for as long as it was tried.

    known  status fields that it had found out by then
    """

    def __init__(self, text: str, type_: str = "", known: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.type = type_
        self.known = known or {}


class Moved(Exception):
    """The order is not what the pass began with: begin another."""


class Over(Exception):
    """Nothing is left to do for this order."""


class Run:
    """One order's run: the handlers people and the watcher use, and the loop around a kind's pass."""

    kind: ClassVar[str]
    condition_types: ClassVar[tuple[str, ...]]
    phase: ClassVar[str]

    def __init__(self, carry: Carry | None = None) -> None:
        before = carry or Carry()
        self.ref = OrderRef.parse(workflow.info().workflow_id)
        self.order = steps.OrderSeen()
        self._verdicts = before.verdicts
        self._left: tuple[str, ...] = ()
        self._note = ""
        self._next_look: float | None = None
        self._rung = False
        self._rings = 0
        self._passes_begun = 0
        self._passes_ended = 0
        self._pass_wanted = 0
        self._closing = False
        self._troubles = before.troubles
        self._paused_in = 0
        self._troubled_since = before.troubled_since
        self._late_until = before.late_until
        self.bereft = before.bereft
        self._newcomer = carry is None or workflow.info().attempt > 1
        self._moves = 0

    # -- what others may ask ------------------------------------------------------------------------------------

    @workflow.signal(description="Something this order depends on has changed. Carries nothing; rung by the watcher.")
    def changed(self) -> None:
        self._ring()

    @workflow.signal(description="Make a full pass now and clear any pause. Carries nothing; rung by people.")
    def resync(self) -> None:
        self._troubles = 0
        self._ring()

    @workflow.update(description="Make a full pass now, and answer with what it found.")
    async def resync_now(self) -> Described:
        await self.next_pass()
        return self.describe()

    @workflow.query(description="What the last pass found, and what is waited for.")
    def describe(self) -> Described:
        ready = bool(self._verdicts) and all(verdict.status for verdict in self._verdicts) and not self._note
        return Described(
            order=self.ref.workflow_id,
            phase=self.phase,
            verdicts=self._verdicts,
            ready=ready,
            note=self._note,
            left=self._left,
            next_look_seconds=self._next_look,
        )

    async def next_pass(self) -> None:
        """Asks for a whole pass that begins after this, and returns when it has ended, or the run does."""
        self.resync()
        wanted = self.hold_for_next_pass()
        await workflow.wait_condition(lambda: self._passes_ended >= wanted or self._closing)

    def hold_for_next_pass(self) -> int:
        """The number of the next pass; the run does not start anew of itself before it has ended."""
        self._pass_wanted = self._passes_begun + 1
        return self._pass_wanted

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What the last pass found."""
        return self._verdicts

    def _ring(self) -> None:
        self._rung = True
        self._rings += 1

    # -- the loop -----------------------------------------------------------------------------------------------

    async def passes(self, one_pass: Callable[[], Awaitable[None]]) -> None:
        """Passes and waits until the order is over. `one_pass` says by `report` and `leave` what it found."""
        while True:
            self._rung = False
            self._passes_begun += 1
            self._note, self._left = "", ()
            begun = workflow.now()
            wait: float | None = None
            try:
                await one_pass()
                self._moves = 0
                if not any(verdict.trouble for verdict in self._verdicts):
                    self._troubles, self._troubled_since = 0, None
            except Moved:
                self._moves += 1
                # Somebody who writes the order without end must not make us read it without end.
                wait = min(0.2 * 2**self._moves, FIRST_PAUSE)
            except Trouble as trouble:
                self._moves = 0
                wait = self._pause()
                await self._say_trouble(trouble)
            except Over:
                if self._rung:
                    continue
                self._note = "Nothing is left to do for this order."
                self._measure(begun, "over")
                await self._close()
                if self._rung:  # while the last caller was answered
                    self._closing = False
                    continue
                return
            self._measure(begun, "moved" if self._moves else "error" if wait is not None else self._result())
            if not self._moves:
                self._passes_ended = self._passes_begun
            self._plan(wait)
            self._show()
            if self._should_start_anew():
                await self.hand_over(workflow.info().workflow_type)
            await self._wait(wait)

    async def step(
        self, method: Callable[[steps.Steps, Any], Awaitable[Answer]], argument: Any, summary: str
    ) -> Answer:
        """Runs one activity. Raises `Moved` or `Trouble`; this is the one place that catches `ActivityError`."""
        try:
            return await workflow.execute_activity_method(
                method,
                argument,
                start_to_close_timeout=steps.START_TO_CLOSE,
                retry_policy=steps.RETRY,
                summary=_short(summary),
                priority=self._fair(),
            )
        except ActivityError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError):
                if cause.type == steps.MOVED:
                    raise Moved from None
                known = next((detail for detail in cause.details if isinstance(detail, dict)), None)
                raise Trouble(cause.message, cause.type or "", known) from None
            if isinstance(cause, TemporalTimeout):
                self._late_until = workflow.now() + steps.STEP_DEADLINE
                raise Trouble(f"{summary}: no answer in time") from None
            if isinstance(cause, CancelledError):  # of the whole run, by a person; the step does not hear of it
                self._late_until = workflow.now() + steps.START_TO_CLOSE
            raise Trouble(f"{summary}: {cause or error}") from None

    async def report(self, outcome: Outcome, note: str = "") -> None:
        """Makes the order's status say what was found, by a write only if it says something else now.

        Whether it writes is replayed: other words in `conditions`, or in a note, are another step order for runs that
        have written the old ones, and need `workflow.patched` like it.
        """
        self._verdicts, self._note = outcome.verdicts, note
        patch = conditions.changes(
            self.order.status,
            self.order.generation,
            self.condition_types,
            outcome.verdicts,
            outcome.fields,
            note,
            workflow.now(),
        )
        if patch is None:
            self.bereft = None  # its admission has said it
            return
        report = steps.Report(
            ref=self.ref, uid=self.order.uid, resource_version=self.order.resource_version, status=patch
        )
        if not await self.step(steps.Steps.report, report, f"report {_headline(outcome.verdicts, note)}"):
            raise Moved
        self.bereft = None

    def trouble_verdict(self, type_: str, reason: str, trouble: Trouble) -> Outcome:
        """The `…Error` verdict of a step that could not be done; a whole pass follows after a growing pause.

        A step that may not clear a transport error says so by a reason of its own.
        """
        reason = trouble.type if trouble.type == steps.TRANSPORT_RETRY_FAILED else reason
        text = f"{trouble} (tried again after a pause)"
        verdict = Verdict(type=type_, status=False, reason=reason, message=text, again=self._pause(), trouble=True)
        return Outcome(verdicts=(verdict,), fields=dict(trouble.known))

    def leave(self, left: Sequence[str]) -> None:
        """What a deletion waits for."""
        self._left = tuple(left)

    async def hand_over(self, workflow_type: str) -> NoReturn:
        """Starts the run anew, as this type or as the order's other one, once every caller has its answer."""
        if workflow_type != workflow.info().workflow_type:
            self._note = f"The order goes on as {workflow_type}."
        await self._close()
        carry = Carry(
            verdicts=self._verdicts,
            troubles=self._troubles,
            troubled_since=self._troubled_since,
            late_until=self._late_until,
            bereft=self.bereft,
        )
        workflow.continue_as_new(args=[carry], workflow=workflow_type)

    def finds_served(self) -> None:
        """The order is there: what is deleted from now on is deleted under this run, which knows of its steps."""
        self._newcomer = False

    def finds_deleted(self) -> None:
        """A run that has never seen the order otherwise may follow one that was terminated or failed. Steps of that one
        live on, and nobody hears whether they time out."""
        if self._newcomer:
            self._late_until = workflow.now() + steps.START_TO_CLOSE

    async def outlive_late_writes(self) -> None:
        """Waits until no step that timed out, or that was left behind, can still be writing."""
        if workflow.info().attempt > 1 and workflow.patched("a-reborn-teardown-waits"):
            self.finds_deleted()
        if self._late_until is not None and self._late_until > workflow.now():
            left = self._late_until - workflow.now()
            await workflow.sleep(left, summary="until no step that timed out, or was left behind, can write")
        self._late_until = None

    # -- inner parts --------------------------------------------------------------------------------------------

    def _fair(self) -> Priority:
        """Workers take turns between control planes, so that one tenant's storm delays nobody else."""
        return Priority(fairness_key=_short(self.order.plane_key or self.ref.namespace, 64))

    def _pause(self) -> float:
        if self._paused_in != self._passes_begun:  # several blocks of one pass fail together
            self._paused_in = self._passes_begun
            self._troubles += 1
        self._troubled_since = self._troubled_since or workflow.now()
        pause: float = min(FIRST_PAUSE * 2 ** (self._troubles - 1), LONGEST_PAUSE)
        return pause

    async def _say_trouble(self, trouble: Trouble) -> None:
        """Puts a trouble that no condition is for into `Ready`, if the order can be written at all."""
        since = self._troubled_since.strftime("%Y-%m-%dT%H:%M:%SZ") if self._troubled_since else ""
        self._note = f"{trouble} (since {since}; tried again after a pause)"
        if not self.order.uid:
            return
        known = self._verdicts
        try:
            # Not what was found before: it may be of an order that was another then, and must not be said of this one.
            await self.report(Outcome(verdicts=(), fields=dict(trouble.known)), self._note)
        except (Moved, Trouble) as again:
            workflow.logger.info("the trouble could not be reported: %s", again)
        finally:
            self._verdicts = known

    def _result(self) -> str:
        if any(verdict.trouble for verdict in self._verdicts):
            return "error"
        return "ready" if self.describe().ready else "waiting"

    def _measure(self, begun: datetime, result: str) -> None:
        """How long a pass took, its steps and their waiting for a worker included. A replay measures nothing."""
        workflow.metric_meter().create_histogram_timedelta(
            "c5c3_pass_duration_seconds", "Duration of a whole pass over an order", "s"
        ).record(workflow.now() - begun, {"kind": self.kind, "result": result})

    def _plan(self, pause: float | None) -> None:
        """When the order is looked at again if nobody rings; None means never."""
        refresh = self._refresh()
        looks = [verdict.again for verdict in self._verdicts if verdict.again is not None]
        looks += [FIRST_PAUSE] if self._left else []
        looks += [FROZEN_SECONDS] if self.order.paused else []
        looks += [refresh] if refresh is not None else []
        self._next_look = pause if pause is not None else min(looks, default=None)

    async def _wait(self, pause: float | None) -> None:
        if self._rung:
            return
        if self._next_look is None:
            await workflow.wait_condition(lambda: self._rung)
            return
        blind = pause is not None or any(verdict.trouble for verdict in self._verdicts)
        await self._settle(self._next_look, self._refresh(), blind)

    def _refresh(self) -> float | None:
        """Seconds until a whole pass is due in any case: no plane event need reach an order on a target cluster.

        A refusal that asks for no look at all is left alone there too.
        """
        never = any(not verdict.status and verdict.again is None for verdict in self._verdicts)
        return REFRESH_SECONDS if self.ref.cluster and not never else None

    async def _settle(self, every: float, refresh: float | None, blind: bool) -> None:
        wait = steps.Wait(
            ref=self.ref,
            tearing_down=self.phase != "serving",
            generation=self.order.generation,
            paused=self.order.paused,
            verdicts=self._verdicts,
            left=self._left,
            every=every,
            refresh=refresh,
            blind=blind,
            words=self._waiting_for(),
        )
        looking = workflow.start_activity_method(
            steps.Steps.settle,
            wait,
            start_to_close_timeout=steps.LOOK_START_TO_CLOSE,
            retry_policy=steps.LOOK_RETRY,
            cancellation_type=ActivityCancellationType.TRY_CANCEL,
            summary=_short(wait.words),
            priority=self._fair(),
        )
        bell = asyncio.create_task(workflow.wait_condition(lambda: self._rung))
        await workflow.wait([looking, bell], return_when=asyncio.FIRST_COMPLETED)
        for task in (looking, bell):
            task.cancel()
        looked, _ = await asyncio.gather(looking, bell, return_exceptions=True)
        if isinstance(looked, ActivityError) and not self._rung:
            # A look is tried for ever; one that failed for good must not make us pass at full speed.
            workflow.logger.warning("the looks ended: %s", looked.cause or looked)
            with contextlib.suppress(asyncio.TimeoutError):
                await workflow.wait_condition(lambda: self._rung, timeout=every)

    def _should_start_anew(self) -> bool:
        length = workflow.info().get_current_history_length()
        if self._pass_wanted > self._passes_ended and length < 2 * LONG_HISTORY:
            return False  # an accepted update has still to hear of its own pass
        return (
            length > LONG_HISTORY
            or self._rings > MANY_RINGS
            or (self.describe().ready and not self._moves and length > CONVERGED_HISTORY)
            or workflow.info().is_continue_as_new_suggested()
        )

    async def _close(self) -> None:
        """Answers every accepted update before the run ends: an update does not outlive its run."""
        self._closing = True
        await workflow.wait_condition(workflow.all_handlers_finished)

    def _waiting_for(self) -> str:
        waits = [*self._left, *(f"{v.reason}: {v.message}" for v in self._verdicts if not v.status)]
        return (self._note and not self._left and self._note) or (waits[0] if waits else "the next refresh")

    def _show(self) -> None:
        """Search attributes (an event only when one changed) and the current details, for people in the UI."""
        described = self.describe()
        unready = next(
            (v.reason for v in self._verdicts if not v.status), "" if self.phase == "serving" else "Deleting"
        )
        wanted: Mapping[Any, str] = {
            search.KIND: self.kind,
            search.NAMESPACE: self.ref.namespace,
            search.CLUSTER: self.ref.cluster or search.MANAGEMENT,
            search.PLANE: _short(self.order.plane_key) or "unknown",
            search.READY: "True" if described.ready else "False",
            search.REASON: unready or ("AllReady" if described.ready else "NotAllReady"),
        }
        known = workflow.info().typed_search_attributes
        updates = [key.value_set(value) for key, value in wanted.items() if known.get(key) != value]
        if updates:
            workflow.upsert_search_attributes(updates)
        lines = [f"- **{v.type}** {'True' if v.status else 'False'} `{v.reason}`: {_short(v.message, 500)}" for v in self._verdicts]  # fmt: skip  # noqa: E501
        lines += [f"- waits for {_short(each, 500)}" for each in self._left]
        if self._note:
            lines.append(f"- **Ready** False: {_short(self._note, 500)}")
        lines.append(f"- next look {f'in {self._next_look:g} s' if self._next_look is not None else 'when it is rung'}")
        workflow.set_current_details("\n".join([f"`{self.ref.key}` is {self.phase}", "", *lines]))


async def side_by_side(*blocks: Awaitable[Answer]) -> list[Answer]:
    """Runs all to their ends, so that none works on when the pass is over; then raises what the first failed with."""
    answers = await asyncio.gather(*blocks, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]


def _headline(verdicts: Sequence[Verdict], note: str) -> str:
    unready = next((verdict for verdict in verdicts if not verdict.status), None)
    return unready.reason if unready else (_short(note) if note else "Ready")


def _short(text: str, limit: int = 180) -> str:
    """At most so many bytes: the server refuses a step whose summary, say, is longer, and the run would stand still."""
    raw = text.encode()
    return text if len(raw) <= limit else raw[: limit - 3].decode(errors="ignore") + "…"
