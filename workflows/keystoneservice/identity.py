"""Which children stand for another identity than the order declares: a block was taken out and put back in meanwhile.

K-ORC never changes a reference, and renames a row in Keystone without asking who has the new name. So such children go
as a swept block's do, and what is declared now is made after them, behind its own probe and claim.
"""

from __future__ import annotations

from typing import Any

from workflows.api.keystoneservice import Account, Catalog, KeystoneServiceSpec
from workflows.api.korc import KorcObject
from workflows.api.meta import Model
from workflows.keystoneservice import children
from workflows.keystoneservice.children import Registration
from workflows.scaffold.child import Body, Seen
from workflows.scaffold.naming import claim_name, keystone_name_key

Claims = frozenset[str] | None
"""Which the order holds of the claims that tell. None before they were read: what may stand for another identity does.

A child goes only if the order holds the claim of what it stands for: then the order made it under that name. One that
differs otherwise was edited by somebody, or comes from the reference operator, which claims nothing: it is put right.
"""


class Replaced(Model):
    """What has to go before what is declared can be made: the children's names, and in words what they stand for."""

    names: frozenset[str] = frozenset()
    was: str = ""


def replaced(block: str, reg: Registration, spec: KeystoneServiceSpec, seen: Seen, claims: Claims) -> Replaced:
    """What of a declared block's children stands for another identity."""
    if block == "catalog":
        return _replaced_catalog(reg, spec.catalog, seen, claims) if spec.catalog else Replaced()
    return _replaced_account(reg, spec.account, seen, claims) if spec.account else Replaced()


def claimed(block: str, reg: Registration, spec: KeystoneServiceSpec) -> tuple[str, ...]:
    """The claims of what the block declares."""
    if block == "catalog":
        return (children.service_claim(reg, spec.catalog),) if spec.catalog else ()
    return _claimed(reg, spec.account) if spec.account else ()


def telling(block: str, reg: Registration, spec: KeystoneServiceSpec, seen: Seen) -> tuple[str, ...]:
    """The claims that tell whether what differs is another."""
    if block == "catalog":
        former = _former_service_claim(reg, spec.catalog, seen) if spec.catalog else ()
    else:
        former = _former_claims(reg, spec.account, seen) if spec.account else ()
    return (*claimed(block, reg, spec), *former)


def _replaced_catalog(reg: Registration, catalog: Catalog, seen: Seen, claims: Claims) -> Replaced:
    """The service under another name or type, with its endpoints."""
    wanted = children.service(reg, catalog)
    live, declared = _resource(_own(reg, wanted, seen)), wanted["spec"]["resource"]
    if live is None or all(live.get(field) == declared[field] for field in ("type", "name")):
        return Replaced()
    if claims is not None and claims.isdisjoint(_former_service_claim(reg, catalog, seen)):
        return Replaced()
    was = f"service {live.get('name')!r} of type {live.get('type')!r}"
    return Replaced(names=_names(reg, seen, "service", "endpoint-"), was=was)


def _replaced_account(reg: Registration, account: Account, seen: Seen, claims: Claims) -> Replaced:
    """Domain, project or user, each with what refers to it; with the user the passwords that it had."""
    project, user = children.project(reg, account), children.user(reg, account, 1, None)
    same_user, same_project = (claim in (claims or ()) for claim in _claimed(reg, account))
    same_project = same_project and account.project.create  # nobody holds one for a project that is only referred to
    known = claims is None or not claims.isdisjoint(_former_claims(reg, account, seen))
    was = [] if same_project or same_user or not known else _domain(reg, account, seen, claims)
    names = ["domain"] if was else []
    was += _another(_own(reg, project, seen), project, same=same_project, known=known, whatever=bool(was))
    names += ["project"] if was else []
    was += _another(_own(reg, user, seen), user, same=same_user, known=known, whatever=bool(was))
    if not was:
        return Replaced()
    return Replaced(names=_names(reg, seen, *names, "user", "password-v", "assign-"), was=", ".join(was))


def bound_to(reg: Registration, account: Account, seen: Seen) -> str:
    """The Domain object that user or project refer to already, empty if there are none."""
    handles = (children.domain_name(reg.order), reg.plane.domain_handle)
    for body in (children.user(reg, account, 1, None), children.project(reg, account)):
        refers = (_resource(_own(reg, body, seen)) or {}).get("domainRef")
        if refers in handles:
            return str(refers)
    return ""


