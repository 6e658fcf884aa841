"""The judge of the account block, up to the user that may log in: project, user, password, roles (contracts 4.5-4.7).

What does not depend on each other is asked and made side by side; what is reported is the first that blocks, in the
order in which things depend on each other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from workflows.api.keystoneservice import Account, AccountStatus
from workflows.api.korc import GROUP, KorcObject
from workflows.api.meta import Model
from workflows.keystoneservice import children, delivery, reasons
from workflows.keystoneservice.blocks import blocking, false, held, replaced, said, writes
from workflows.keystoneservice.children import Registration
from workflows.keystoneservice.gates import undeclared
from workflows.keystoneservice.identity import bound_to, resource_of
from workflows.scaffold import gated, korc
from workflows.scaffold.child import Body, Found, Seen, Standing, judge_child, key, the, write
from workflows.scaffold.naming import keystone_name_key
from workflows.scaffold.ownership import Marks
from workflows.scaffold.removal import Removing
from workflows.scaffold.verdict import Act, Decision, Verdict, Write

_REASONS = {
    Standing.REFUSED: reasons.ACCOUNT_ERROR,
    Standing.COLLISION: reasons.ACCOUNT_COLLISION,
    Standing.PROBING: reasons.PROBING,
    Standing.FAILED: reasons.ACCOUNT_FAILED,
    Standing.WAITING: reasons.WAITING_FOR_ACCOUNT,
}
ASSIGNMENT = "RoleAssignment"
"""The kind that an account without roles can do without: K-ORC has come to serve it late."""
_GATED = (Standing.REFUSED, Standing.COLLISION, Standing.PROBING)


class Password(Model):
    """Which generation of the password is wanted, and what the managed User's annotation should say."""

    generation: int
    mark: str


def refusal(reg: Registration, account: Account, user: KorcObject | None, *, unknown: bool) -> Decision | None:
    """The plane's own admin identity is never registered, whatever `adopt` says (row A03).

    unknown  the managed User could not be read, which counts as owned: deleting the order might delete the admin
    """
    name, domain, plane = account.effective_user(reg.order.name), account.effective_domain(reg.plane), reg.plane
    same_user = keystone_name_key(name) == keystone_name_key(plane.admin_user)
    if not same_user or keystone_name_key(domain) != keystone_name_key(plane.admin_domain):
        return None
    remedy = (
        "The order may own it already, and deleting the order would delete the plane's admin: give the plane's"
        " spec.korc.adminCredential an identity of its own again."
        if unknown or user is not None
        else "Delete this order and create it under another name; both names are immutable."
    )
    message = (
        f"User {name!r} in domain {domain!r} is the admin of ControlPlane {plane.key} (userName and domainName of its"
        f" spec.korc.adminCredential): its password would be changed, and the plane locked out. {remedy}"
    )
    return Decision(verdict=false(reasons.ACCOUNT_READY, reasons.ACCOUNT_COLLISION, message, again=None))


def password(account: Account, user: KorcObject | None, seen: Seen, reg: Registration) -> Password:
    """The wanted generation (contracts 4.7): the one referred to, or the next if a new one is due.

    A new one is due when somebody emptied the annotation; when the password that K-ORC applied is nowhere any more, for
    it cannot be told again; and once after a user was taken over, whose first password K-ORC only records (doubt 12.3).
    None is due before K-ORC has reported a password at all: whatever it reports first may only be recorded.
    """
    if user is None:
        return Password(generation=1, mark="1")
    now = generation_of(user)
    mark = user.metadata.annotations.get(children.GENERATION)
    kept = Password(generation=now, mark=str(now) if mark is None else mark)
    if not applied_password(user):
        return kept
    current = seen.of(delivery.password_secret(reg, now))
    applied = applied_password(user) == delivery.password_name(reg.order, now)
    lost = applied and not _told(current)
    recorded_only = applied and account.adopt and now == 1 and not _published(reg, current, seen)
    if mark == "" or lost or recorded_only:
        return Password(generation=now + 1, mark=str(now + 1))
    return kept


