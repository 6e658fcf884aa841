"""The Secret beside an ordered database: read, compared by what stands for its values, and written by one apply."""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import b64encode
from contextlib import suppress

from activities.cluster import EXTERNAL_SECRET, FIELD_MANAGER, SECRET, Object
from activities.clusters import BadKubeconfig, Clusters, Unregistered
from activities.errors import ClusterError
from activities.ordered import Given, child, stands_for, unavailable, values
from activities.pen import Pen
from activities.projection import apply_onto
from workflows.api.korc import KorcObject
from workflows.mariadbdatabase import children, delivery, reasons
from workflows.scaffold.child import Seen, fingerprint
from workflows.scaffold.verdict import Decision

_log = logging.getLogger(__name__)

_SAYS_SECONDS = 3.0
"""How long External Secrets may take to say when it fetched what it has written."""


class Delivery:
    """The deliveries of all ordered databases."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    async def made(self, given: Given, pen: Pen | None, known: Seen | None) -> Decision:
        """How the Secret beside the order stands, after the one write that the pen may make.

        known  what has just been seen of the credential, by what stands for it: enough to look
        """
        want = given.want
        to = delivery.address(want)
        if isinstance(to, Decision):
            return to
        try:
            ca_raw, where = await self._ca(given)
        except (Unregistered, BadKubeconfig) as error:
            return unavailable(reasons.DELIVERY_READY, given.plane, error)
        live, (credential, refreshed, told) = await asyncio.gather(
            given.home.get(SECRET, given.task.ref.namespace, children.delivered_name(given.task.ref)),
            self._credential(given, known),
        )
        place = {"host": to.host, "port": str(to.port), "database": want.schema_name}
        data = {key: value.encode() for key, value in place.items()} | told
        ca = None
        if where is not None:
            bundle = values(ca_raw).get(delivery.CA, b"")
            ca = delivery.Ca(where=where, value=fingerprint(bundle))
            data[delivery.CA] = bundle
        wanted = {key: stands_for(key, value) for key, value in data.items()}
        if credential is not None:
            wanted |= {key: credential.data.get(key, "") for key in ("username", "password")}
        parcel = delivery.Parcel(
            credential=credential, refreshed=refreshed, ca=ca, live=child(live), ours=_ours(live), wanted=wanted
        )
        decision = delivery.judge_delivery(want, to, parcel)
        if not decision.do or pen is None:
            return decision
        await pen.lift()
        encoded = {key: b64encode(value).decode() for key, value in data.items()}
        uid = live["metadata"]["uid"] if live else None
        after = await apply_onto(given.home, SECRET, {**children.delivered(want), "data": encoded}, uid)
        _log.info("credential delivered", extra={**given.log, "child": f"Secret {children.delivered_name(want.order)}"})
        parcel = parcel.model_copy(update={"live": child(after), "ours": _ours(after)})
        if _another_user(child(live), parcel):
            parcel = parcel.model_copy(update={"refreshed": await self._refreshed(given, pen, refreshed)})
            # Once for each user that follows another: by this line the cadence of the refreshes can be seen.
            username = data["username"].decode(errors="replace")
            more = {**given.log, "username": username, "refreshTime": parcel.refreshed}
            _log.info("delivered a refreshed database credential", extra=more)
        return delivery.judge_delivery(want, to, parcel)

    async def _refreshed(self, given: Given, pen: Pen, read: str) -> str:
        """When the credential was fetched. External Secrets says it a moment after it has written what it fetched, and
        by then the news of that has brought us here."""
        name, namespace = children.credentials_name(given.task.ref), given.plane.namespace
        until = time.monotonic() + min(_SAYS_SECONDS, pen.left)
        with suppress(ClusterError):  # what there was to do is done
            while read == given.task.order.status.get("credentialsRefreshedAt") and time.monotonic() < until:
                await asyncio.sleep(_SAYS_SECONDS / 10)
                read = _refresh_time(await given.management.get(EXTERNAL_SECRET, namespace, name)) or read
        return read

    async def _credential(self, given: Given, known: Seen | None) -> tuple[KorcObject | None, str, dict[str, bytes]]:
        """The credential that External Secrets wrote, when it did, and unless it was seen already its values."""
        want = given.want
        if known is not None:
            external = known.of(children.external_secret(want))
            return known.of(children.credentials(want)), external.status.refresh_time if external else "", {}
        secret, fetched = await asyncio.gather(
            given.management.get(SECRET, want.plane.namespace, children.credentials_name(want.order)),
            given.management.get(EXTERNAL_SECRET, want.plane.namespace, children.credentials_name(want.order)),
        )
        told = {key: value for key, value in values(secret).items() if key in ("username", "password")}
        return child(secret), _refresh_time(fetched), told

    async def _ca(self, given: Given) -> tuple[Object | None, str | None]:
        """The Secret with the database's authority and where it should be; without TLS neither."""
        name, namespace = delivery.ca_secret(given.plane), given.plane.keystone_namespace
        if name is None:
            return None, None
        if not name:
            return None, f"no Secret (caBundleSecretRef of ControlPlane {given.plane.key} names none)"
        keystone = await self._clusters.get(given.plane.keystone_cluster)
        return await keystone.get(SECRET, namespace, name), f"Secret {namespace}/{name}"


def _refresh_time(external: Object | None) -> str:
    return str(((external or {}).get("status") or {}).get("refreshTime") or "")


def _another_user(before: KorcObject | None, parcel: delivery.Parcel) -> bool:
    """Whether the user that is delivered follows another; the first follows none."""
    old = before.data.get("username") if before else ""
    return bool(old) and old != parcel.wanted["username"]


def _ours(secret: Object | None) -> frozenset[str]:
    """The keys that our applies own, by the Secret's own record of who has set what."""
    fields = ((secret or {}).get("metadata") or {}).get("managedFields") or []
    ours = [
        (each.get("fieldsV1") or {}).get("f:data") or {}
        for each in fields
        if each.get("manager") == FIELD_MANAGER and each.get("operation") == "Apply"
    ]
    return frozenset(name.removeprefix("f:") for data in ours for name in data if name.startswith("f:"))
