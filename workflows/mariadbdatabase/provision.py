"""The judges of schema and credential, in two halves with OpenBao's role between them (contracts 4.12, provision).

A pure function of what was seen each; asked again after every write, until it wants none.
"""

from __future__ import annotations

from workflows.api.korc import KorcObject
from workflows.api.meta import find, is_true
from workflows.mariadbdatabase import children, reasons, schema
from workflows.mariadbdatabase.children import Body, Ordered
from workflows.scaffold.child import Found, Seen, Standing, judge_declared, the, write
from workflows.scaffold.ownership import includes
from workflows.scaffold.verdict import REFRESH_SECONDS, WAIT_SECONDS, Act, Decision, Verdict, Write

ENGINE_USER = "v-"
"""How the names of the users begin that the engine makes."""


def judge_ground(want: Ordered, seen: Seen) -> Decision:
    """Whether there is a server, the schema is free, and OpenBao can be reached. True means: go on to the role."""
    refusal = judge_name(want, seen)
    if refusal is not None:
        return refusal
    if seen.of(children.database(want)) is None and (taken := _claimed(want, seen)) is not None:
        return taken
    return _client(want, seen)


def judge_name(want: Ordered, seen: Seen) -> Decision | None:
    """What refuses the order before anything is written for it: no server is ready, or the schema is not for it."""
    server, name = children.mariadb(want), want.schema_name
    live = seen.of(server)
    if live is None or not is_true(live.status.conditions, "Ready"):
        state = f"is not Ready{_words(live)}" if live else "does not exist"
        return _wait(reasons.CLUSTER_NOT_READY, f"{the(server)} {state}.")
    if not schema.is_identifier(name):
        message = f"{name!r} cannot be a schema: 1 to 64 of A-Z, a-z, 0-9 and _. Order under another databaseName."
        return _refuse(reasons.NAME_INVALID, message)
    if schema.is_reserved(name):
        return _refuse(reasons.NAME_RESERVED, f"{name!r} is the server's own schema. Order under another databaseName.")
    if taken_by(want, seen) is not None:
        return _taken(name)
    return None


def taken_by(want: Ordered, seen: Seen) -> str | None:
    """Who has the schema already, for the log alone: the name may be another tenant's."""
    if want.plane.database is not None and want.schema_name == (want.plane.database.database or "keystone"):
        return f"ControlPlane {want.plane.key}"
    marks, place = children.marks(want.order, want.uid), want.plane.keystone_namespace
    for found, other in seen.children.items():
        if not found.startswith("Database/") or marks.own(other.metadata):
            continue
        ref = other.spec.get("mariaDbRef") or {}
        if ref.get("name") != want.mariadb or (ref.get("namespace") or other.metadata.namespace) != place:
            continue
        if (other.spec.get("name") or other.metadata.name) == want.schema_name:
            return f"Database {other.metadata.namespace}/{other.metadata.name}"
    holder = seen.claims.get(children.claim(want))
    return holder if holder not in (None, want.order.workflow_id) else None


def judge_credential(want: Ordered, seen: Seen) -> Decision:
    """How schema and credential stand, now that the role is there. True means provisioned."""
    fields = {"roleName": want.role_name}
    for body, reason in (
        (children.database(want), reasons.WAITING_FOR_DATABASE),
        (children.generator(want), reasons.WAITING_FOR_CREDENTIALS),
        (children.external_secret(want), reasons.WAITING_FOR_CREDENTIALS),
    ):
        found = judge_declared(body, children.marks(want.order, want.uid), seen)
        if not found.ready or not _reported(body["kind"], found.child):
            return _unready(want, body, reason, found).model_copy(update={"fields": fields})
    if (missing := _not_issued(want, seen)) is not None:
        return missing.model_copy(update={"fields": fields})
    message = f"Schema {want.schema_name!r} exists, and role {want.role_name} issues credentials for it."
    verdict = Verdict(type=reasons.DATABASE_READY, status=True, reason=reasons.PROVISIONED, message=message)
    return Decision(verdict=verdict, fields={**fields, "databaseName": want.schema_name})


def fetched(want: Ordered, seen: Seen) -> bool:
    """Whether External Secrets has fetched a credential: then the identity that it logs in by is there."""
    external = seen.of(children.external_secret(want))
    return external is not None and is_true(external.status.conditions, "Ready")


def issued(want: Ordered, seen: Seen) -> bool:
    """Whether the Secret that External Secrets writes holds a credential of the engine's."""
    secret = seen.of(children.credentials(want))
    username = secret.data.get("username", "") if secret else ""
    return secret is not None and bool(secret.data.get("password")) and username.startswith(ENGINE_USER)


def role_due(want: Ordered) -> Decision:
    """The role is not known to be there, and this is only a look."""
    role = Write(act=Act.APPLY, kind="OpenBao role", name=want.role_name)
    decision = _wait(reasons.WAITING_FOR_CREDENTIALS, f"OpenBao role {want.role_name} is yet to be written.")
    return decision.model_copy(update={"do": (role,)})


