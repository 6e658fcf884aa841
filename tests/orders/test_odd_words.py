"""Whatever words K-ORC or a person finds, the order goes on: Temporal and API servers limit what may be said."""

from __future__ import annotations

import pytest

from tests.product import Product
from tests.world import until
from workflows.keystoneproject import reasons

pytestmark = pytest.mark.api


@pytest.mark.parametrize("letter", ["x", "é", "漢", "😀", "\n"], ids=["ascii", "two bytes", "three", "four", "newline"])
async def test_a_very_long_message_of_korc_is_cut_and_holds_nothing_up(product: Product, letter: str) -> None:
    world = product.world
    await world.plane()
    ref = await world.order()
    await world.korc.absent(world.probe_of(ref))
    await world.korc.let_go(world.probe_of(ref))
    await world.korc.there(world.project_of(ref), 30)
    words = "invalid configuration creating resource: " + letter * 32_000
    await world.korc.terminal(world.project_of(ref), words)
    live = await product.reads(ref, reasons.FAILED)
    message = next(c["message"] for c in live["status"]["conditions"] if c["type"] == "ProjectReady")
    assert len(message.encode()) <= 32768
    assert words[:200] in message
    await world.korc.available(world.project_of(ref))
    await product.reads(ref, reasons.PROVISIONED)


async def test_a_name_of_many_bytes_is_served_like_any_other(product: Product) -> None:
    world = product.world
    await world.plane()
    name = "😀" * 64
    ref = await world.order(project=name)
    await product.reads(ref, reasons.PROBING)
    async with world.korc.playing():
        await product.reads(ref, reasons.PROVISIONED)
        assert list(world.korc.keystone) == [name]
        await world.delete(ref)
        await product.gone(ref)


async def test_a_plane_of_the_longest_name_is_missed_like_any_other(product: Product) -> None:
    world = product.world
    ref = await world.order(plane="p" * 253)
    await product.reads(ref, "ControlPlaneNotFound")
    await until(lambda: product.is_open(ref))
    await world.delete(ref)
    await product.gone(ref)
    await product.closed(ref)


async def test_a_name_of_markup_and_quotes_is_served_like_any_other(product: Product) -> None:
    world = product.world
    await world.plane()
    name = "a'b\"c`d|e\\f<g>&{h}%s\ni"
    ref = await world.order(project=name)
    async with world.korc.playing():
        live = await product.reads(ref, reasons.PROVISIONED)
    assert live["status"]["projectName"] == name
    assert list(world.korc.keystone) == [name]
