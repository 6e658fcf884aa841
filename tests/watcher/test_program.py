"""`python -m watcher` as a person or a kubelet runs it: a sentence for what is wrong, waiting for what is down."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.testing import WorkflowEnvironment

from activities.cluster import LEASE
from deploy.local import kube
from deploy.local.part import Stack
from tests.watcher.apart import Place, patiently, place_on
from tests.watcher.test_temporal import state, until_state
from watcher.leader import NAME
from watcher.settings import WatcherSettings
from worker.settings import BadSettings, load

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Program:
    """The program, with the settings given and no others."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.port = free_port()
        self.log = folder / f"watcher-{self.port}.log"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("C5C3_")}
        ours = {"C5C3_HTTP_ADDRESS": f"127.0.0.1:{self.port}", **settings}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "watcher"], env={**kept, **ours}, cwd=ROOT, stderr=log, stdout=log
            )

    def said(self) -> list[str]:
        """The messages of its log, or whole lines where it did not get as far as logging."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line)["message"] if line.startswith("{") else line for line in lines]

    async def ended(self, seconds: float = 60) -> int:
        return await asyncio.to_thread(self.process.wait, seconds)

    async def says(self, word: str) -> None:
        for _ in range(600):
            if any(word in line for line in self.said()):
                return
            assert self.process.poll() is None, self.said()
            await asyncio.sleep(0.1)
        raise AssertionError(f"never said {word!r}: {self.said()}")

    async def asked(self, path: str) -> tuple[int, str]:
        def ask() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        return await asyncio.to_thread(ask)

    async def becomes(self, role: str) -> None:
        """Ready, and in that role."""
        for _ in range(600):
            if (await self.ready())["role"] == role:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"never {role}: {self.said()}")

    async def ready(self) -> dict[str, Any]:
        status, text = 0, ""
        for _ in range(600):
            try:
                status, text = await self.asked("/readyz")
            except OSError:
                assert self.process.poll() is None, self.said()
            if status == 200:
                body: dict[str, Any] = json.loads(text)
                return body
            await asyncio.sleep(0.1)
        raise AssertionError(f"never ready: {text} {self.said()}")


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    made: list[Program] = []

    def run(**settings: str) -> Program:
        made.append(Program(tmp_path, **settings))
        return made[-1]

    yield run
    for one in made:
        one.process.kill()
        one.process.wait()


@pytest.fixture
async def place(api_stack: Stack) -> AsyncIterator[Place]:
    async with place_on(api_stack) as place:
        yield place


def settings(stack: Stack, temporal: WorkflowEnvironment) -> dict[str, str]:
    return {
        "C5C3_KUBECONFIG": str(kube.kubeconfig(stack, "management", "operator")),
        "C5C3_TEMPORAL_ADDRESS": temporal.client.service_client.config.target_host,
        "C5C3_TASK_QUEUE": "nobody-polls-this",
    }


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("C5C3_RINGS_PER_SECOND", "many", "C5C3_RINGS_PER_SECOND 'many' cannot be used"),
        ("C5C3_RINGS_PER_SECOND", "0", "C5C3_RINGS_PER_SECOND '0' cannot be used"),
        ("C5C3_LEADER_ELECTION", "perhaps", "C5C3_LEADER_ELECTION 'perhaps' cannot be used"),
        ("C5C3_LEADER_ELECTIONS", "true", "did you mean C5C3_LEADER_ELECTION?"),
        ("C5C3_KUBECONFIG", "/nowhere/config", "C5C3_KUBECONFIG '/nowhere/config' cannot be used"),
    ],
)
def test_a_wrong_setting_is_one_sentence(monkeypatch: pytest.MonkeyPatch, name: str, value: str, sentence: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadSettings) as error:
        load(WatcherSettings)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


async def test_what_cannot_work_ends_it_at_once_with_one_sentence(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    (tmp_path / "broken").write_text("{")
    (tmp_path / "strange").write_text("[]")
    wrong: list[tuple[dict[str, str], str]] = [
        ({"C5C3_RING_CONCURRENCY": "0"}, "C5C3_RING_CONCURRENCY '0' cannot be used"),
        ({}, "no kubeconfig given: set C5C3_KUBECONFIG"),
        ({"C5C3_HTTP_ADDRESS": "192.0.2.1:1"}, "set C5C3_HTTP_ADDRESS"),
        ({"C5C3_KUBECONFIG": str(tmp_path / "broken")}, "cannot be read: ParserError"),
        ({"C5C3_KUBECONFIG": str(tmp_path / "strange")}, "the kubeconfig cannot be used"),
    ]
    for one, sentence in [(program(**given), sentence) for given, sentence in wrong]:
        assert await one.ended(120) == 1
        assert sentence in one.said()[-1]
        assert not any("Traceback" in line for line in one.said())


async def test_what_is_down_is_waited_for_and_a_sigterm_ends_the_waiting(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }  # fmt: skip
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    one = program(C5C3_KUBECONFIG=str(tmp_path / "config"))
    await one.says("waiting for the management cluster")
    assert (await one.asked("/healthz"))[0] == 200
    status, text = await one.asked("/readyz")
    assert status == 503
    assert "waiting for the management cluster" in text
    one.process.send_signal(signal.SIGTERM)
    assert await one.ended(10) == 0


@pytest.mark.api
async def test_temporal_is_waited_for(program: Callable[..., Program], api_stack: Stack) -> None:
    config = str(kube.kubeconfig(api_stack, "management", "operator"))
    one = program(C5C3_KUBECONFIG=config, C5C3_TEMPORAL_ADDRESS="127.0.0.1:9")
    await one.says("waiting for Temporal")
    assert "waiting for Temporal" in (await one.asked("/readyz"))[1]
    one.process.send_signal(signal.SIGTERM)
    assert await one.ended(10) == 0


@pytest.mark.api
async def test_a_right_that_is_missing_or_a_kind_that_is_not_served_ends_it(
    program: Callable[..., Program], api_stack: Stack, temporal_env: WorkflowEnvironment, tmp_path: Path
) -> None:
    path = "/api/v1/namespaces/c5c3-system/serviceaccounts/default/token"
    token = (await kube.call(api_stack, "management", "POST", path, {"spec": {}}))["status"]["token"]
    config = yaml.safe_load(kube.kubeconfig(api_stack, "management", "operator").read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    (tmp_path / "stranger").write_text(yaml.safe_dump(config))
    one = program(**settings(api_stack, temporal_env) | {"C5C3_KUBECONFIG": str(tmp_path / "stranger")})
    assert await one.ended() == 1
    assert "no permission to list keystoneprojects.c5c3.io" in one.said()[-1]
    for user in config["users"]:
        user["user"] = {"token": "no-such-token"}
    (tmp_path / "nobody").write_text(yaml.safe_dump(config))
    one = program(**settings(api_stack, temporal_env) | {"C5C3_KUBECONFIG": str(tmp_path / "nobody")})
    assert await one.ended() == 1
    assert "does not know us (401)" in one.said()[-1]


@pytest.mark.api
async def test_killed_it_misses_nothing_and_two_side_by_side_start_each_order_once(
    program: Callable[..., Program], api_stack: Stack, place: Place, temporal_env: WorkflowEnvironment
) -> None:
    client, given = temporal_env.client, settings(api_stack, temporal_env)
    first = program(**given)
    await first.becomes("active")
    standby = program(**given)
    await standby.becomes("standby")
    await place.order("one")
    await until_state(client, place.ref("one"), "RUNNING")
    first.process.send_signal(signal.SIGKILL)
    await place.order("two")
    began = time.monotonic()
    await until_state(client, place.ref("two"), "RUNNING")
    assert time.monotonic() - began < 60, "the Lease lasts 15 s"
    await standby.becomes("active")
    alone = program(**given, C5C3_LEADER_ELECTION="false")
    await alone.becomes("active")
    await asyncio.gather(*(place.order(f"both-{n}") for n in range(10)))
    for n in range(10):
        await until_state(client, place.ref(f"both-{n}"), "RUNNING")
    runs = [run.id async for run in client.list_workflows(f'OrderNamespace = "{place.namespace}"')]
    assert len(runs) == len(set(runs)), "never two for one order"
    status, text = await standby.asked("/metrics")
    assert status == 200
    for name in ("stream_age_seconds", "rings_total", "events_total", "relists_total", "pending_rings", "leading"):
        assert f"c5c3_watcher_{name}" in text
    standby.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert await standby.ended(10) == 0
    assert time.monotonic() - began < 8
    assert not any("Traceback" in line for one in (standby, alone) for line in one.said())
    assert await state(client, place.ref("one")) == "RUNNING"


@pytest.mark.api
async def test_the_lease_is_given_back_at_the_end(
    program: Callable[..., Program], api_stack: Stack, place: Place, temporal_env: WorkflowEnvironment
) -> None:
    one = program(**settings(api_stack, temporal_env))
    await one.becomes("active")
    one.process.send_signal(signal.SIGTERM)
    assert await one.ended(10) == 0
    lease = await patiently(lambda: place.management.get(LEASE, "c5c3-system", NAME))
    assert lease
    assert lease["spec"]["holderIdentity"] == ""
