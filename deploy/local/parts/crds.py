"""The CustomResourceDefinitions of other people's controllers, on the management cluster.

Taken from the very modules that the programs are built from (K-ORC, External Secrets, cert-manager), and for kinds that
are served nowhere from `deploy/crds/upstream` and `deploy/local/crds`. They are a part of their own because objects can
be created before the controllers that act on them are built.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

from deploy.local import kube, programs
from deploy.local.files import write_secret
from deploy.local.part import Part, Stack, say

# Program module, Go module, folder of CRDs in it.
SOURCES = (
    ("korc", "github.com/k-orc/openstack-resource-controller/v2", "config/crd/bases"),
    ("external-secrets", "github.com/external-secrets/external-secrets", "config/crds/bases"),
    ("cert-manager", "github.com/cert-manager/cert-manager", "deploy/crds"),
)
OURS = (Path(__file__).parents[2] / "crds" / "upstream", Path(__file__).parents[1] / "crds")
NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
LABEL = "stack.c5c3.io/crds"


def load(*files: Path) -> list[dict[str, Any]]:
    """All objects in these YAML files, in order."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [found for file in files for found in yaml.load_all(file.read_text(), loader) if found]


class Crds(Part):
    """The part. What it applies is kept as one JSON file in the home: reading the YAML anew takes seconds."""

    name = "crds"
    needs = ("management",)

    async def prepare(self, stack: Stack) -> None:
        file = self._file(stack)
        if file.exists():
            return
        folders = [await programs.module_folder(stack.home, program, module) / sub for program, module, sub in SOURCES]
        say("reading")
        files = [f for folder in (*folders, *OURS) for f in sorted(folder.glob("*.yaml"))]
        found = await asyncio.to_thread(load, *files)
        crds = [one for one in found if one.get("kind") == "CustomResourceDefinition"]
        for crd in crds:
            crd["metadata"].setdefault("labels", {})[LABEL] = self._digest()
        write_secret(file, json.dumps(crds).encode())

    async def bootstrap(self, stack: Stack) -> None:
        crds = json.loads(self._file(stack).read_text())
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?labelSelector="
        there = await kube.call(stack, "management", "GET", f"{path}{LABEL}%3D{self._digest()}", accept=NAMES_ONLY)
        if len(there["items"] or ()) < len(crds):
            say(f"{len(crds)} kinds")
            await kube.apply(stack, "management", crds)
        # A client that looks once, as kopf does, never sees a kind that is announced a moment later.
        await kube.served(stack, "management", [crd["metadata"]["name"] for crd in crds])

    def _digest(self) -> str:
        pinned = [programs.MODULES / program / "go.mod" for program, _, _ in SOURCES]
        told = hashlib.sha256(repr((SOURCES, LABEL)).encode())
        for file in (*pinned, *(f for folder in OURS for f in sorted(folder.glob("*.yaml")))):
            told.update(file.read_bytes())
        return told.hexdigest()[:12]

    def _file(self, stack: Stack) -> Path:
        return stack.home / "programs" / f"crds-{self._digest()}.json"


PARTS = (Crds(),)
