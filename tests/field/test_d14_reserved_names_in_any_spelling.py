"""D14: Keystone compares names without case and accents, so a reserved name is reserved in every such spelling."""

from __future__ import annotations

import unicodedata

import pytest

from tests.audit import Audit, writes
from tests.product import Product
from workflows.keystoneproject import reasons

pytestmark = pytest.mark.api

REFUSED = (
    "admin", "ADMIN", "Ádmin", "service-glance", "Service-Glance", "SERVICE-GLANCE", "service-glancé",
    unicodedata.normalize("NFD", "service-glancé"), "service-placement", "service-barbican", "service-neutron",
    "service-cinder", "service-nova", "Sérvice-Nóva",
)  # fmt: skip
NEIGHBOURS = ("administrator", "service-glance2", "service-keystone", "glance", "service_glance", "service-swift")


async def test_variants_are_refused_and_neighbours_pass(product: Product) -> None:
    world = product.world
    await world.plane()
    audit = Audit(world.stack)
    refused = [await world.order(f"refused-{i}", name) for i, name in enumerate(REFUSED)]
    for ref, name in zip(refused, REFUSED, strict=True):
        live = await product.reads(ref, reasons.COLLISION)
        assert name in _message(live)
        assert "reserves" in _message(live)
        assert "projectID" not in live["status"]
    assert await world.names() == []
    assert await world.leases() == []
    assert writes(await audit.asked(world.plane_ns)) == []
    async with world.korc.playing():
        passed = [await world.order(f"passes-{i}", name) for i, name in enumerate(NEIGHBOURS)]
        for ref in passed:
            await product.reads(ref, reasons.PROVISIONED)
    assert set(world.korc.keystone) == set(NEIGHBOURS)
    for ref in refused:
        await world.delete(ref)
    for ref in refused:
        await product.gone(ref)


def _message(live: dict[str, dict[str, list[dict[str, str]]]]) -> str:
    return next(c["message"] for c in live["status"]["conditions"] if c["type"] == "ProjectReady")
