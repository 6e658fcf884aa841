"""The connection: waits for a server that is not there, and says what to do about one that cannot be used."""

from __future__ import annotations

import asyncio
import logging
import shlex

import pytest
from temporalio.testing import WorkflowEnvironment

from tests.conftest import temporal_program
from worker.settings import ConnectionSettings
from worker.temporal import TemporalUnusable, check_search_attributes, connect


def settings_for(env: WorkflowEnvironment, namespace: str = "default") -> ConnectionSettings:
    address = env.client.service_client.config.target_host
    return ConnectionSettings(temporal_address=address, temporal_namespace=namespace)


async def test_connects_and_finds_the_search_attributes(temporal_env: WorkflowEnvironment) -> None:
    client = await connect(settings_for(temporal_env), identity="test")
    assert client.identity == "test"
    await check_search_attributes(client)


async def test_a_namespace_that_is_not_there(temporal_env: WorkflowEnvironment) -> None:
    with pytest.raises(TemporalUnusable, match="has no namespace 'nowhere'") as error:
        await connect(settings_for(temporal_env, "nowhere"), identity="test")
    await _run(str(error.value).split("`")[1])
    client = await connect(settings_for(temporal_env, "nowhere"), identity="test")
    with pytest.raises(TemporalUnusable, match="lacks search attributes") as error:
        await check_search_attributes(client)
    await _run(str(error.value).split("`")[1])
    await check_search_attributes(client)


async def test_a_search_attribute_of_another_type(temporal_env: WorkflowEnvironment) -> None:
    where = f"--address {temporal_env.client.service_client.config.target_host} --namespace other"
    await _run(f"temporal operator namespace create {where}")
    await _run(f"temporal operator search-attribute create {where} --name OrderReady --type Int")
    client = await connect(settings_for(temporal_env, "other"), identity="test")
    with pytest.raises(TemporalUnusable, match="attributes OrderReady of Temporal namespace other are not of type Key"):
        await check_search_attributes(client)


async def test_waits_for_a_server_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(TimeoutError):
        await asyncio.wait_for(connect(ConnectionSettings(temporal_address="127.0.0.1:9"), identity="test"), 1.5)
    assert "waiting for Temporal at 127.0.0.1:9, next look in 1 s" in caplog.messages[0]


async def _run(command: str) -> None:
    """Runs the command that a sentence told us to run."""
    program, *arguments = shlex.split(command)
    assert program == "temporal"
    process = await asyncio.create_subprocess_exec(temporal_program(), *arguments)
    assert await process.wait() == 0
