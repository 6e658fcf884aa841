"""Temporal behind TLS, client certificates and API keys: who is let in, what is said to who is not, and rotation."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from deploy.local import authority, kube
from deploy.local.authority import LOCAL_NAMES, Pair
from deploy.local.part import Stack
from tests.conftest import temporal_program
from tests.flows.flow import until
from tests.worker.front import Front, picky
from tests.worker.program import Program, free_port
from tests.worker.slow_worker import touch
from tests.worker.toy import Toy
from worker import assembly, temporal
from worker.settings import ConnectionSettings, WorkerSettings
from worker.temporal import TemporalUnusable, connect

KEY = "s3cret-of-the-api"
NAMESPACE = "orders.a1b2c"


@pytest.fixture
def ca(tmp_path: Path) -> Pair:
    return authority.authority(tmp_path, "ca")


@pytest.fixture
def other(tmp_path: Path) -> Pair:
    """An authority that nobody asked for."""
    return authority.authority(tmp_path, "other")


@pytest.fixture
def client(ca: Pair, tmp_path: Path) -> Pair:
    return authority.issue(ca, tmp_path, "client")


@pytest_asyncio.fixture
async def front(temporal_env: WorkflowEnvironment, ca: Pair, tmp_path: Path) -> Front:
    """TLS alone, not up yet."""
    target = temporal_env.client.service_client.config.target_host
    return Front(target, authority.issue(ca, tmp_path, "server", LOCAL_NAMES))


def settings(front: Front, ca: Pair, **more: Any) -> ConnectionSettings:
    return ConnectionSettings(temporal_address=front.address, temporal_tls_ca=ca.certificate, **more)


def pair(one: Pair) -> dict[str, Any]:
    return {"temporal_tls_cert": one.certificate, "temporal_tls_key": one.key}


async def refusal(wanted: ConnectionSettings) -> str:
    with pytest.raises(TemporalUnusable) as error:
        await asyncio.wait_for(connect(wanted, identity="test"), 30)
    assert "\n" not in str(error.value)
    assert KEY not in str(error.value)
    return str(error.value)


async def test_a_private_authority(front: Front, ca: Pair, other: Pair, tmp_path: Path) -> None:
    async with front.up():
        found = await connect(settings(front, ca), identity="test")
        assert (await found.count_workflows()).count >= 0
        assert await refusal(settings(front, other)) == (
            f"the certificate of Temporal at {front.address} is not accepted (UnknownIssuer): set"
            " C5C3_TEMPORAL_TLS_CA to the PEM file of its authority"
        )
    elsewhere = replace(front, serving=authority.issue(ca, tmp_path, "elsewhere", ("temporal.example.org",)))
    async with elsewhere.up():
        assert "is for another name: set C5C3_TEMPORAL_ADDRESS" in await refusal(settings(elsewhere, ca))
        await connect(settings(elsewhere, ca, temporal_tls_server_name="temporal.example.org"), identity="test")


async def test_a_certificate_of_the_server_that_has_expired(
    front: Front, ca: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority, "_YEAR", timedelta(minutes=-1))
    async with replace(front, serving=authority.issue(ca, tmp_path, "expired", LOCAL_NAMES)).up() as expired:
        said = await refusal(settings(expired, ca))
    assert said == f"the certificate of Temporal at {front.address} has expired: renew it there"


async def test_tls_where_there_is_none(temporal_env: WorkflowEnvironment, front: Front, ca: Pair) -> None:
    wanted = settings(front, ca).model_copy(update={"temporal_address": front.target})
    assert (await refusal(wanted)).startswith(f"Temporal at {front.target} does not speak TLS: unset C5C3_TEMPORAL_TLS")


async def test_no_tls_where_it_is_spoken(front: Front, caplog: pytest.LogCaptureFixture) -> None:
    """It cannot be told from a server that is just coming up, so it is waited for, with a hint."""
    async with front.up():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connect(ConnectionSettings(temporal_address=front.address), identity="test"), 8)
    assert "(if it speaks TLS, set C5C3_TEMPORAL_TLS=true)" in caplog.messages[0]


async def test_a_client_certificate_lets_in(
    front: Front, ca: Pair, client: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """Without one this front closes the connection and says nothing: it is waited for, with a hint."""
    front.accepts = ca
    async with front.up():
        found = await connect(settings(front, ca, **pair(client)), identity="test")
        assert (await found.count_workflows()).count >= 0
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connect(settings(front, ca), identity="test"), 4)
    assert "(if it asks for a client certificate, check C5C3_TEMPORAL_TLS_CERT)" in caplog.messages[0]


async def test_a_client_certificate_that_is_missing_wrong_or_expired(
    front: Front, ca: Pair, other: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = authority.issue(other, tmp_path, "wrong")
    with monkeypatch.context() as past:
        past.setattr(authority, "_YEAR", timedelta(minutes=-1))
        expired = authority.issue(ca, tmp_path, "past")
    with picky(front.serving, ca) as address:
        for shown, alert in (
            ({}, "CertificateRequired"),
            (pair(wrong), "UnknownCA"),
            (pair(expired), "CertificateExp"),
        ):
            wanted = settings(front, ca, **shown).model_copy(update={"temporal_address": address})
            said = await refusal(wanted)
            assert said.startswith(f"Temporal at {address} does not accept our client certificate ({alert}")
            assert said.endswith("set C5C3_TEMPORAL_TLS_CERT and C5C3_TEMPORAL_TLS_KEY to a pair that it accepts")


async def test_files_that_are_not_what_they_are_for(front: Front, ca: Pair, other: Pair, client: Pair) -> None:
    """Said before anybody is asked: no front is up."""
    mixed = {"temporal_tls_cert": client.certificate, "temporal_tls_key": other.key}
    assert (await refusal(settings(front, ca, **mixed))).endswith(
        "certificate and its key: they are PEM files of one pair"
    )
    empty = ca.certificate.with_name("api-key")
    empty.write_text("\n")
    assert (await refusal(settings(front, ca, temporal_api_key_file=empty))).endswith("is empty: put the API key there")
    ca.certificate.write_text("no certificate")
    assert (await refusal(settings(front, ca))).endswith("holds no certificate: it is a PEM file with one")
    wanted = settings(front, ca)
    ca.certificate.unlink()
    assert (await refusal(wanted)).endswith("(No such file or directory): mount the Secret with it")


async def test_an_api_key_arrives_and_a_wrong_one_is_told(
    front: Front, ca: Pair, temporal_env: WorkflowEnvironment
) -> None:
    front.api_key = KEY
    command = ("operator", "namespace", "create", "--address", front.target, "--namespace", NAMESPACE)
    process = await asyncio.create_subprocess_exec(temporal_program(), *command)
    assert await process.wait() == 0
    keyed = settings(front, ca, temporal_api_key=KEY, temporal_namespace=NAMESPACE)
    async with front.up():
        found = await connect(keyed, identity="test")
        assert found.namespace == NAMESPACE
        assert set(front.shown) == {f"Bearer {KEY}"}
        said = await refusal(keyed.model_copy(update={"temporal_namespace": "orders.elsewhere"}))
        assert "has no namespace 'orders.elsewhere': set C5C3_TEMPORAL_NAMESPACE" in said
        said = await refusal(settings(front, ca, temporal_api_key="wrong", temporal_namespace=NAMESPACE))
        assert said.startswith(
            f"Temporal at {front.address} does not let us into namespace {NAMESPACE!r}: check C5C3_TEMPORAL_NAMESPACE"
        )


async def test_a_running_worker_is_given_what_was_rotated(
    front: Front, ca: Pair, other: Pair, client: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next step is taken with the new key, and the one after with the new certificate."""
    monkeypatch.setattr(temporal, "_LOOK_SECONDS", 0.2)
    monkeypatch.setenv("TOY_FOLDER", str(tmp_path))
    monkeypatch.setenv("TOY_SECONDS", "0")
    key = tmp_path / "api-key"
    key.write_text(KEY)
    front.accepts, front.api_key = ca, KEY
    wanted = settings(front, ca, **pair(client), temporal_api_key_file=key)
    queue = f"rotation-{uuid.uuid4().hex[:8]}"
    async with front.up():
        found = await connect(wanted, identity="test")
        worker = assembly.build(found, WorkerSettings(task_queue=queue), (Toy,), [touch])
        running = asyncio.create_task(worker.run())

        def use(renewed: Client) -> None:
            worker.client = renewed

        following = asyncio.create_task(temporal.follow_credentials(wanted, found, use))
        handle = await found.start_workflow(Toy.run, args=[2], id=f"Toy:{queue}", task_queue=queue)
        front.api_key = "rotated"
        key.write_text("rotated")
        await until(lambda: found.api_key == "rotated")
        await handle.signal("changed")
        await until((tmp_path / "ended").exists)
        renewed = authority.issue(other, tmp_path, "renewed")
        client.key.write_bytes(renewed.key.read_bytes())
        client.certificate.write_bytes(renewed.certificate.read_bytes())
    front.accepts = other
    (tmp_path / "ended").unlink()
    async with front.up():
        await until(lambda: worker.client is not found, 30)
        await worker.client.get_workflow_handle(handle.id).signal("changed")
        await asyncio.wait_for(worker.client.get_workflow_handle(handle.id).result(), 60)
        assert (tmp_path / "ended").exists()
        following.cancel()
        await worker.shutdown()
        await running


