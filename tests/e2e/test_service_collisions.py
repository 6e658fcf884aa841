"""What is in Keystone already: refused, untouched unless the order consents, and the plane's admin never given away."""

from __future__ import annotations

import asyncio
import secrets
import unicodedata
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from deploy.local import kube
from tests.audit import WRITES, Audit
from tests.e2e.services import KORC, Service, account, catalog, login_of
from tests.e2e.stage import PLANES, Object, Order, Plane, Stage, condition, reason, unique, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
Register = Callable[..., Service]


@pytest.mark.row("C01", "C04")
async def test_a_service_row_is_taken_over_by_consent_alone(real_stack: Stage, register: Register) -> None:
    """Without it the row survives the order; with it the row is the order's, and goes with it."""
    kept, taken = register("kept", catalog=catalog("public")), register("taken", catalog=catalog("public"))
    rows = [
        await real_stack.keystone.create("services", name=each.name, type="registry", description="somebody's")
        for each in (kept, taken)
    ]
    try:
        await asyncio.gather(kept.place(), taken.place())
        for each in (kept, taken):
            said = await each.reads("catalog", "ServiceCollision")
            for word in (each.name, "registry", "spec.catalog.adopt", "serviceName"):
                assert word in said["message"]
            assert await each.children() == {"Service/service-probe"}
        await kept.delete()
        await kept.gone()
        assert await kept.service_rows() == [rows[0]], "a row that was never adopted is untouched"

        audit = Audit(real_stack.stack)
        mark = audit.mark()
        await taken.edit(catalog={"adopt": True})
        live = await taken.is_ready()
        assert live["status"]["catalog"]["serviceID"] == rows[1]["id"]
        assert len(await real_stack.keystone.endpoints(service=rows[1]["id"])) == 1
        probes = [each for each in taken.asked(audit, mark) if each.name.endswith("service-probe")]
        assert {each.verb for each in probes if each.verb in WRITES} == {"delete"}, "nothing is asked any more"
        await taken.delete()
        await taken.gone()
        await taken.left_nothing()
    finally:
        for row in rows:
            await real_stack.keystone.delete("services", row["id"])


@pytest.mark.row("A10")
async def test_a_user_is_taken_over_by_consent_alone_and_its_old_password_is_refused(
    real_stack: Stage, register: Register
) -> None:
    """K-ORC only records the first password of a user that it took over: a second one, at once, is what is delivered.

    One order is edited to consent, one consents from the beginning, one never does.
    """
    kinds = ("kept", "edited", "willing")
    kept, edited, willing = (
        register(stem, account=lambda name: account(f"{name}-project", "member")) for stem in kinds
    )
    (willing.account or {})["adopt"] = True
    old, rows = secrets.token_urlsafe(24), {}
    real_stack.secrets.add(old)
    for each in (kept, edited, willing):
        user = await real_stack.keystone.create("users", name=each.name, domain_id="default", password=old)
        rows[each.name] = user["id"]
    try:
        await asyncio.gather(*(each.place() for each in (kept, edited, willing)))
        for each in (kept, edited):
            said = await each.reads("account", "ServiceAccountCollision")
            for word in (each.name, "'Default'", "spec.account.adopt", "remove the block"):
                assert word in said["message"]
            assert await each.child("User", "user") is None
        await kept.delete()
        await kept.gone()
        assert [user["id"] for user in await kept.user_rows()] == [rows[kept.name]]
        assert await real_stack.keystone.login(kept.name, old) is not None, "its password is as it was"
        assert await kept.project_rows() == []

        await edited.edit(account={"adopt": True})
        for each in (edited, willing):
            live = await each.is_ready()
            said = live["status"]["account"]
            assert (said["userID"], said["passwordGeneration"]) == (rows[each.name], 2)
            assert said["lastPasswordRotation"]
            token = await each.logs_in()
            assert token is not None
            assert token["user"]["id"] == rows[each.name]
            assert login_of((await each.credentials())["clouds.yaml"])["password"] == (await each.passwords())[2]
            assert await real_stack.keystone.login(each.name, old) is None, "the old password still works"
            assert set(await each.passwords()) == {2}
        await edited.quiet()
        assert (await edited.is_ready())["status"]["account"]["passwordGeneration"] == 2, "once is enough"
        await asyncio.gather(edited.delete(), willing.delete())
        for each in (edited, willing):
            await each.gone()
            await each.left_nothing()
    finally:
        for id_ in rows.values():
            await real_stack.keystone.delete("users", id_)