def stand_in(name: str, value: bytes, print_: str) -> str:
    """What stands for a value of a Secret: its fingerprint, and of a user name whether the engine made it."""
    return ENGINE_USER + print_ if name == "username" and value.startswith(ENGINE_USER.encode()) else print_


# -- inner parts -------------------------------------------------------------------------------------------------------


def _claimed(want: Ordered, seen: Seen) -> Decision | None:
    """Two orders for one schema, both looking before either has written: one claim decides (contracts 14.3)."""
    name = children.claim(want)
    if name in seen.claims:
        return None  # it is ours: another's is a collision already
    place = {"metadata": {"namespace": want.plane.namespace}}
    claim = Write(act=Act.CLAIM, kind="Lease", name=name, body=place)
    decision = _wait(reasons.WAITING_FOR_DATABASE, f"Schema {want.schema_name!r} is about to be claimed.")
    return decision.model_copy(update={"do": (claim,)})


def _client(want: Ordered, seen: Seen) -> Decision:
    """The shared identity and client certificate of the plane's orders; the identity matters until it has been used."""
    namespace = want.plane.namespace
    account, certificate = children.service_account(namespace), children.certificate(namespace)
    do = []
    if not fetched(want, seen) and seen.of(account) is None:
        do.append(write(Act.APPLY, account))
    issued = seen.of(certificate)
    if issued is None or not includes(issued.spec, certificate["spec"]):
        do.append(write(Act.APPLY, certificate))
    secret = seen.of(children.client_secret(namespace))
    lacking = [each for each in children.CLIENT_KEYS if not (secret and secret.data.get(each))]
    if lacking or do:
        words = _words(issued) if issued else ""
        message = f"Secret {namespace}/{children.CLIENT} has no {', '.join(lacking)} yet: {the(certificate)}{words}."
        if not lacking:
            message = f"{the(certificate)} and its ServiceAccount are being brought up to date."
        decision = _wait(reasons.WAITING_FOR_CERTIFICATE, message)
        return decision.model_copy(update={"do": tuple(do), "stays": True})
    message = f"Schema {want.schema_name!r} can be this order's."
    return Decision(
        verdict=Verdict(type=reasons.DATABASE_READY, status=True, reason=reasons.PROVISIONED, message=message)
    )


def _reported(kind: str, child: KorcObject | None) -> bool:
    """Whether its controller says Ready; a generator has no controller."""
    return kind == "VaultDynamicSecret" or (child is not None and is_true(child.status.conditions, "Ready"))


def _unready(want: Ordered, body: Body, reason: str, found: Found) -> Decision:
    if found.standing is Standing.REFUSED and body["kind"] == "Database":
        return _refuse(reasons.COLLISION, found.message)
    if not found.ready:
        stays = found.standing is Standing.WAITING
        return _wait(reason, found.message).model_copy(update={"do": found.do, "stays": stays})
    said = f"{the(body)} is not Ready{_words(found.child)}"
    if body["kind"] == "ExternalSecret":
        meta = body["metadata"]
        said = (
            f"No credential from {children.creds_path(want.role_name)} yet: {said}. Its events say more (kubectl -n"
            f" {meta['namespace']} describe externalsecret {meta['name']}); a database that was onboarded before there"
            " were orders needs setup-database-tenant.sh once more"
        )
    return _wait(reason, f"{said}.").model_copy(update={"stays": True})


def _not_issued(want: Ordered, seen: Seen) -> Decision | None:
    if issued(want, seen):
        return None
    secret, where = seen.of(children.credentials(want)), the(children.credentials(want))
    path = children.creds_path(want.role_name)
    state = "has no password and user name of the engine's" if secret else "is yet to be written"
    return _wait(reasons.WAITING_FOR_CREDENTIALS, f"{where} {state} (from {path}).").model_copy(update={"stays": True})


def _taken(name: str) -> Decision:
    message = (
        f"Schema {name!r} is taken on the shared MariaDB, by something that this order did not create. It is never"
        " taken over: order under another databaseName."
    )
    return _refuse(reasons.COLLISION, message)


def _words(child: KorcObject | None) -> str:
    """What its controller says last of why it is not Ready."""
    ready = find(child.status.conditions, "Ready") if child else None
    if ready is None:
        return " (its controller has not reported on it yet)"
    return f" ({ready.reason}: {ready.message})" if ready.message else f" ({ready.reason})"


def _refuse(reason: str, message: str) -> Decision:
    """Nothing of ours cures it, so nobody looks every few seconds."""
    return Decision(verdict=_false(reason, message, REFRESH_SECONDS))


def _wait(reason: str, message: str) -> Decision:
    return Decision(verdict=_false(reason, message, WAIT_SECONDS))


def _false(reason: str, message: str, again: float) -> Verdict:
    return Verdict(type=reasons.DATABASE_READY, status=False, reason=reason, message=message, again=again)