def _told(secret: KorcObject | None) -> bool:
    """Whether it can be told which password it is: the Secret is there, and has one as far as it was read."""
    return secret is not None and (secret.partial or bool(secret.data.get("password")))


def _published(reg: Registration, secret: KorcObject | None, seen: Seen) -> bool:
    """Whether this password is the one that the service was given: then it is no first one of a user taken over."""
    source = seen.of(delivery.source_secret(reg))
    return secret is not None and source is not None and source.data.get("password") == secret.data.get("password")


def generation_of(user: KorcObject) -> int:
    """The generation that the managed User refers to; one that cannot be read is the first."""
    return delivery.generation_of((user.spec.get("resource") or {}).get("passwordRef") or "") or 1


def applied_password(user: KorcObject) -> str:
    """The Secret whose password K-ORC has sent to Keystone."""
    return str(user.status.resource.get("appliedPasswordRef") or "")


def judge_account(
    reg: Registration, account: Account | None, live: AccountStatus, seen: Seen, swept: Removing, was: str = ""
) -> Decision:
    """How the block stands, up to a user that can log in.

    live   `status.account` as the order has it
    swept  what the spec does not declare any more
    was    what children stand for that are swept because it is declared no more, in words
    """
    sweeping = held(swept, reasons.ACCOUNT_READY, reasons.WAITING_FOR_ACCOUNT)
    if account is None:
        gone = {"account": None}
        return (
            sweeping.model_copy(update={"fields": gone})
            if sweeping
            else Decision(verdict=undeclared("account"), fields=gone)
        )
    if was:
        fields = {"account": _shown(AccountStatus(secret_name=delivery.consumer_name(reg.order)))}
        return replaced(swept, was, reasons.ACCOUNT_READY, reasons.WAITING_FOR_ACCOUNT, fields)
    reg, marks = bound(reg, account, seen), children.marks(reg.order, reg.uid)
    own_domain = children.domain(reg, account)
    domain = judge_child(own_domain, marks, seen) if own_domain else Found(standing=Standing.READY)
    if domain.standing is Standing.REFUSED:
        # Whatever refers to it would land in the stranger's domain.
        verdict = false(reasons.ACCOUNT_READY, reasons.ACCOUNT_ERROR, domain.message)
        return Decision(verdict=verdict, do=swept.do)
    project = _once(domain, _judge_project(reg, account, seen), children.project(reg, account), seen)
    ours = _own(seen.of(children.user(reg, account, 1, None)), marks)
    wanted = password(account, ours, seen, reg)
    user = _judge_user(reg, account, wanted, seen)
    applied = _judge_applied(reg, wanted, ours)
    secret = Found(standing=Standing.READY)
    due = any(each.act is Act.APPLY for each in user.do)
    if due or (ours is not None and not applied.ready):
        # No user before its project's gate is passed, and none before there is a password to refer to.
        passed = project.standing not in _GATED
        secret = _judge_secret(reg, wanted, seen) if passed else secret
        user = user if not due or (passed and secret.ready) else user.model_copy(update={"do": ()})
        user = _once(project, user, children.user(reg, account, 1, None), seen)
    made = all(seen.of(each) for each in (children.project(reg, account), children.user(reg, account, 1, None)))
    # Nothing is bound to a user, or in a project, of which it is not known yet whose it is.
    roles = _judge_roles(reg, account, seen) if made and not _gate([project, user]) else []
    fields = {"account": _status(reg, account, wanted, live, seen)}
    do = (*writes([domain, secret, project, user, *(found for _, found in roles)]), *swept.do)
    if applied.ready:
        do = (*do, *_superseded(reg, wanted, seen))
    chain = _with_domain([project, user, secret, applied], domain, seen.now)
    blocker = _first(chain) or blocking([found for _, found in roles])
    if blocker is None and sweeping is not None:
        return sweeping.model_copy(update={"do": do, "fields": fields})
    if blocker is None:
        name, where = account.effective_user(reg.order.name), account.effective_domain(reg.plane)
        message = f"User {name!r} of domain {where!r} can log in."
        verdict = Verdict(type=reasons.ACCOUNT_READY, status=True, reason=reasons.ACCOUNT_PROVISIONED, message=message)
        return Decision(verdict=verdict, do=do, fields=fields)
    waited_on = [project, user] if blocker in chain else [found for _, found in roles if not found.ready]
    waited_on = [blocker] if blocker.standing is Standing.PROBING else waited_on
    reason, message, stays = said(reg.plane, blocker, _REASONS, waited_on)
    return Decision(verdict=false(reasons.ACCOUNT_READY, reason, message), do=do, fields=fields, stays=stays)


