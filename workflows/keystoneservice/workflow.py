"""One KeystoneService, served for as long as it exists. One pass fits one screen.

admit (gates, finalizer) -> two blocks side by side: provision_catalog (probe, service, endpoints); provision_account
(probes, project, user, password, roles), then publish_account (OpenBao, the service's Secret) -> report; it waits.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.scaffold import passes
from workflows.scaffold.run import Moved, Run, Trouble, side_by_side

with workflow.unsafe.imports_passed_through():
    from workflows.api.meta import Model
    from workflows.keystoneservice import gates, reasons
    from workflows.scaffold import steps
    from workflows.scaffold.carry import Carry
    from workflows.scaffold.verdict import Outcome


class Rotated(Model):
    """What `rotate` answers.

    generation  of the password that is wanted now
    delivered   whether the service's Secret holds it
    waits_on    what it waits on, in words, if it does not
    """

    generation: int
    delivered: bool
    waits_on: str = ""


@workflow.defn(name="KeystoneService", failure_exception_types=[workflow.NondeterminismError])
class KeystoneService(Run):
    """Registers what the order declares and keeps it so."""

    kind = "KeystoneService"
    condition_types = reasons.CONDITIONS
    phase = "serving"

    @workflow.init
    def __init__(self, carry: Carry | None = None) -> None:
        super().__init__(carry)
        self._plane: Any = None
        self._generation = 0
        self._refused = ""

    @workflow.run
    async def run(self, carry: Carry | None = None) -> None:
        await self.passes(self.one_pass)

    async def one_pass(self) -> None:
        admitted = await passes.admitted(self, "KeystoneServiceTeardown")
        self._plane = admitted.plane
        self._refused = next((f"{v.reason}: {v.message}" for v in admitted.refused if not v.status), "")
        if admitted.refused:
            outcome = Outcome(verdicts=admitted.refused, fields=gates.fields(self.order.spec))
        elif admitted.found is not None:
            outcome = admitted.found
        else:
            task = steps.Task(ref=self.ref, order=self.order, plane=admitted.plane)
            outcome = _together(await side_by_side(self._catalog(task), self._account(task)))
        account = outcome.fields.get("account") or self.order.status.get("account") or {}
        self._generation = account.get("passwordGeneration") or 0
        await self.report(outcome, note=self.order.paused)

    async def _catalog(self, task: steps.Task) -> Outcome:
        try:
            if _left_out(task, "catalog"):
                return Outcome(verdicts=(gates.undeclared("catalog"),), fields={"catalog": None})
            return await self.step(steps.Steps.provision_catalog, task, f"provision the catalog of {self.ref.key}")
        except Trouble as trouble:
            return self.trouble_verdict(reasons.CATALOG_READY, reasons.CATALOG_ERROR, trouble)

    async def _account(self, task: steps.Task) -> Outcome:
        fields: dict[str, Any] = {}
        try:
            if _left_out(task, "account"):
                return Outcome(verdicts=(gates.undeclared("account"),), fields={"account": None})
            outcome = await self.step(steps.Steps.provision_account, task, f"provision the account of {self.ref.key}")
            if not task.order.spec.get("account") or not all(verdict.status for verdict in outcome.verdicts):
                return outcome
            fields = outcome.fields
            status = {**task.order.status, **fields}
            known = task.model_copy(update={"order": task.order.model_copy(update={"status": status})})
            published = await self.step(steps.Steps.publish_account, known, f"publish the account of {self.ref.key}")
            return Outcome(verdicts=published.verdicts, fields=fields)
        except Trouble as trouble:
            failed = self.trouble_verdict(reasons.ACCOUNT_READY, reasons.ACCOUNT_ERROR, trouble)
            return failed.model_copy(update={"fields": fields})

    # -- rotation -----------------------------------------------------------------------------------------------

    @workflow.update(description="Give the account a new password. Answers with its generation, and what it waits on.")
    async def rotate(self) -> Rotated:
        # A run begins with a pass, and knows nothing of the account before.
        await workflow.wait_condition(lambda: self._passes_ended > 0 or self._closing)
        if (reason := self._why_not()) is not None:
            raise ApplicationError(reason, type="NotRotated")
        self.hold_for_next_pass()
        before = self._generation
        task = steps.Task(ref=self.ref, order=self.order, plane=self._plane)
        try:
            await self.step(
                steps.Steps.nudge_account, steps.Nudge(task=task, generation=before), f"rotate {self.ref.key}"
            )
        except (Trouble, Moved) as error:
            raise ApplicationError(f"not rotated: {error}", type="NotRotated") from None
        await self.next_pass()
        verdict = next((each for each in self.verdicts if each.type == reasons.ACCOUNT_READY), None)
        rotated = self._generation > before
        if verdict is None or (verdict.status and not rotated):
            waits_on = self.describe().note or "the next pass over the order"
        else:
            waits_on = "" if verdict.status else f"{verdict.reason}: {verdict.message}"
        return Rotated(generation=self._generation, delivered=not waits_on, waits_on=waits_on)

    @rotate.validator
    def _may_rotate(self) -> None:
        if self._passes_ended and (reason := self._why_not()) is not None:
            raise ApplicationError(reason, type="NotRotated")

    def _why_not(self) -> str | None:
        """Why no password can be rotated now; None when one can."""
        if self._closing:
            return f"this run of {self.ref.key} is over; ask again"
        if not self.order.uid:  # the first pass of a run may fail to read it
            return f"{self.ref.key} could not be read yet ({self.describe().note}); ask again"
        if not self.order.spec.get("account"):
            return f"{self.ref.key} declares no account, so there is no password to rotate"
        if self.order.paused:
            return f"nothing is written for {self.ref.key}: {self.order.paused}"
        if self._refused:
            return f"{self.ref.key} is not served: {self._refused}"
        if self._plane is None or not self._generation:
            return f"the account of {self.ref.key} has no user yet; see its AccountReady condition"
        return None


def _left_out(task: steps.Task, block: str) -> bool:
    """Runs that began before a pass looked at every block left out one that is not declared once it was swept."""
    swept = not task.order.spec.get(block) and gates.swept(task.order.status, task.order.generation, block)
    return swept and not workflow.patched("every-block-is-looked-at")


def _together(outcomes: list[Outcome]) -> Outcome:
    verdicts = tuple(verdict for outcome in outcomes for verdict in outcome.verdicts)
    return Outcome(verdicts=verdicts, fields={k: v for outcome in outcomes for k, v in outcome.fields.items()})
