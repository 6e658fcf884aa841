"""An External plane: what K-ORC reports of somebody else's Keystone reads as its class, and heals by itself."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from deploy.local import kube
from deploy.local.authority import authority
from deploy.local.parts import keystone, planes
from tests.e2e.stage import Object, Order, Plane, Stage, condition, unique

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
Place = Callable[..., Order]


@pytest.mark.row("K03")
async def test_failures_of_an_external_keystone_read_as_their_classes_and_heal(
    real_stack: Stage, place: Place, tmp_path: Path
) -> None:
    """Four planes, broken in four ways after their imports were resolved; each heals when its Secret is mended."""
    here = real_stack.stack
    wrong = secrets.token_urlsafe(24)
    real_stack.secrets.add(wrong)
    url, good_ca = keystone.auth_url(here), keystone.authority_pair(here).certificate.read_text()
    other_ca = authority(tmp_path, "another-ca").certificate.read_text()
    good = planes.clouds_yaml(here)
    broken = {
        "AuthenticationFailed": (planes.clouds_yaml(here, password=wrong), good_ca, "401"),
        "EndpointUnreachable": (planes.clouds_yaml(here, auth_url=nowhere()), good_ca, "connection refused"),
        "TLSVerificationFailed": (varied(good, interface="public"), other_ca, "x509"),
        "CatalogEndpointMismatch": (varied(good, region_name="Nowhere"), good_ca, "No suitable endpoint"),
    }

    async def one(reason: str, clouds: str, ca: str, words: str) -> None:
        plane = Plane(unique("ext"), unique("ext"))
        spec: Object = {
            "services": {"keystone": {"mode": "External", "external": {"authURL": url, "endpointType": "public"}}}
        }
        await real_stack.plane(plane, spec, "team-b")
        try:
            secret = planes.secret(plane.namespace, "k-orc-clouds-yaml", clouds_yaml=clouds, cacert=ca)
            await kube.apply(here, "management", [secret])
            order = await place("ext", namespace="team-b", plane=plane).place()
            said = await order.reads(reason)
            assert said["status"] == "False"
            assert said["message"].startswith(f"{url}: ")
            assert words in said["message"]
            probe = await order.asked()
            assert probe is not None
            assert condition(probe, "Progressing")["message"] in said["message"], "K-ORC's words are relayed verbatim"
            assert await order.managed() is None
            if reason == "CatalogEndpointMismatch":
                for hint in ("'public'", "'RegionOne'", "spec.region", "external.endpointType"):
                    assert hint in said["message"]

            mended = planes.secret(plane.namespace, "k-orc-clouds-yaml", clouds_yaml=good, cacert=good_ca)
            await kube.apply(here, "management", [mended])
            await order.is_ready(90)
            await order.delete()
            await order.gone(90)
            await order.left_nothing()
        finally:
            await real_stack.drop_plane(plane)

    await asyncio.gather(*(one(reason, *how) for reason, how in broken.items()))


async def test_the_stacks_own_external_plane_serves_orders(place: Place) -> None:
    order = await place("ext", namespace="team-ext", plane=Plane("cp-ext", "openstack-ext")).place()
    await order.is_ready()
    assert len(await order.rows()) == 1


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
