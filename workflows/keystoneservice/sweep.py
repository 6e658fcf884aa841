"""What of a KeystoneService's children stays, in which order the rest goes, which block waits for it (4.8)."""

from __future__ import annotations

from collections.abc import Callable

from workflows.api.keystoneservice import KeystoneServiceSpec
from workflows.keystoneservice.children import password_prefix, prefix, role_slug, roles
from workflows.keystoneservice.delivery import backup_name, consumer_name, source_name
from workflows.scaffold.order import OrderRef

BESIDE_THE_PLANE = ("RoleAssignment", "Role", "Endpoint", "Service", "User", "Project", "Domain")
"""K-ORC's kinds, dependents first: it would sort them by its finalizers, with a failed attempt for each."""

BESIDE_THE_ORDER = ("PushSecret", "ExternalSecret")
SECRETS = "Secret"
"""Last of all, in the order's namespace and then in the plane's, once if that is the same."""


KINDS = {
    "catalog": ("Endpoint", "Service"),
    "account": ("RoleAssignment", "Role", "User", "Project", "Domain", SECRETS),
}
"""The kinds beside the plane that each block has children of, dependents first."""


def keeps(order: OrderRef, spec: KeystoneServiceSpec) -> Callable[[str], bool]:
    """Whether a child of a name stays. Passwords stay with their account: superseded ones go when K-ORC says so."""
    names, passwords = declared(order, spec), password_prefix(order)
    return lambda name: name in names or (spec.account is not None and name.startswith(passwords))


def declared(order: OrderRef, spec: KeystoneServiceSpec) -> frozenset[str]:
    """The names of all that the spec asks for, probes included: what undecided ones ask is decided elsewhere.

    The domain import stays with the account that names its domain, even when the plane's own would serve by now: user
    and project refer to it, and K-ORC never changes that.
    """
    start = prefix(order)
    names: set[str] = set()
    if spec.catalog is not None:
        names |= {f"{start}service", f"{start}service-probe"}
        names |= {f"{start}endpoint-{endpoint.interface}" for endpoint in spec.catalog.endpoints}
    if spec.account is not None:
        names |= {f"{start}{each}" for each in ("project", "project-probe", "user", "user-probe")}
        names |= {f"{start}domain"} if spec.account.domain_name else set()
        names |= {source_name(order), backup_name(order), consumer_name(order)}
        for role in roles(spec.account):
            names |= {f"{start}role-{role_slug(role)}", f"{start}assign-{role_slug(role)}"}
    return frozenset(names)
