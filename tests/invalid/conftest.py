"""The API server that the corpus speaks to, with our definitions installed, and a namespace for it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from deploy.local import kube
from deploy.local.part import Stack
from deploy.local.parts.crds import load
from deploy.local.parts.operator import manifests
from tests.invalid.api import Api, Object
from tests.product import alone

DEPLOY = Path(__file__).parents[2] / "deploy"


def definitions() -> list[Object]:
    """Every CustomResourceDefinition that this repository writes: installed, upstream's, and the local stack's."""
    files = sorted(
        [*DEPLOY.glob("crds/*.yaml"), *DEPLOY.glob("crds/upstream/*.yaml"), *DEPLOY.glob("local/crds/*.yaml")]
    )
    found = [one for file in files for one in yaml.safe_load_all(file.read_text())]
    return [one for one in found if one["kind"] == "CustomResourceDefinition"]


def policies() -> list[Object]:
    """The admission policies and their bindings, beside the definitions whose kinds they guard."""
    found = [one for file in sorted(DEPLOY.glob("crds/*.yaml")) for one in yaml.safe_load_all(file.read_text())]
    return [one for one in found if one["kind"].startswith("ValidatingAdmissionPolicy")]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def unserved(api_stack: Stack) -> Stack:
    """No program of ours is running: one would put its finalizer on what the corpus places and deletes at once."""
    await alone(api_stack)
    return api_stack


@pytest.fixture(scope="session")
def api(unserved: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    api = Api(kube.kubeconfig(unserved, "management"), tmp_path_factory.mktemp("corpus"))
    for definition in definitions():
        api.define(definition)
    api.guard(policies())
    yield api
    api.close()


@pytest.fixture(scope="session")
def target_api(api_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The target cluster, with what is installed there: the order kinds that are served there alone."""
    api = Api(kube.kubeconfig(api_stack, "target"), tmp_path_factory.mktemp("corpus-target"))
    for one in load(*manifests("target")):
        if one["kind"] == "CustomResourceDefinition":
            api.define(one)
    yield api
    api.close()


@pytest.fixture(scope="session")
def namespace(api: Api) -> Iterator[str]:
    name = f"corpus-{uuid.uuid4().hex[:8]}"
    made = api.request(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    assert made.ok, made.message
    yield name
    api.request("DELETE", f"/api/v1/namespaces/{name}")