def bound(reg: Registration, account: Account, seen: Seen) -> Registration:
    """The registration as its user and project are made already: K-ORC never changes which domain they refer to.

    The plane may rename its admin domain in place, and its import of it would then be the one to refer to, or be it no
    more.
    """
    return reg.model_copy(update={"bound": bound_to(reg, account, seen)})


def _own(live: KorcObject | None, marks: Marks) -> KorcObject | None:
    return live if live is not None and marks.own(live.metadata) else None


def _once(other: Found, found: Found, body: Body, seen: Seen) -> Found:
    """What refers to another child is made once that is Available. K-ORC would wait by itself, and could come to make
    it at the very moment in which it is taken back as something that K-ORC never made.
    """
    if other.ready or seen.of(body) is not None or not any(each.act is Act.APPLY for each in found.do):
        return found
    message = f"{the(body)} has yet to be created: {other.message}"
    return found.model_copy(update={"do": (), "message": message, "child": other.child})


def _gate(chain: list[Found]) -> bool:
    return any(found.standing in _GATED for found in chain)


def _first(chain: list[Found]) -> Found | None:
    """The chain's blocker: its gates in order, then what K-ORC has given up on, then what is waited for."""
    for standings in (_GATED, (Standing.FAILED,), (Standing.WAITING,)):
        for found in chain:
            if found.standing in standings:
                return found
    return None


def _judge_project(reg: Registration, account: Account, seen: Seen) -> Found:
    wanted, marks = children.project(reg, account), children.marks(reg.order, reg.uid)
    if not account.project.create:
        return judge_child(wanted, marks, seen)
    domain = account.effective_domain(reg.plane)
    gate = gated.Gated(
        child=wanted,
        probe=children.project_probe(reg, account),
        claim=children.project_claim(reg, account),
        marks=marks,
        named=f"project {account.project.name!r}",
        where=f"domain {domain!r}",
        remedy="It is never taken over: set project.create to false to work in it, in an order made anew.",
    )
    return gated.judge_gated(reg.order, gate, seen)


def _judge_user(reg: Registration, account: Account, wanted: Password, seen: Seen) -> Found:
    name, domain = account.effective_user(reg.order.name), account.effective_domain(reg.plane)

    def same(other: str, resource: Body) -> bool:
        there = _domain_called(reg, str(resource.get("domainRef")), seen)
        return keystone_name_key(other) == keystone_name_key(name) and there == keystone_name_key(domain)

    gate = gated.Gated(
        child=children.user(reg, account, wanted.generation, wanted.mark),
        probe=children.user_probe(reg, account),
        claim=children.user_claim(reg, account),
        marks=children.marks(reg.order, reg.uid),
        named=f"user {name!r}",
        where=f"domain {domain!r}",
        remedy="It is not taken over silently: set spec.account.adopt to true to take it over, or remove the block.",
        adopt=account.adopt,
        same=same,
        blind=True,
        exact=True,
    )
    return gated.judge_gated(reg.order, gate, seen)


