"""Taking an ordered database back: leases and role first, then its children, dependents first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TypeVar

from activities import claims
from activities.cluster import SECRET, Cluster
from activities.clusters import BadKubeconfig, Clusters, Unregistered
from activities.errors import ClusterError, NotServed, OpenBaoError
from activities.openbao import OpenBao
from activities.ordered import Given, bao_of, complete, until, values
from activities.pen import Pen
from workflows.api.mariadbdatabase import Bao
from workflows.mariadbdatabase import children, removal
from workflows.scaffold.child import Seen
from workflows.scaffold.removal import Removing
from workflows.scaffold.steps import Removal

_log = logging.getLogger(__name__)

_WITHOUT_PLANE_SECONDS = 5.0

Answer = TypeVar("Answer")


class Withdrawal:
    """The removals of all ordered databases."""

    def __init__(self, clusters: Clusters, openbao: OpenBao) -> None:
        self._clusters = clusters
        self._openbao = openbao

    async def made(self, given: Given, pen: Pen) -> Removal:
        """Leases and role, then the children in order; what was issued meanwhile is revoked before the end."""
        store = bao_of(given.management, given.plane.store_ref, given.plane.namespace)
        bao = await _if_served(given, store)  # None where nothing can say any more where OpenBao is
        try:
            around = await self._around(given)
        except ClusterError:
            await self._withdraw(given, bao, pen)  # no credential outlives its order for that
            raise
        async with given.projection(pen, around) as projection:
            await asyncio.gather(
                *(
                    _if_served(given, projection.follow(given.plane.namespace, (kind,)))
                    for kind in removal.BESIDE_THE_PLANE
                ),
                projection.get(children.delivered(given.want)),
            )
            fetched = self._judged(given, projection.seen).left
            withdrawn = await self._withdraw(given, bao, pen)
            await _if_served(given, projection.follow(given.plane.keystone_namespace, (removal.DATABASE,)))
            if self._judged(given, projection.seen).do:  # once: later passes only wait
                self._say(given, bao, withdrawn=withdrawn)
            removing = await projection.drive(lambda seen: self._judged(given, seen))
        if removing.left:
            return Removal(left=removing.left)
        if fetched:
            await self._withdraw(given, bao, pen)
        await self._drop_claims(given, pen)
        return Removal()

    async def look(self, given: Given) -> Removal:
        """What is left, without a write and without OpenBao."""
        async with given.projection(None, await self._around(given)) as projection:
            await asyncio.gather(
                *(
                    _if_served(given, projection.list(given.plane.namespace, (kind,)))
                    for kind in removal.BESIDE_THE_PLANE
                ),
                _if_served(given, projection.list(given.plane.keystone_namespace, (removal.DATABASE,))),
                projection.get(children.delivered(given.want)),
            )
            removing = await projection.look(lambda seen: self._judged(given, seen))
        return Removal(left=("a write is due",) if removing.do else removing.left)

    def _judged(self, given: Given, seen: Seen, kinds: tuple[str, ...] = removal.KINDS) -> Removing:
        marks = children.marks(given.task.ref, given.task.order.uid)
        return removal.judge_teardown(given.spec, marks, given.task.plane, seen, kinds)

    async def _around(self, given: Given) -> dict[str, Cluster]:
        """Where the kinds are that are not on the management cluster."""
        cluster = given.task.plane.keystone_cluster if given.task.plane else ""
        try:
            keystone = await self._clusters.get(cluster)
        except (Unregistered, BadKubeconfig) as error:
            raise ClusterError(f"reaching Keystone's cluster {cluster}", 0, "Unregistered", str(error)) from None
        return {removal.DATABASE: keystone, removal.DELIVERED: given.home}

    async def _withdraw(self, given: Given, bao: Bao | None, pen: Pen, seconds: float = 60.0) -> bool:
        """Revokes all that the role has issued, which drops its SQL users, and only then deletes the role (D10).

        False when the certificate is gone by which OpenBao would let us in, or nobody knows where it is.
        """
        namespace = given.task.order.plane_namespace
        role = children.role_name(given.task.ref, namespace)
        client = await given.management.get(SECRET, namespace, children.CLIENT)
        if bao is None or not complete(client):
            return False
        try:
            async with self._openbao.session(bao, values(client), until(pen, seconds)) as session:
                await pen.lift()
                await session.revoke(role)
                await pen.lift()
                await session.delete_role(role)
        except OpenBaoError as error:
            text = f'removing OpenBao database role "{role}": {error}'
            raise OpenBaoError(text, error.status, passing=error.passing) from None
        return True

    def _say(self, given: Given, bao: Bao | None, *, withdrawn: bool) -> None:
        role = children.role_name(given.task.ref, given.task.order.plane_namespace)
        if withdrawn:
            _log.info("leases revoked and role deleted", extra={**given.log, "role": role})
            return
        why = "the OpenBao client certificate is gone" if bao else "no secret store says where OpenBao is"
        text = f'{why}; leaving database role "{role}" to its TTLs'
        _log.warning(text, extra=given.log)

    async def fail_open(self, given: Given, pen: Pen) -> None:
        """The plane is gone, and where its parts were can only be supposed: all is tried once, and gates nothing."""
        failed: list[str] = []
        namespace = given.task.order.plane_namespace

        async def attempt(doing: Awaitable[None]) -> None:
            try:
                await doing
            except (ClusterError, OpenBaoError) as error:
                failed.append(str(error))

        async def withdraw() -> None:
            bao = await bao_of(
                given.management, {"kind": "ClusterSecretStore", "name": "openbao-cluster-store"}, namespace
            )
            # An OpenBao that does not answer must leave the time to issue the deletes.
            self._say(given, bao, withdrawn=await self._withdraw(given, bao, pen, _WITHOUT_PLANE_SECONDS))

        async def sweep(kind: str) -> None:
            async with given.projection(pen, {removal.DELIVERED: given.home}) as projection:
                if kind == removal.DELIVERED:
                    name, where = children.delivered_name(given.task.ref), given.task.ref.namespace
                    await projection.get({"kind": kind, "metadata": {"name": name, "namespace": where}})
                else:
                    await projection.list(namespace, (kind,))
                await projection.drive(lambda seen: self._judged(given, seen, (kind,)))

        await pen.lift()
        await attempt(withdraw())
        for kind in removal.KINDS:
            await attempt(sweep(kind))
        await attempt(self._drop_claims(given, pen))
        left = f": {'; '.join(failed)}" if failed else ""
        _log.log(
            logging.ERROR if failed else logging.WARNING,
            "the ControlPlane is gone: the children's deletes are issued, not waited for%s", left, extra=given.log,
        )  # fmt: skip

    async def _drop_claims(self, given: Given, pen: Pen) -> None:
        await pen.lift()
        labels = children.marks(given.task.ref, "").labels
        await claims.drop(given.management, given.task.order.plane_namespace, labels)


async def _if_served(given: Given, reading: Awaitable[Answer]) -> Answer | None:
    """None where nobody serves the kind, of a plane that issues no credentials: it may be without External Secrets and
    without mariadb-operator, and then there is no such object. Of any other plane that is an error (contracts 14.4)."""
    try:
        return await reading
    except NotServed:
        if given.plane.issues_credentials:
            raise
        return None