@pytest.mark.api
async def test_a_worker_and_a_watcher_follow_what_is_rotated_on_disk(
    api_stack: Stack, front: Front, ca: Pair, other: Pair, client: Pair, tmp_path: Path
) -> None:
    """First the API key, then the client certificate and its authority; the front takes the former ones no more."""
    front.accepts, front.api_key = ca, KEY
    key = tmp_path / "api-key"
    key.write_text(KEY)
    programs = []
    for module in ("worker", "watcher"):
        (tmp_path / module).mkdir()
        programs.append(Program(tmp_path / module, {
            "C5C3_KUBECONFIG": str(kube.kubeconfig(api_stack, "management", "operator")),
            "C5C3_TEMPORAL_ADDRESS": front.address,
            "C5C3_TASK_QUEUE": f"rotation-{uuid.uuid4().hex[:8]}",
            "C5C3_HTTP_ADDRESS": f"127.0.0.1:{free_port()}",
            "C5C3_TEMPORAL_TLS_CA": str(ca.certificate),
            "C5C3_TEMPORAL_TLS_CERT": str(client.certificate),
            "C5C3_TEMPORAL_TLS_KEY": str(client.key),
            "C5C3_TEMPORAL_API_KEY_FILE": str(key),
        }))  # fmt: skip
    worker, watcher = programs
    try:
        async with front.up():
            await worker.start("worker")
            await watcher.start("watcher", C5C3_LEADER_ELECTION="false")
            for program in programs:
                await program.says(200)
            front.api_key = "rotated"
            key.write_text("rotated\n")
            for program in programs:
                await program.logs("the API key has changed", 60)
            front.shown.clear()
            await worker.says(200, "ready", 30)
            assert "Bearer rotated" in front.shown
            # Its certificate is replaced by another authority's, as is the server's.
            renewed = authority.issue(other, tmp_path, "renewed")
            client.key.write_bytes(renewed.key.read_bytes())
            client.certificate.write_bytes(renewed.certificate.read_bytes())
        front.accepts = other
        front.shown.clear()
        async with front.up():
            for program in programs:
                await program.logs("the TLS files have changed: connected to Temporal with the new ones", 90)
            await worker.says(200, "ready", 60)
            await asyncio.sleep(6)  # readiness is asked for anew, by the new connection
            await worker.says(200, "ready", 30)
            assert set(front.shown) == {"Bearer rotated"}
    finally:
        for program in programs:
            await program.kill()