def _domain_called(reg: Registration, handle: str, seen: Seen) -> str:
    """A Domain object's name in Keystone, folded; empty where it is not known."""
    if handle == reg.plane.domain_handle:
        return keystone_name_key(reg.plane.admin_domain)
    live = seen.children.get(key("Domain", reg.plane.namespace, handle))
    return keystone_name_key(str(resource_of(live.spec).get("name") or "")) if live else ""


def _judge_secret(reg: Registration, wanted: Password, seen: Seen) -> Found:
    """The wanted generation's Secret has to be there before a User refers to it. Its value is made as it is written."""
    body = delivery.password_secret(reg, wanted.generation)
    live = seen.of(body)
    if live is None:
        message = f"Generation {wanted.generation} of the password is about to be made."
        return Found(standing=Standing.WAITING, message=message, do=(write(Act.CREATE, body),))
    if not children.marks(reg.order, reg.uid).own(live.metadata):
        name = f"Secret {live.metadata.namespace}/{live.metadata.name}"
        message = f"{name} exists and was not created by this order, so it is left alone; delete or rename it."
        return Found(standing=Standing.REFUSED, message=message)
    if not _told(live) and not live.deleting:
        # Nobody has applied what is not there, so it is filled; one that is there is never written again.
        message = f"{the(body)} has no password in it; one is about to be made."
        return Found(standing=Standing.WAITING, message=message, do=(write(Act.APPLY, body, exact=True),), child=live)
    return Found(standing=Standing.READY)


def _judge_applied(reg: Registration, wanted: Password, live: KorcObject | None) -> Found:
    """K-ORC sends a password when the reference changes, and says so (row A12). `live` is the managed User, if ours."""
    name = delivery.password_name(reg.order, wanted.generation)
    if live is not None and applied_password(live) == name:
        return Found(standing=Standing.READY)
    words = f": {korc.words(live)}" if live else "."
    message = f"Generation {wanted.generation} of the password is not applied to the user yet (Secret {name}){words}"
    return Found(standing=Standing.WAITING, message=message, child=live)


def _judge_roles(reg: Registration, account: Account, seen: Seen) -> list[tuple[str, Found]]:
    """For each role its import and its assignment, with the role's name in what is said of them (row A15)."""
    marks, found = children.marks(reg.order, reg.uid), list[tuple[str, Found]]()
    if account.roles and ASSIGNMENT in seen.unserved:
        message = (
            f"{', '.join(map(repr, account.roles))} cannot be bound: the management cluster does not serve {ASSIGNMENT}"
            f" ({GROUP}/v1alpha1). Install a K-ORC that has it, with its CustomResourceDefinition, or declare no roles."
        )
        return [(account.roles[0], Found(standing=Standing.REFUSED, message=message))]
    whose = {"userID": children.user(reg, account, 1, None), "projectID": children.project(reg, account)}
    for role in children.roles(account):
        imported, assigned = children.role_import(reg, role), children.assignment(reg, role)
        asked = judge_child(imported, marks, seen)
        if (lost := _lost(asked, imported, assigned, marks, seen)) is not None:
            found.append((role, lost.model_copy(update={"message": f"Role {role!r}: {lost.message}"})))
            continue
        judged = [asked]
        # Nobody knows what a stranger's import stands for.
        if asked.standing is not Standing.REFUSED:
            judged.append(
                _respelled(role, assigned, marks, seen)
                or judge_child(assigned, marks, seen, {**whose, "roleID": imported})
            )
        for each in judged:
            hint = ""
            if each is asked and each.child is not None and korc.stalled(each.child, seen.now):
                hint = " It has been looked for for minutes and may not exist in Keystone."
            found.append((role, each.model_copy(update={"message": f"Role {role!r}: {each.message}{hint}"})))
    return found


