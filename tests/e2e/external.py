"""External planes whose credential is spoilt, in the four ways that K-ORC's words are classed by (contracts 5)."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from deploy.local import kube
from deploy.local.authority import authority
from deploy.local.parts import keystone, planes
from tests.e2e.stage import Object, Plane, Stage, condition, unique

HINTS = ("'public'", "'RegionOne'", "spec.region", "external.endpointType")
"""What a mismatch of the catalog names, so that people know what to compare."""


@dataclass
class Failing:
    """A plane of a test's own that fails for one reason, until it is mended."""

    stage: Stage
    reason: str
    clouds: str = field(repr=False)
    ca: str
    words: str
    plane: Plane = field(default_factory=lambda: Plane(unique("ext"), unique("ext")))

    @property
    def url(self) -> str:
        return keystone.auth_url(self.stage.stack)

    async def spoil(self) -> None:
        """Once its imports are resolved, so that they are not what fails."""
        external = {"mode": "External", "external": {"authURL": self.url, "endpointType": "public"}}
        await self.stage.plane(self.plane, {"services": {"keystone": external}}, "team-b")
        await self._credential(self.clouds, self.ca)

    async def mend(self) -> None:
        await self._credential(planes.clouds_yaml(self.stage.stack), _authority(self.stage))

    def is_said(self, said: Object, probe: Object | None) -> None:
        """By a condition, with the words of K-ORC on the probe."""
        assert said["status"] == "False"
        assert said["message"].startswith(f"{self.url}: ")
        assert self.words in said["message"]
        assert condition(probe, "Progressing")["message"] in said["message"], "K-ORC's words are relayed verbatim"
        for hint in HINTS if self.reason == "CatalogEndpointMismatch" else ():
            assert hint in said["message"]

    async def _credential(self, clouds: str, ca: str) -> None:
        secret = planes.secret(self.plane.namespace, "k-orc-clouds-yaml", clouds_yaml=clouds, cacert=ca)
        await kube.apply(self.stage.stack, "management", [secret])


async def each_failure(stage: Stage, folder: Path, act: Callable[[Failing], Awaitable[None]]) -> None:
    """Does it on four planes, each failing in its own way, side by side."""
    wrong = secrets.token_urlsafe(24)
    stage.secrets.add(wrong)
    good, ca = planes.clouds_yaml(stage.stack), _authority(stage)
    other = authority(folder, "another-ca").certificate.read_text()
    every = (
        Failing(stage, "AuthenticationFailed", planes.clouds_yaml(stage.stack, password=wrong), ca, "401"),
        Failing(
            stage, "EndpointUnreachable", planes.clouds_yaml(stage.stack, auth_url=nowhere()), ca, "connection refused"
        ),
        Failing(stage, "TLSVerificationFailed", varied(good, interface="public"), other, "x509"),
        Failing(stage, "CatalogEndpointMismatch", varied(good, region_name="Nowhere"), ca, "No suitable endpoint"),
    )

    async def one(failing: Failing) -> None:
        await failing.spoil()
        try:
            await act(failing)
        finally:
            await stage.drop_plane(failing.plane)

    await asyncio.gather(*(one(failing) for failing in every))


def nowhere() -> str:
    """An address on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"https://127.0.0.1:{free.getsockname()[1]}/v3"


def varied(clouds: str, **fields: str) -> str:
    """The same cloud with other fields. K-ORC keeps its clients by this text, so a changed CA alone would not do."""
    found = yaml.safe_load(clouds)
    found["clouds"]["admin"].update(fields)
    return yaml.safe_dump(found, sort_keys=False)


def _authority(stage: Stage) -> str:
    return keystone.authority_pair(stage.stack).certificate.read_text()
