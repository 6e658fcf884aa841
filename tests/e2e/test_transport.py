"""Keystone out of reach while K-ORC creates: latches, who clears them, and whom that must not hurt.

A latch on real parts needs a K-ORC that holds a token: its list errors read as "nothing found", so the probe says that
the name is free, and the create that follows fails without an HTTP status, which K-ORC takes for a misconfiguration.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local import kube
from deploy.local.authority import LOCAL_NAMES, authority, issue
from tests.audit import requests
from tests.e2e.stage import Object, Order, Stage, condition, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]
Place = Callable[..., Order]

ROLE = "clusterroles.rbac.authorization.k8s.io"


async def latched(order: Order) -> Object:
    """Waits until K-ORC has given up on the order's managed Project, and answers it."""
    found = await until(
        order.managed,
        lambda child: (
            condition(child, "Progressing").get("status") == "False"
            and condition(child, "Progressing").get("reason") == "InvalidConfiguration"
        ),
        60,
    )
    assert found is not None
    return found


async def warm(stage: Stage, place: Place) -> None:
    """Makes K-ORC log in with the plane's credentials, so that it holds a token when Keystone goes."""
    order = await place("warm").place()
    await order.is_ready()


@pytest.mark.row("P05")
@pytest.mark.row("S29")
async def test_an_outage_heals_by_itself_and_never_onto_a_stranger(real_stack: Stage, place: Place) -> None:
    """One outage, three orders: one heals; the names of two are taken by strangers before K-ORC can try again.

    Of those two one is deleted at once and one after it has seen the collision: both strangers survive.
    """
    await warm(real_stack, place)
    heals, collides, leaves = place("heals"), place("collides"), place("leaves")
    async with real_stack.without("keystone"):
        await asyncio.gather(*(order.place() for order in (heals, collides, leaves)))
        for order in (heals, collides, leaves):
            child = await latched(order)
            assert "connection refused" in condition(child, "Progressing")["message"]
            assert "id" not in child["status"]
            await order.reads("ProjectFailed", "WaitingForProject")
    strangers = {
        order.name: (await real_stack.keystone.create("projects", name=order.name, domain_id="default"))["id"]
        for order in (collides, leaves)
    }
    try:
        await leaves.delete()
        await leaves.gone(90)
        assert [row["id"] for row in await leaves.rows()] == [strangers[leaves.name]]

        live = await heals.is_ready(120)
        (row,) = await heals.rows()
        assert live["status"]["projectID"] == row["id"]
        healed = await heals.managed()
        assert healed is not None
        assert "c5c3.io/korc-transport-unlatched-at" in healed["metadata"]["annotations"]

        said = await collides.reads("ProjectCollision", seconds=120)
        assert "delete that project in Keystone" in said["message"]
        stays = await collides.managed()
        assert stays is not None
        assert condition(stays, "Progressing")["reason"] == "InvalidConfiguration", "it must stay latched"
        await collides.delete()
        await collides.gone(90)
        assert [row["id"] for row in await collides.rows()] == [strangers[collides.name]]
    finally:
        for id_ in strangers.values():
            await real_stack.keystone.delete("projects", id_)


@pytest.mark.row("P05")
async def test_a_misconfiguration_stays_latched(real_stack: Stage, place: Place, tmp_path: Path) -> None:
    """Something answers on Keystone's port with a certificate of an unknown authority: no retry mends that."""
    await warm(real_stack, place)
    order = place("distrusts")
    port = real_stack.stack.ports["keystone"]
    async with real_stack.without("keystone"):
        with impostor(port, tmp_path):
            await order.place()
            await latched(order)
    said = await order.reads("ProjectFailed")
    assert "x509" in said["message"]
    before = await order.managed()
    assert before is not None
    await order.handle.signal("resync")
    await asyncio.sleep(5)
    after = await order.managed()
    assert after is not None
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert "annotations" not in after["metadata"]
    assert await order.rows() == []


@pytest.mark.row("P05")
async def test_a_refused_clearing_is_said_and_heals_with_the_right(real_stack: Stage, place: Place) -> None:
    await warm(real_stack, place)
    order = place("forbidden")
    role = await kube.get(real_stack.stack, "management", ROLE, None, "c5c3-operator")
    assert role is not None
    kept = [rule for rule in role["rules"] if "projects/status" not in rule["resources"]]
    assert len(kept) == len(role["rules"]) - 1
    began = time.time()
    try:
        await kube.patch(real_stack.stack, "management", ROLE, None, "c5c3-operator", {"rules": kept})
        async with real_stack.without("keystone"):
            await order.place()
            await latched(order)
            said = await order.reads("TransportErrorRetryFailed")
            assert "403" in said["message"] or "Forbidden" in said["message"]
            await asyncio.sleep(20)
            refused = [
                request
                for request in requests(real_stack.stack, "management", began)
                if (request.name, request.code) == (order.child, 403)
            ]
            assert 1 <= len(refused) <= 5, "a refusal is tried again after growing pauses, not in a loop"
    finally:
        await kube.patch(real_stack.stack, "management", ROLE, None, "c5c3-operator", {"rules": role["rules"]})
        real_stack.provoked.append((began, time.time() + 3))
    await order.handle.signal("resync")
    await order.is_ready(120)
    assert len(await order.rows()) == 1


@contextmanager
def impostor(port: int, folder: Path) -> Iterator[None]:
    """A TLS server whose certificate nobody trusts; no client gets further than the handshake."""
    pair = issue(authority(folder, "another-ca"), folder, "impostor", LOCAL_NAMES)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    listener = socket.create_server(("127.0.0.1", port))
    listener.settimeout(0.2)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            try:
                connection.settimeout(2)
                with context.wrap_socket(connection, server_side=True):
                    pass
            except OSError:
                connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        listener.close()