def _domain(reg: Registration, account: Account, seen: Seen, claims: Claims) -> list[str]:
    """The domain that user or project are in, if it is another than the declared one, in words."""
    own, plane = children.domain_name(reg.order), reg.plane
    wanted = children.domain(reg.model_copy(update={"bound": own}), account)
    if wanted and account.domain_name and (was := _another(_own(reg, wanted, seen), wanted)):
        return was
    bound = bound_to(reg, account, seen)
    if bound == own and not account.domain_name:
        return ["the domain of an import of its own"]
    # The plane's admin domain may have been the declared one when they were made, and renamed since: a claim tells.
    if bound == plane.domain_handle and account.domain_name not in ("", plane.admin_domain):
        former = claims is None or not claims.isdisjoint(_former_claims(reg, account, seen))
        return [f"domain {plane.admin_domain!r}"] if former else []
    return []


def _claimed(reg: Registration, account: Account) -> tuple[str, str]:
    """Of the user and of the project."""
    return children.user_claim(reg, account), children.project_claim(reg, account)


def _former_service_claim(reg: Registration, catalog: Catalog, seen: Seen) -> tuple[str, ...]:
    """What the live service would be claimed by."""
    live = _resource(_own(reg, children.service(reg, catalog), seen))
    if live is None:
        return ()
    there = catalog.model_copy(update={"service_type": str(live.get("type")), "service_name": str(live.get("name"))})
    return (children.service_claim(reg, there),)


def _former_claims(reg: Registration, account: Account, seen: Seen) -> tuple[str, ...]:
    """What the live user and project are claimed by: in the domain of the account's own import if they refer to it,
    else in the plane's admin domain, as it is called now."""
    own = children.domain_name(reg.order)
    imported = {"kind": "Domain", "metadata": {"name": own, "namespace": reg.plane.namespace}}
    asked = (_resource(_own(reg, imported, seen)) or {}).get("name")
    domain = str(asked) if asked and bound_to(reg, account, seen) == own else reg.plane.admin_domain
    bodies = (children.user(reg, account, 1, None), children.project(reg, account))
    live = [(body["kind"], _resource(_own(reg, body, seen))) for body in bodies]
    return tuple(
        claim_name(reg.plane.key, kind, domain, str(resource.get("name") or ""))
        for kind, resource in live
        if resource is not None
    )


def _another(
    live: KorcObject | None, wanted: Body, *, same: bool = False, known: bool = True, whatever: bool = False
) -> list[str]:
    """Whether the child stands for something else than what is wanted, in words. Keystone's names are compared as it
    compares them. An import stands for another only if it asked for that and found it: what it found may have been
    renamed since, and what it asks may have been edited.

    same      the order holds the claim of what is wanted, so another name on it is somebody's edit
    known     the order holds a claim of what is there
    whatever  it goes in any case, for what it refers to goes
    """
    resource = _resource(live)
    if live is None or resource is None:
        return []
    declared = resource_of(wanted["spec"])
    name, imported = str(resource.get("name") or ""), "import" in live.spec
    found = str(live.status.resource.get("name") or "") if imported else ""
    policy = live.spec.get("managementPolicy", "managed") != wanted["spec"]["managementPolicy"]
    wants = keystone_name_key(declared["name"])
    differs = not same and keystone_name_key(name) != wants and (not found or keystone_name_key(found) != wants)
    differs = differs and ((imported and bool(live.status.id)) or (not imported and known))
    return [f"{wanted['kind'].lower()} {name!r}"] if whatever or policy or differs else []


def _own(reg: Registration, body: Body, seen: Seen) -> KorcObject | None:
    live = seen.of(body)
    return live if live is not None and children.marks(reg.order, reg.uid).own(live.metadata) else None


def _resource(live: KorcObject | None) -> dict[str, Any] | None:
    return None if live is None else resource_of(live.spec)


def resource_of(spec: dict[str, Any]) -> dict[str, Any]:
    """What a child is to be, or to find."""
    return spec.get("resource") or (spec.get("import") or {}).get("filter") or {}


def _names(reg: Registration, seen: Seen, *suffixes: str) -> frozenset[str]:
    """The order's children of these names; a suffix that ends in a dash, or in a generation's `v`, begins several."""
    start, marks = children.prefix(reg.order), children.marks(reg.order, reg.uid)
    exact = {f"{start}{each}" for each in suffixes}
    several = tuple(each for each in exact if each.endswith(("-", "-v")))
    return frozenset(
        child.metadata.name
        for child in seen.children.values()
        if marks.own(child.metadata) and (child.metadata.name in exact or child.metadata.name.startswith(several))
    )