@pytest.mark.row("A08", "A09")
async def test_a_project_is_referenced_or_created_and_never_taken_over(real_stack: Stage, register: Register) -> None:
    theirs = unique("theirs")
    row = await real_stack.keystone.create("projects", name=theirs, domain_id="default")
    creates = register("creates", account=account(theirs, "member", adopt=True))
    references = register("references", account=account(theirs, "member", create=False))
    waits = register("waits", account=lambda name: account(f"{name}-project", "member", create=False))
    late: Object = {}
    try:
        await asyncio.gather(*(each.place() for each in (creates, references, waits)))
        said = await creates.reads("account", "ServiceAccountCollision")
        assert theirs in said["message"]
        assert "project.create to false" in said["message"]
        assert await creates.child("Project", "project") is None
        assert await creates.child("User", "user") is None

        live = await references.is_ready()
        assert live["status"]["account"]["projectID"] == row["id"]
        imported = await references.child("Project", "project")
        assert imported is not None
        assert imported["spec"]["managementPolicy"] == "unmanaged"
        token = await references.logs_in()
        assert token is not None
        assert token["project"]["id"] == row["id"]

        # A project that does not exist is waited for, by name, and found when it comes.
        said = await waits.reads("account", "WaitingForServiceAccounts")
        assert "Project" in said["message"]
        late = await real_stack.keystone.create("projects", name=waits.project, domain_id="default")
        await waits.is_ready()

        await asyncio.gather(*(each.delete() for each in (creates, references, waits)))
        for each in (creates, references, waits):
            await each.gone()
            await each.left_nothing(project_stays=True)
        assert [each["id"] for each in await references.project_rows()] == [row["id"]]
        assert [each["id"] for each in await waits.project_rows()] == [late["id"]]
    finally:
        for project in (row, late):
            if project:
                await real_stack.keystone.delete("projects", project["id"])


@pytest.mark.row("A03", "A05")
async def test_the_planes_admin_is_refused_in_every_spelling_and_neighbours_pass(
    real_stack: Stage, register: Register
) -> None:
    spellings = ("admin", "ADMIN", "Ádmin", unicodedata.normalize("NFD", "Ádmin"))
    neighbours = ("administrator", "admin2", "xadmin")
    elsewhere = await real_stack.keystone.create("domains", name=unique("elsewhere"))
    refused = [
        register("refused", account=account(unique("refused"), userName=user, adopt=adopt))
        for user in spellings
        for adopt in (True, False)
    ]
    passing = [register("passing", account=account(unique("passing"), userName=user)) for user in neighbours]
    abroad = account(unique("passing"), userName="admin", domainName=elsewhere["name"])
    passing.append(register("passing", account=abroad))
    audit = Audit(real_stack.stack)
    mark = audit.mark()
    try:
        await asyncio.gather(*(each.place() for each in (*refused, *passing)))
        for each in refused:
            said = await each.reads("account", "ServiceAccountCollision")
            for word in ("openstack/cp", "spec.korc.adminCredential", "Default", each.user_name):
                assert word in said["message"]
            assert await each.objects() == {}
            written = [one for one in each.asked(audit, mark) if one.verb in WRITES and one.group in (KORC, "")]
            assert written == []
        for each in passing:
            await each.is_ready()
            domain = elsewhere["id"] if "domainName" in (each.account or {}) else "default"
            assert len(await real_stack.keystone.users(name=each.user_name, domain=domain)) == 1
        assert await passing[-1].child("Domain", "domain") is not None
        assert len(await real_stack.keystone.users(name="admin", domain="default")) == 1
        await asyncio.gather(*(each.delete() for each in (*refused, *passing)))
        await asyncio.gather(*(each.gone() for each in (*refused, *passing)))
        assert len(await real_stack.keystone.users(name="admin", domain="default")) == 1
    finally:
        await real_stack.keystone.delete("domains", elsewhere["id"])


@pytest_asyncio.fixture
async def own_plane(real_stack: Stage) -> AsyncIterator[tuple[Plane, Object]]:
    """A plane whose admin is a user that a test may lose: the plane, and the user's row."""
    plane, name = Plane(unique("cp"), unique("plane")), unique("kassis")
    spec: Object = {
        "infrastructure": {"database": {"clusterRef": {"name": "mariadb"}}},
        "services": {"keystone": {"mode": "Managed"}},
    }
    await real_stack.plane(plane, spec, "team-b")
    password = secrets.token_urlsafe(24)
    real_stack.secrets.add(password)
    user = await real_stack.keystone.create("users", name=name, domain_id="default", password=password)
    change: Object = {"spec": {"korc": {"adminCredential": {"userName": name}}}}
    await kube.patch(real_stack.stack, "management", PLANES, plane.namespace, plane.name, change)
    yield plane, {**user, "password": password}
    await real_stack.keystone.delete("users", user["id"])
    await real_stack.drop_plane(plane)


