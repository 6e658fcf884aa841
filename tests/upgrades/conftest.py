"""A rollout for each test, against the API servers of the tests and a Temporal of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from temporalio.testing import WorkflowEnvironment

from deploy.local.part import Stack
from tests.product import alone
from tests.upgrades.rollout import Rollout, rolling
from tests.world import made


@pytest_asyncio.fixture
async def rollout(
    api_stack: Stack, temporal_env: WorkflowEnvironment, tmp_path: Path
) -> AsyncIterator[Rollout]:  # fmt: skip
    await alone(api_stack)
    async with made(api_stack) as world, rolling(world, temporal_env.client, tmp_path) as one:
        yield one
