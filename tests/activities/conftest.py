"""Registrations on the real API servers, for the tests of their steps."""

from __future__ import annotations

import pytest

from tests.registered import Registered
from tests.world import World


@pytest.fixture
def registered(world: World) -> Registered:
    return Registered(world)
