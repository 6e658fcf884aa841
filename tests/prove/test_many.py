"""Two hundred at once, with both programs killed meanwhile: each is served once, and nothing of them is left."""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import partial

import pytest

from activities.cluster import KEYSTONE_PROJECT
from deploy.local import stack
from deploy.local.keystone_api import KeystoneAPI
from deploy.local.part import Stack
from tests import audit
from tests.bench import history
from tests.bench.desk import LABEL, NAMESPACE, PATIENCE, Desk, Sight, eventually, ready, reference
from tests.bench.usage import Usage
from tests.prove.conftest import ORDERS

pytestmark = [pytest.mark.prove, pytest.mark.real, pytest.mark.timeout(2 * PATIENCE + 300)]

KILLS = ((0.05, "worker"), (0.30, "watcher"), (0.50, "worker"))
"""Who is killed once so much of the batch is Ready."""


@pytest.mark.row("T09", "T10")
async def test_as_many_projects_as_orders_whoever_is_killed(
    here: Stack, batch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"{batch}-{number}" for number in range(ORDERS)]
    ids = {reference(name).workflow_id for name in names}
    client, log = await history.connect(here), audit.Audit(here)
    async with Desk(here) as desk, KeystoneAPI(here) as keystone, Usage(here) as usage:
        took: dict[str, float] = {}
        mark, began = log.mark(), time.perf_counter()

        async def follow(name: str, sight: Sight) -> str:
            order = await sight.until(name, ready)
            took[name] = time.perf_counter() - began
            return str(order["status"]["projectID"])

        async with desk.orders(batch) as sight:
            follows = [asyncio.create_task(follow(name, sight)) for name in names]
            killing = asyncio.create_task(_kill(here, took))
            await asyncio.gather(*(desk.order(name, batch) for name in names))
            written = time.perf_counter() - began
            project_ids = await asyncio.gather(*follows)
            killed = await killing
        served = time.perf_counter() - began

        there = [row for row in await keystone.projects() if row["name"].startswith(batch)]
        assert sorted(row["name"] for row in there) == sorted(names)
        assert sorted(row["id"] for row in there) == sorted(project_ids)
        assert [part for part, _ in killed] == [part for _, part in KILLS]

        events = [await history.count(client, id_) for id_ in ids]
        asked = audit.naming(audit.of(log.since(mark), audit.OPERATOR), desk.named(names), token=batch)
        used = usage.told()

        began = time.perf_counter()
        await desk.delete_all(KEYSTONE_PROJECT, NAMESPACE, {LABEL: batch})
        await eventually(lambda: desk.cleared(batch), PATIENCE)
        gone = time.perf_counter() - began

        assert [row["name"] for row in await keystone.projects() if row["name"].startswith(batch)] == []
        assert await desk.left_of(names) == []
        await eventually(lambda: history.closed(client, ids))

    taken = sorted(took.values())
    kills = ", ".join(f"{part} at {count}" for part, count in killed)
    with capsys.disabled():
        print(
            f"\n{ORDERS} projects ordered within {written:.1f} s; killed meanwhile (orders Ready by then): {kills}\n"
            f"  all Ready after {served:.1f} s (median {statistics.median(taken):.1f} s), all gone {gone:.1f} s after"
            " their deletion\n"
            f"  API requests per order to Ready: {len(asked) / ORDERS:.1f}\n"
            f"  events per order: {statistics.mean(events):.1f}, at most {max(events)}\n"
            f"  worker:  {used['worker']:.1f} s of processor time, {1000 * used['worker'] / ORDERS:.0f} ms per order,"
            f" at most {usage.mebibytes('worker')} MiB\n"
            f"  watcher: {used['watcher']:.1f} s, {1000 * used['watcher'] / ORDERS:.0f} ms per order,"
            f" at most {usage.mebibytes('watcher')} MiB\n"
            f"  others:  {', '.join(f'{part} {seconds:.1f} s' for part, seconds in used.items() if part[0] != 'w')}"
        )


async def _so_many(took: dict[str, float], wanted: float) -> bool:
    return len(took) >= wanted


async def _kill(here: Stack, took: dict[str, float]) -> list[tuple[str, int]]:
    """Kills each in its turn and starts it again; who, and how many were Ready by then."""
    killed = []
    for share, part in KILLS:
        await eventually(partial(_so_many, took, share * ORDERS), PATIENCE, every=0.05)
        await stack.kill_part(here, part)
        killed.append((part, len(took)))
        await stack.start_part(here, part)
    # Twenty may be done before a program is back from its first death.
    assert killed[-1][1] < ORDERS or ORDERS < 100, "everything was Ready before the last kill"
    return killed
