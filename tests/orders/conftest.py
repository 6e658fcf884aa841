"""The running product, for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from deploy.local.part import Stack
from tests.product import Product, over, serving


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def _programs(api_stack: Stack) -> AsyncIterator[Stack]:
    async with serving(api_stack) as stack:
        yield stack


@pytest_asyncio.fixture
async def product(_programs: Stack) -> AsyncIterator[Product]:
    async with over(_programs) as one:
        yield one
