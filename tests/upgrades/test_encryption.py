"""Orders whose histories are encrypted: nothing plain is in them, and no key that comes or goes loses one."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.json_format import MessageToJson
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from deploy.local.part import Stack
from tests.product import alone
from tests.upgrades.rollout import Rollout, rolling
from tests.upgrades.states import all_come_out, in_every_state, touched
from tests.world import made, until
from worker.encryption import NONE
from worker.settings import ConnectionSettings
from worker.temporal import data_converter
from workflows.keystoneproject import reasons
from workflows.scaffold.order import RESYNC, OrderRef

pytestmark = [pytest.mark.api, pytest.mark.timeout(420)]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "key-1").write_bytes(os.urandom(32))
    return folder


def reader(env: WorkflowEnvironment, folder: Path) -> Client:
    """Who reads with the keys, as people's command line does."""
    config = env.client.config()
    config["data_converter"] = data_converter(ConnectionSettings(payload_keys_dir=folder, payload_key=NONE))
    return Client(**config)


@pytest_asyncio.fixture
async def rollout(
    api_stack: Stack, temporal_env: WorkflowEnvironment, tmp_path: Path, keys: Path
) -> AsyncIterator[Rollout]:  # fmt: skip
    await alone(api_stack)
    client = reader(temporal_env, keys)
    async with made(api_stack) as world, rolling(world, client, tmp_path) as one:
        yield one


async def written(rollout: Rollout, ref: OrderRef) -> str:
    """All that Temporal keeps of an order's runs, but for what the list is searched by and the headers of traces."""
    kept = []
    run_id: str | None = (await rollout.client.get_workflow_handle(ref.workflow_id).describe()).run_id
    while run_id:
        handle = rollout.client.get_workflow_handle(ref.workflow_id, run_id=run_id)
        kept.append(readable(json.loads(MessageToJson((await handle.describe()).raw_description))))
        history = json.loads((await handle.fetch_history()).to_json())
        kept.append(readable(history))
        run_id = history["events"][0]["workflowExecutionStartedEventAttributes"].get("continuedExecutionRunId")
    return json.dumps(kept)