@pytest.mark.row("A03")
async def test_what_mariadb_takes_for_the_admins_name_is_refused_too(
    real_stack: Stage, register: Register, own_plane: tuple[Plane, Object]
) -> None:
    """Keystone finds its admin by letters that no accent is taken off of, and with blanks behind: so must the refusal.

    With `adopt` nothing asks before K-ORC takes the user over that Keystone finds.
    """
    plane, admin = own_plane
    name = admin["name"]
    spellings = (name.replace("i", "ı"), name.replace("s", "ß"), name.replace("s", "ſ"), f"{name}  ")
    for each in spellings:
        found = await real_stack.keystone.users(name=each, domain="default")
        assert [user["id"] for user in found] == [admin["id"]], "Keystone would tell them apart"
    orders = [
        register(
            "spelled",
            namespace="team-b",
            plane=plane,
            account=account(unique("spelled"), userName=user, adopt=True),
        )
        for user in spellings
    ]
    await asyncio.gather(*(each.place() for each in orders))
    for each in orders:
        await each.reads("account", "ServiceAccountCollision", "AccountProvisioned", "WaitingForServiceAccounts")
        assert condition(await each.live(), "AccountReady")["reason"] == "ServiceAccountCollision"
        assert await each.objects() == {}
    assert await real_stack.keystone.login(name, admin["password"]) is not None
    (user,) = await real_stack.keystone.users(name=name, domain="default")
    assert user["name"] == name


@pytest.mark.row("A10", "A09", "C01")
async def test_a_collision_heals_when_what_was_in_the_way_goes(real_stack: Stage, register: Register) -> None:
    """The remedy of a person who deletes the stranger: for the account by removing the block and declaring it again."""
    service = register("heals", catalog=catalog("public"), account=lambda name: account(f"{name}-project", "member"))
    user = await real_stack.keystone.create("users", name=service.name, domain_id="default")
    try:
        await service.place()
        await service.reads("account", "ServiceAccountCollision")
        await service.reads("catalog", "CatalogRegistered")
        await service.edit(account=None)
        await service.is_ready()
        await until(service.children, lambda found: found == {"Service/service", "Endpoint/endpoint-public"}, 20)
        live = await service.live()
        assert live is not None
        assert "account" not in live["status"]
        assert await service.project_rows() == []
    finally:
        await real_stack.keystone.delete("users", user["id"])
    await service.edit(account=service.account)
    await service.is_ready()
    assert await service.logs_in() is not None


@pytest.mark.row("A24")
async def test_of_two_orders_for_one_identity_exactly_one_gets_each(
    real_stack: Stage, register: Register, place: Callable[..., Order]
) -> None:
    """Two registrations from two namespaces, and a KeystoneProject for the same project, placed in the same moment."""
    name = unique("twin")
    twins = [
        register(name=f"{name}-{namespace}", namespace=namespace, catalog=catalog(serviceName=name),
                 account=account(name, userName=name))
        for namespace in ("team-a", "team-b")
    ]  # fmt: skip
    project = place("twin", project=name)
    await asyncio.gather(*(each.place() for each in twins), project.place())

    async def settled() -> dict[str, list[str]]:
        conditions = [await each.conditions() for each in twins]
        return {
            "catalog": sorted(each.get("CatalogReady", {}).get("reason", "") for each in conditions),
            "project": sorted(
                [*(each.get("AccountReady", {}).get("reason", "") for each in conditions), reason(await project.live())]
            ),
        }

    def holds(seen: dict[str, list[str]]) -> bool:
        got = [each for each in seen["project"] if each in ("AccountProvisioned", "ProjectProvisioned")]
        lost = [each for each in seen["project"] if each in ("ServiceAccountCollision", "ProjectCollision")]
        return seen["catalog"] == ["CatalogRegistered", "ServiceCollision"] and (len(got), len(lost)) == (1, 2)

    await until(settled, holds, 60)
    keystone = real_stack.keystone
    rows = (await keystone.services(name=name), await keystone.users(name=name), await keystone.projects(name=name))
    assert [len(found) for found in rows][::2] == [1, 1]
    assert len(rows[1]) <= 1, "at most the winner's user"
