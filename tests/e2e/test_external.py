"""An External plane: what K-ORC reports of somebody else's Keystone reads as its class, and heals by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.external import Failing, each_failure
from tests.e2e.stage import Order, Plane, Stage

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
Place = Callable[..., Order]


@pytest.mark.row("K03")
async def test_failures_of_an_external_keystone_read_as_their_classes_and_heal(
    real_stack: Stage, place: Place, tmp_path: Path
) -> None:
    """Four planes, broken in four ways after their imports were resolved; each heals when its Secret is mended."""

    async def one(failing: Failing) -> None:
        order = await place("ext", namespace="team-b", plane=failing.plane).place()
        failing.is_said(await order.reads(failing.reason), await order.asked())
        assert await order.managed() is None
        await failing.mend()
        await order.is_ready(90)
        await order.delete()
        await order.gone(90)
        await order.left_nothing()

    await each_failure(real_stack, tmp_path, one)


async def test_the_stacks_own_external_plane_serves_orders(place: Place) -> None:
    order = await place("ext", namespace="team-ext", plane=Plane("cp-ext", "openstack-ext")).place()
    await order.is_ready()
    assert len(await order.rows()) == 1
