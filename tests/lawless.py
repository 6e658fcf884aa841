"""An API server without our admission rules, as with an older definition or somebody else's: the target cluster's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from activities.cluster import KEYSTONE_PROJECT, Object
from activities.errors import ClusterError
from tests.world import CRD, World, definition, until

NAME = "keystoneprojects.c5c3.io"


@asynccontextmanager
async def without_rules(world: World) -> AsyncIterator[None]:
    """The definition has lost the rules on the whole object, for as long as the block lasts."""
    whole = definition("keystoneprojects.yaml")
    try:
        await _rules(world, None)
        yield
    finally:
        for item in (await world.target.list(KEYSTONE_PROJECT, world.order_ns))["items"]:
            meta = item["metadata"]
            await world.target.patch(KEYSTONE_PROJECT, world.order_ns, meta["name"], {"metadata": {"finalizers": None}})
            await world.target.delete(KEYSTONE_PROJECT, world.order_ns, meta["name"], meta["uid"])
        await _rules(world, whole["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"])


async def _rules(world: World, rules: list[dict[str, Any]] | None) -> None:
    """Puts these rules on the definition, and returns once they, and no others, are enforced."""
    live = await world.target.get(CRD, None, NAME)
    assert live is not None
    schema = live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema.pop("x-kubernetes-validations", None)
    if rules is not None:
        schema["x-kubernetes-validations"] = rules
    await world.target.update(CRD, live)

    async def enforced() -> bool:
        body = an_order(world, "x" * 64)
        try:
            await world.target._request("POST", KEYSTONE_PROJECT, world.order_ns, body=body, query={"dryRun": "All"})
        except ClusterError as error:
            return error.status == 422 and rules is not None
        return rules is None

    await until(enforced, 30)


def an_order(world: World, name: str) -> Object:
    """An order of any name, for the test's plane."""
    return {
        "apiVersion": KEYSTONE_PROJECT.api_version,
        "kind": KEYSTONE_PROJECT.kind,
        "metadata": {"name": name, "namespace": world.order_ns},
        "spec": {"controlPlaneRef": {"name": "cp", "namespace": world.plane_ns}, "projectName": "short"},
    }
