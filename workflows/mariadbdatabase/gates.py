"""Does this plane issue database credentials at all, and what a gate's answer reads on both conditions (4.12)."""

from __future__ import annotations

from workflows.api.controlplane import ControlPlane
from workflows.mariadbdatabase import reasons
from workflows.scaffold import gates
from workflows.scaffold.verdict import REFRESH_SECONDS, WAIT_SECONDS, Verdict


def dynamic(plane: ControlPlane) -> gates.Gate | None:
    """The plane shares a MariaDB of its own, and OpenBao issues the credentials of it already."""
    if not plane.issues_credentials:
        return gates.Gate(
            reason=reasons.DYNAMIC_UNAVAILABLE,
            message=f"ControlPlane {plane.key} issues no database credentials to orders: {_why(plane)}.",
            again=REFRESH_SECONDS,
        )
    if not plane.db_credentials_ready:
        return gates.Gate(
            reason=reasons.WAITING_FOR_DB_CREDENTIALS,
            message=f"DBCredentialsReady of ControlPlane {plane.key} is not True yet; its database has to be onboarded"
            " with setup-database-tenant.sh (here: python -m deploy.openbao setup-database-tenant).",
            again=WAIT_SECONDS,
        )
    return None


def refused(gate: gates.Gate) -> tuple[Verdict, ...]:
    """A gate's answer on both conditions. One without a reason of its own says that the name cannot be served."""
    said = gate.model_dump(exclude={"type", "reason"})
    errors = {reasons.DATABASE_READY: reasons.NAME_INVALID, reasons.DELIVERY_READY: reasons.DELIVERY_ERROR}
    return tuple(Verdict(type=type_, reason=gate.reason or error, **said) for type_, error in errors.items())


def _why(plane: ControlPlane) -> str:
    if plane.external:
        return "its Keystone is External, so there is no shared database"
    if plane.spec.services.keystone.dedicated_backing_services.database is not None:
        return "its Keystone has a database of its own (spec.services.keystone.dedicatedBackingServices)"
    if plane.database is None or not plane.database.cluster_ref.name:
        return "its database is run by somebody else (spec.infrastructure.database has no clusterRef)"
    return "its credentials are Static (credentialsMode)"
