"""A real Prometheus over the running programs: what they serve is what is documented, and alerts fire for real.

One scene for all of it: orders become Ready; then K-ORC goes and OpenBao is sealed, so one order waits, one is deleted
and one fails.
"""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from deploy.local import kube
from tests.e2e.databases import ORDERS as DATABASES
from tests.e2e.databases import Database, Estate, estate, sealed
from tests.e2e.stage import CHILDREN, CP, Object, Stage, unique, until
from tests.telemetry.files import alerts, dashboard, documented, named_in
from tests.telemetry.prometheus import Prometheus, running, shortened

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

HEALTHY = {"C5C3WorkerNotPolling", "C5C3NoActiveWatcher", "C5C3OpenBaoUnreachable", "C5C3RingsNotTaken"}
SELDOM = {
    # They appear when something happens that this scene does not make.
    "temporal_workflow_failed_total",
    "temporal_workflow_task_execution_failed_total",
    "temporal_request_failure_total",
}
WITHOUT_DATA = {"Failures at Temporal"}


@dataclass
class Scene:
    """The stage, the Prometheus that watches it, and what the programs served while all was ill."""

    stage: Stage
    prometheus: Prometheus
    served: dict[str, str]


async def served(stage: Stage, program: str) -> str:
    """What a program answers to a scrape."""

    def read() -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{stage.stack.ports[program]}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(read)


async def fails_to_ask_openbao(database: Database) -> None:
    """A pass over an order that is Ready asks OpenBao for its role."""
    mark = {"metadata": {"annotations": {"example.org/look": unique("now")}}}
    await kube.patch(database.stage.stack, "management", DATABASES, database.namespace, database.name, mark)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ground(real_stack: Stage) -> AsyncIterator[Estate]:
    async with estate(real_stack) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(real_stack: Stage, ground: Estate, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    targets = {program: real_stack.stack.ports[program] for program in ("worker", "watcher")}
    async with running(tmp_path_factory.mktemp("prometheus"), targets, shortened()) as prometheus:
        leaving, waiting = (real_stack.order(unique(stem)) for stem in ("leaving", "waiting"))
        database = ground.database(unique("measured"))
        await asyncio.gather(leaving.place(), database.place())
        await asyncio.gather(leaving.is_ready(), database.is_ready())
        assert not HEALTHY & await prometheus.firing()
        stray: Object = {
            "apiVersion": "openstack.k-orc.cloud/v1alpha1",
            "kind": "Project",
            "metadata": {"name": unique("stray"), "namespace": CP.namespace, "labels": real_stack.order("gone").labels},
            "spec": {"managementPolicy": "managed", "cloudCredentialsRef": {"secretName": "x", "cloudName": "x"},
                     "resource": {}},
        }  # fmt: skip
        try:
            async with real_stack.without("korc"), sealed(real_stack):
                await kube.apply(real_stack.stack, "management", [stray])
                await waiting.place()
                await leaving.delete()
                await fails_to_ask_openbao(database)
                await prometheus.fires(
                    "C5C3OrderStuck", "C5C3TeardownStuck", "C5C3OpenBaoUnreachable", "C5C3ChildrenWithoutOrder"
                )
                texts = await asyncio.gather(*(served(real_stack, program) for program in targets))
                yield Scene(real_stack, prometheus, dict(zip(targets, texts, strict=True)))
                await real_stack.delete("management", CHILDREN, CP.namespace, stray["metadata"]["name"])
            await prometheus.is_silent("C5C3OrderStuck", "C5C3TeardownStuck", "C5C3ChildrenWithoutOrder", seconds=120)
        finally:
            await real_stack.delete("management", CHILDREN, CP.namespace, stray["metadata"]["name"])
            await waiting.delete()
            await database.delete()
            await asyncio.gather(waiting.gone(120), leaving.gone(120), database.gone(120))


@pytest.mark.row("O01")
async def test_what_is_served_is_what_is_documented(scene: Scene) -> None:
    known, found = documented(), dict[str, set[str]]()
    for text in scene.served.values():
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = re.sub(r"_(bucket|sum|count|created)$", "", sample.name)
                found.setdefault(name, set()).update(sample.labels.keys() - {"le"})
    ours = {name for name in found if not name.startswith("temporal_")}
    assert ours - known.keys() == set(), "served, and not documented"
    assert known.keys() - found.keys() <= SELDOM, "documented, and not served"
    for name in sorted(ours):
        if known[name].labels or name.startswith("c5c3_"):
            assert found[name] == known[name].labels, name


@pytest.mark.row("O01")
async def test_no_label_has_a_value_of_an_order(scene: Scene) -> None:
    """Nor of a namespace, a plane, a uid: what grows with the orders is in no label."""
    theirs = re.compile(r"team-a|waiting-|leaving-|measured-|[0-9a-f]{8}-[0-9a-f]{4}")
    for text in scene.served.values():
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                assert not any(theirs.search(value) for value in sample.labels.values()), sample


async def test_every_expression_of_the_dashboard_has_data(scene: Scene) -> None:
    expressions = list(dashboard())
    assert len(expressions) > 20
    empty = [(title, each) for title, each in expressions if not await scene.prometheus.query(each)]
    assert {title for title, _ in empty} <= WITHOUT_DATA, empty
    for _, each in empty:
        assert named_in(each) <= SELDOM | {"temporal_activity_execution_failed_total"}, each


async def test_every_expression_of_an_alert_can_be_asked_and_reads_what_is_there(scene: Scene) -> None:
    for rule in alerts():
        await scene.prometheus.query(rule["expr"])
        for name in named_in(rule["expr"]) - SELDOM:
            there = await scene.prometheus.query(f'{{__name__=~"{name}(_count)?"}}')
            assert there, f"{rule['alert']} reads {name}, of which there is nothing"


async def test_a_worker_that_is_gone_is_an_alarm_until_it_is_back(scene: Scene) -> None:
    await scene.stage.kill("worker")
    try:
        await scene.prometheus.fires("C5C3WorkerNotPolling")
    finally:
        await scene.stage.start("worker")
    await scene.prometheus.is_silent("C5C3WorkerNotPolling")


async def test_a_watcher_that_is_gone_is_an_alarm_until_it_is_back(scene: Scene) -> None:
    await scene.stage.kill("watcher")
    try:
        await scene.prometheus.fires("C5C3NoActiveWatcher")
    finally:
        await scene.stage.start("watcher")
    await scene.prometheus.is_silent("C5C3NoActiveWatcher")
    assert await until(lambda: scene.prometheus.query('c5c3_orders{ready="False"} > 0'), bool, 30), "it counts anew"
