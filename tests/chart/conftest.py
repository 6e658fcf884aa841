"""Helm, once for all tests of this folder."""

from __future__ import annotations

import pytest
import pytest_asyncio

from tests.chart.helm import Helm, built


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return await built(tmp_path_factory.mktemp("helm"))