def readable(value: Any) -> Any:
    """With every payload's base64 read."""
    if isinstance(value, list):
        return [readable(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "metadata" in value and value.keys() <= {"metadata", "data"}:
        parts = (*value["metadata"].values(), value.get("data", ""))
        return [base64.b64decode(each).decode("latin-1") for each in parts]
    return {key: readable(each) for key, each in value.items() if key not in ("searchAttributes", "header")}


async def task_failures(rollout: Rollout, *refs: OrderRef) -> int:
    """How many decisions of the current runs failed and were tried again."""
    histories = [await rollout.recorded(ref) for ref in refs]
    return sum(event.HasField("workflow_task_failed_event_attributes") for each in histories for event in each)


PROJECT, WORDS = "undertaking", "the quota of that domain is used up"
PLAIN = (PROJECT, WORDS, "json/plain", "admit orders-", "KeystoneProject orders-", "ProjectFailed")


async def troubled(rollout: Rollout, name: str) -> OrderRef:
    """An order of which much is said: its project's name, K-ORC's words, and what it waits for."""
    world = rollout.world
    ref = await world.order(name, f"{PROJECT}-{name}")
    await world.korc.absent(world.probe_of(ref))
    await world.korc.terminal(world.project_of(ref), WORDS)
    await rollout.reads(ref, reasons.FAILED)
    await rollout.quiet(ref)
    return ref


async def test_switched_on_rotated_and_switched_off_under_running_orders(
    rollout: Rollout, temporal_env: WorkflowEnvironment, keys: Path
) -> None:
    """As docs/encryption.md says: whoever reads has a key before anybody writes with it."""
    world = rollout.world
    await world.plane()
    plain = await rollout.worker()
    orders = await in_every_state(rollout)
    open_ = await troubled(rollout, "open")
    seen = await written(rollout, open_)
    for word in PLAIN:
        assert word in seen, f"the search would not find {word!r}"

    on = {"C5C3_PAYLOAD_KEYS_DIR": str(keys)}
    reading = await rollout.worker(**on, C5C3_PAYLOAD_KEY=NONE)
    await rollout.leave(plain)
    sealing = await rollout.worker(**on)
    await rollout.leave(reading)
    await rollout.programs[0].kill()
    await rollout.launch("watcher", C5C3_LEADER_ELECTION="false", **on)
    sealed = await troubled(rollout, "sealed")
    seen = await written(rollout, sealed)
    assert "binary/encrypted" in seen
    for word in PLAIN:
        assert word not in seen, f"{word!r} is in what Temporal keeps"
    asked = "__temporal_workflow_metadata"  # what the UI shows as current details
    told = await rollout.client.get_workflow_handle(sealed.workflow_id).query(asked)
    assert WORDS in told.current_details
    with pytest.raises(Exception, match="binary/encrypted"):
        await temporal_env.client.get_workflow_handle(sealed.workflow_id).query(asked)
    await all_come_out(rollout, orders)

    (keys / "key-2").write_bytes(os.urandom(32))
    rotated = await rollout.worker(**on, C5C3_PAYLOAD_KEY="key-2")
    await rollout.leave(sealing)
    await touched(rollout, *orders.living, open_, sealed)
    seen = await written(rollout, sealed)
    assert "key-1" in seen
    assert "key-2" in seen
    off = await rollout.worker(**on, C5C3_PAYLOAD_KEY=NONE)
    await rollout.leave(rotated)
    await touched(rollout, *orders.living, open_, sealed)
    late = await troubled(rollout, "late")
    assert PROJECT in await written(rollout, late)
    assert await rollout.failures() == []
    assert await task_failures(rollout, *orders.living, open_, sealed, late) == 0
    await rollout.leave(off)


async def test_a_key_that_is_missing_holds_its_orders_and_destroys_none(rollout: Rollout, keys: Path) -> None:
    world = rollout.world
    await world.plane()
    on = {"C5C3_PAYLOAD_KEYS_DIR": str(keys)}
    first = await rollout.worker(**on)
    async with world.korc.playing():
        kept, lost, dying = [await world.order(name) for name in ("kept", "lost", "dying")]
        await rollout.becomes_ready(kept, lost, dying)
        for ref in (kept, lost, dying):
            await rollout.quiet(ref)
    await rollout.leave(first)
    former = (keys / "key-1").read_bytes()
    (keys / "key-1").unlink()
    (keys / "key-2").write_bytes(os.urandom(32))
    second = await rollout.worker(**on)
    before = [await world.live(ref) for ref in (kept, lost)]
    names = await world.names()
    await world.delete(dying)
    for ref in (kept, lost):
        await rollout.client.get_workflow_handle(ref.workflow_id).signal(RESYNC)
    await second.logs(f"a payload is encrypted with key 'key-1', and {keys} has no file of that name: put it back")

    async def all_held() -> bool:
        return await task_failures(rollout, kept) + await task_failures(rollout, lost) >= 2

    await until(all_held)
    assert [await world.live(ref) for ref in (kept, lost)] == before
    assert await world.names() == names
    assert (await world.live(dying))["metadata"]["finalizers"]
    assert await rollout.is_open(kept)

    # The one whose key is given up is begun anew, from what the cluster holds.
    await rollout.temporal(
        "workflow", "terminate", "--workflow-id", lost.workflow_id, "--reason", "its payload key is lost",
        "--address", rollout.client.service_client.config.target_host,
    )  # fmt: skip
    await world.annotate(lost, "example.org/rung", "now")

    async def begun_anew() -> bool:
        return await rollout.is_open(lost) and "key-2" in await written(rollout, lost)

    await until(begun_anew)
    assert await world.reason(lost) == reasons.PROVISIONED

    # The others go on as soon as the key is back, without a restart.
    (keys / "key-1").write_bytes(former)
    async with world.korc.playing():
        await rollout.gone(dying, 120)
        await touched(rollout, kept)
    assert await world.reason(kept) == reasons.PROVISIONED
    assert await rollout.failures() == []
