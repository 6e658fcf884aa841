"""Every pass is measured once, by how it ended, and by nothing that names the order; a replay measures nothing."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer

from tests.conftest import Told
from tests.worker.test_temporal import settings_for
from tests.world import until
from worker import assembly
from worker.settings import WorkerSettings
from worker.temporal import connect
from workflows.keystoneproject.workflow import KeystoneProject
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import Admitted, OrderSeen, Report, State, Wait
from workflows.scaffold.verdict import Outcome, Verdict

ORDER = OrderSeen(uid="u", generation=1, resource_version="1", plane_key="openstack/cp")
READY = Verdict(type="ProjectReady", status=True, reason="ProjectProvisioned", message="")
REFUSED = Verdict(type="ProjectReady", status=False, reason="NamespaceNotAssigned", message="")


class Steps:
    """Answers of `admit`, one a pass."""

    def __init__(self, answers: Sequence[Admitted]) -> None:
        self._answers = list(answers)

    @activity.defn(name="admit")
    async def admit(self, ref: OrderRef) -> Admitted:
        return self._answers.pop(0)

    @activity.defn(name="report")
    async def report(self, report: Report) -> bool:
        return True

    @activity.defn(name="settle")
    async def settle(self, wait: Wait) -> None:
        raise ApplicationError("waiting", next_retry_delay=timedelta(minutes=1))


@pytest.mark.row("O01")
async def test_passes_are_measured_by_how_they_ended(temporal_env: WorkflowEnvironment, told: Told) -> None:
    def measured() -> Counter[str]:
        told.telemetry.exporter.move()
        return Counter({
            sample.labels["result"]: int(sample.value)
            for family in text_string_to_metric_families(told.text())
            for sample in family.samples
            if sample.name == "c5c3_pass_duration_seconds_count" and sample.labels["kind"] == "KeystoneProject"
        })  # fmt: skip

    before, queue = measured(), f"passes-{uuid.uuid4().hex[:8]}"
    client = await connect(settings_for(temporal_env), identity=queue, runtime=told.telemetry.runtime)
    steps = Steps([
        Admitted(state=State.PRESENT, order=ORDER, refused=(REFUSED,)),
        Admitted(state=State.PRESENT, order=ORDER, found=Outcome(verdicts=(READY,))),
        Admitted(state=State.PRESENT, order=ORDER, trouble="the API server is away"),
        Admitted(state=State.GONE),
    ])  # fmt: skip
    settings = WorkerSettings.model_validate({"task_queue": queue})
    async with assembly.build(client, settings, [KeystoneProject], [steps.admit, steps.report, steps.settle]):
        ref = OrderRef(kind="KeystoneProject", cluster="", namespace="team-a", name=queue)
        run = await client.start_workflow(KeystoneProject.run, id=ref.workflow_id, task_queue=queue)

        async def has_passed() -> bool:
            return bool((await run.query(KeystoneProject.describe)).verdicts)

        await until(has_passed)
        for _ in range(3):
            await run.execute_update("resync_now")
        await run.result()
    expected = Counter({"waiting": 1, "ready": 1, "error": 1, "over": 1})
    assert measured() - before == expected
    passes = [line.replace(f'task_queue="{queue}"', "") for line in told.text().splitlines() if "c5c3_pass" in line]
    assert not any(queue in line or "team-a" in line for line in passes)
    replayer = Replayer(workflows=[KeystoneProject], workflow_runner=assembly.runner(),
                        data_converter=client.data_converter, runtime=told.telemetry.runtime)  # fmt: skip
    await replayer.replay_workflow(await run.fetch_history())
    assert measured() - before == expected
