"""The judge of the catalog block: the service behind its probe, its endpoints, what a sweep takes (contracts 4.4)."""

from __future__ import annotations

from workflows.api.keystoneservice import Catalog, CatalogStatus, EndpointStatus
from workflows.keystoneservice import children, reasons
from workflows.keystoneservice.blocks import blocking, false, held, replaced, said, writes
from workflows.keystoneservice.children import Registration
from workflows.keystoneservice.gates import undeclared
from workflows.scaffold import gated
from workflows.scaffold.child import Body, Found, Seen, Standing, judge_child
from workflows.scaffold.naming import keystone_name_key
from workflows.scaffold.removal import Removing
from workflows.scaffold.verdict import Decision, Verdict

_REASONS = {
    Standing.REFUSED: reasons.CATALOG_ERROR,
    Standing.COLLISION: reasons.SERVICE_COLLISION,
    Standing.PROBING: reasons.PROBING,
    Standing.FAILED: reasons.CATALOG_FAILED,
    Standing.WAITING: reasons.WAITING_FOR_CATALOG,
}


def judge_catalog(reg: Registration, catalog: Catalog | None, seen: Seen, swept: Removing, was: str = "") -> Decision:
    """How the block stands.

    swept  what the spec does not declare any more
    was    what children stand for that are swept because it is declared no more, in words
    """
    sweeping = held(swept, reasons.CATALOG_READY, reasons.WAITING_FOR_CATALOG)
    if catalog is None:
        gone = {"catalog": None}
        return (
            sweeping.model_copy(update={"fields": gone})
            if sweeping
            else Decision(verdict=undeclared("catalog"), fields=gone)
        )
    if was:
        fields = {"catalog": _status(reg, catalog, seen, ours=False)}
        return replaced(swept, was, reasons.CATALOG_READY, reasons.WAITING_FOR_CATALOG, fields)
    service = _judge_service(reg, catalog, seen)
    # The endpoints are ours once the row is; until then nobody knows whose they would be.
    ours = seen.of(children.service(reg, catalog)) is not None and service.standing is not Standing.REFUSED
    marks = children.marks(reg.order, reg.uid)
    joins = {"serviceID": children.service(reg, catalog)}
    endpoints = [judge_child(children.endpoint(reg, each), marks, seen, joins) for each in catalog.endpoints if ours]
    do = (*writes([service, *endpoints]), *swept.do)
    fields = {"catalog": _status(reg, catalog, seen, ours=ours)}
    blocker = blocking([service, *endpoints])
    if blocker is not None:
        reason, message, stays = said(reg.plane, blocker, _REASONS, [blocker])
        return Decision(verdict=false(reasons.CATALOG_READY, reason, message), do=do, fields=fields, stays=stays)
    if sweeping is not None:
        return sweeping.model_copy(update={"do": do, "fields": fields})
    name = catalog.effective_name(reg.order.name)
    message = f"Service {name!r} of type {catalog.service_type!r} is in the catalog with {len(endpoints)} endpoints."
    verdict = Verdict(type=reasons.CATALOG_READY, status=True, reason=reasons.CATALOG_REGISTERED, message=message)
    return Decision(verdict=verdict, do=do, fields=fields)


def _judge_service(reg: Registration, catalog: Catalog, seen: Seen) -> Found:
    name = catalog.effective_name(reg.order.name)

    def same(other: str, resource: Body) -> bool:
        return resource.get("type") == catalog.service_type and keystone_name_key(other) == keystone_name_key(name)

    gate = gated.Gated(
        child=children.service(reg, catalog),
        probe=children.service_probe(reg, catalog),
        claim=children.service_claim(reg, catalog),
        marks=children.marks(reg.order, reg.uid),
        named=f"service {name!r} of type {catalog.service_type!r}",
        where="the catalog",
        remedy="It is not taken over silently: set spec.catalog.adopt to true to take it over, or order under another"
        " serviceName.",
        adopt=catalog.adopt,
        same=same,
    )
    return gated.judge_gated(reg.order, gate, seen)


def _status(reg: Registration, catalog: Catalog, seen: Seen, *, ours: bool) -> dict[str, object]:
    """Rebuilt each time: one row per declared interface, ids as far as they are known."""
    service = seen.of(children.service(reg, catalog)) if ours else None
    rows = []
    for declared in catalog.endpoints:
        live = seen.of(children.endpoint(reg, declared)) if ours else None
        rows.append(EndpointStatus(interface=declared.interface, id=live.status.id if live else ""))
    status = CatalogStatus(service_id=service.status.id if service else "", endpoints=tuple(rows))
    return status.model_dump(mode="json", by_alias=True)