def _respelled(role: str, assigned: Body, marks: Marks, seen: Seen) -> Found | None:
    """An assignment that binds the very role as it was spelled before. It is swept, and K-ORC takes the role from the
    user then, whoever else binds it: so the declared one is made after it is gone.
    """
    namespace, name = assigned["metadata"]["namespace"], assigned["metadata"]["name"]
    for each, other in seen.children.items():
        if not each.startswith(f"{ASSIGNMENT}/") or other.metadata.name == name or not marks.own(other.metadata):
            continue
        resource = other.spec.get("resource") or {}
        imported = seen.children.get(key("Role", namespace, str(resource.get("roleRef"))))
        asked = resource_of(imported.spec).get("name") if imported else None
        if asked and keystone_name_key(str(asked)) == keystone_name_key(role):
            message = f"{ASSIGNMENT} {namespace}/{other.metadata.name} binds it as {asked!r} and is taken back first."
            do = (write(Act.DELETE, assigned),) if seen.of(assigned) else ()
            return Found(standing=Standing.WAITING, message=message, do=do, child=other)
    return None


def _lost(found: Found, imported: Body, assigned: Body, marks: Marks, seen: Seen) -> Found | None:
    """A role that was deleted in Keystone after its import had found it: K-ORC does not look again, so the import is
    made anew and waits. Its assignment goes first, and comes back after it: K-ORC holds a Role that one refers to."""
    bound = seen.of(assigned)
    if found.child is None or (bound is not None and not marks.own(bound.metadata)):
        return None
    if found.child.deleting and bound is None:
        return found
    if found.standing is not Standing.FAILED or not korc.vanished(found.child):
        return None
    first = imported if bound is None else assigned
    do = () if bound is not None and bound.deleting else (write(Act.DELETE, first),)
    return found.model_copy(update={"message": f"{found.message} (it is about to be looked for anew)", "do": do})


def _superseded(reg: Registration, wanted: Password, seen: Seen) -> tuple[Write, ...]:
    """The Secrets of all generations but the wanted one, once that is applied.

    Later ones are of a User that is no more, say: the rotations to come must not find their passwords made already.
    """
    marks = children.marks(reg.order, reg.uid)
    start = key("Secret", reg.plane.namespace, children.password_prefix(reg.order))
    return tuple(
        write(Act.DELETE, delivery.password_secret(reg, old))
        for name, child in seen.children.items()
        if name.startswith(start)
        and marks.own(child.metadata)
        and (old := delivery.generation_of(child.metadata.name)) is not None
        and old != wanted.generation
        and not child.deleting
    )


def _with_domain(chain: list[Found], domain: Found, now: datetime) -> list[Found]:
    """The chain names project, user, password; a domain that nobody finds is said along (doubt 12.17)."""
    if domain.ready:
        return chain
    stuck = domain.standing in (Standing.REFUSED, Standing.FAILED) or (
        domain.child is not None and korc.stalled(domain.child, now)
    )
    if not stuck:
        return chain
    return [
        each if each.ready else each.model_copy(update={"message": f"{each.message} ({domain.message})"})
        for each in chain
    ]


def _status(reg: Registration, account: Account, wanted: Password, live: AccountStatus, seen: Seen) -> dict[str, Any]:
    """Rebuilt each time. The time of a rotation is its Secret's, so that it is the same whoever writes it down."""
    marks = children.marks(reg.order, reg.uid)
    user = _own(seen.of(children.user(reg, account, 1, None)), marks)
    project = _own(seen.of(children.project(reg, account)), marks)
    rotated = live.last_password_rotation
    if wanted.generation > 1 and live.password_generation != wanted.generation:
        made = seen.of(delivery.password_secret(reg, wanted.generation))
        when = (made.metadata.creation_timestamp if made else None) or seen.now
        rotated = when.strftime("%Y-%m-%dT%H:%M:%SZ")
    status = AccountStatus(
        secret_name=delivery.consumer_name(reg.order),
        user_id=user.status.id if user else "",
        project_id=project.status.id if project else "",
        password_generation=wanted.generation if user else None,
        last_password_rotation=rotated,
    )
    return _shown(status)


def _shown(status: AccountStatus) -> dict[str, Any]:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)
