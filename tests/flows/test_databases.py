"""The workflow of a MariaDBDatabase: which step says what, what an error reads, and when it looks again."""

from __future__ import annotations

import pytest

from activities.errors import ClusterError, OpenBaoError
from tests.flows.conftest import Serve
from tests.flows.databases import DatabaseWorld, delivered, there, waits
from tests.flows.flow import until
from workflows.mariadbdatabase import reasons
from workflows.scaffold.steps import Removal


@pytest.mark.row("M27")
async def test_a_new_order_is_ready_in_one_step_and_then_waits_for_a_ring_alone(serve: Serve) -> None:
    world = DatabaseWorld("one-step")
    world.order(finalized=False)
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        assert world.calls == ["admit"]
        assert world.reasons == ("DatabaseProvisioned", "Delivered")
        world.at_rest = True
        await flow.ring()
        await flow.idle(2)
        assert world.calls == ["admit", "admit"]
        assert await flow.waits() == []


@pytest.mark.row("M27")
async def test_one_on_a_target_cluster_looks_again_every_ten_minutes(serve: Serve) -> None:
    world = DatabaseWorld("far", cluster="edge-1")
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        (wait,) = await flow.waits()
        assert (wait.every, wait.refresh) == (600, 600)
        await flow.pass_time(seconds=601)
        await until(lambda: world.count("admit") == 2)


async def test_what_is_not_provisioned_is_not_delivered_and_keeps_what_was(serve: Serve) -> None:
    world = DatabaseWorld("skipped")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        before = world.count("deliver_database")
        world.database = waits(reasons.COLLISION, again=600.0)
        await flow.resync_now()
        assert world.count("deliver_database") == before
        assert world.reasons == ("DatabaseCollision", "WaitingForCredentials")
        assert world.live is not None
        assert world.live["status"]["secretName"] == "x-credentials"
        await flow.settled()
        assert [wait.every for wait in await flow.waits()][-1] == 600


async def test_an_error_of_openbao_reads_as_such_and_a_pass_follows_after_a_pause(serve: Serve) -> None:
    world = DatabaseWorld("refused")
    async with serve(world) as flow:
        world.database = OpenBaoError("OpenBao answered 403 to GET database/mariadb/roles/x: permission denied", 403)
        await flow.ring()
        await flow.settled()
        assert world.reasons == ("OpenBaoError", "WaitingForCredentials")
        assert "403 to GET database/mariadb/roles/x: permission denied" in world.condition("DatabaseReady")["message"]
        (wait,) = await flow.waits()
        assert wait.blind
        world.database = there()
        await flow.pass_time(seconds=11)
        await until(lambda: world.condition("Ready").get("status") == "True")


@pytest.mark.row("M31")
async def test_an_error_that_no_condition_is_for_is_in_ready_and_the_conditions_keep_what_they_said(
    serve: Serve,
) -> None:
    world = DatabaseWorld("unsaid")
    world.database = ClusterError("reading MariaDB openstack/mariadb", 403, "Forbidden", "no right")
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        ready = world.condition("Ready")
        assert (ready["status"], ready["reason"]) == ("False", "NotAllReady")
        assert "reading MariaDB openstack/mariadb: 403 Forbidden: no right (since " in ready["message"]
        assert world.reasons == ("", "")  # on a first pass there is nothing to keep
        world.database = there()
        await flow.resync_now()
        assert world.reasons == ("DatabaseProvisioned", "Delivered")
        world.database = ClusterError("listing Databases", 403, "Forbidden", "no right")
        await flow.resync_now()
        assert world.reasons == ("DatabaseProvisioned", "Delivered")
        assert "listing Databases" in world.condition("Ready")["message"]


@pytest.mark.row("M29")
@pytest.mark.parametrize("openbao", [True, False])
async def test_the_roles_name_is_in_status_although_the_step_failed_after_it(serve: Serve, openbao: bool) -> None:
    world = DatabaseWorld("named")
    error = OpenBaoError("no answer") if openbao else ClusterError("applying Database", 403, "Forbidden", "no right")
    error.known = {"roleName": "order.openstack.named"}
    world.database = error
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        assert world.live is not None
        assert world.live["status"]["roleName"] == "order.openstack.named"
        writes = world.count("report")
        await flow.pass_time(seconds=11)
        await until(lambda: world.count("provision_database") > 1)
        await flow.settled()
        assert world.count("report") == writes, "and saying the same again costs nothing"


async def test_an_error_of_the_delivery_is_the_deliverys_alone(serve: Serve) -> None:
    world = DatabaseWorld("undelivered")
    world.parcel = ClusterError("applying Secret team-a/undelivered-credentials", 403, "Forbidden", "no right")
    async with serve(world) as flow:
        await flow.ring()
        await flow.settled()
        assert world.reasons == ("DatabaseProvisioned", "DeliveryError")
        assert world.live is not None
        assert world.live["status"]["roleName"] == "order.openstack.x"
        world.parcel = delivered()
        await flow.pass_time(seconds=11)
        await until(lambda: world.condition("Ready")["status"] == "True")


async def test_a_deletion_that_openbao_holds_says_so_in_ready(serve: Serve) -> None:
    world = DatabaseWorld("held")
    async with serve(world) as flow:
        await flow.ring()
        await flow.idle(1)
        world.remove = OpenBaoError('removing OpenBao database role "x": OpenBao answered 403 to POST y: no', 403)
        world.delete()
        await flow.ring()
        await until(lambda: world.condition("Ready")["message"].startswith('removing OpenBao database role "x"'))
        await flow.settled()
        world.remove = Removal()
        await flow.pass_time(seconds=11)
        await flow.ended()
        assert world.live is None
