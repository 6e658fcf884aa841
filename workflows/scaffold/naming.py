"""Names: child prefixes, ownership labels, and names as Keystone compares them. Pure text, no I/O."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

from workflows.scaffold.order import OrderRef

LABEL_LIMIT = 63
"""Longest label value the API server takes."""

WATCHER_LEASE = "c5c3-orders-watcher"
"""The Lease, in the watcher's namespace, that makes one of several watchers the active one."""


def child_prefix(order: OrderRef, segment: str) -> str:
    """`<name>-<8 hex>-<segment>-`; the hash is over `<cluster>/<namespace>/<name>` (contracts 3.3, 3.4).

    The readable base stays in front; the hash tells apart same-named orders of two namespaces or clusters.
    """
    digest = hashlib.sha256(f"{order.cluster}/{order.namespace}/{order.name}".encode()).hexdigest()
    return f"{order.name}-{digest[:8]}-{segment}-"


def ownership_labels(order: OrderRef) -> dict[str, str]:
    """The three labels of every child of an order; the cluster's key is there even when its value is empty."""
    stem = f"c5c3.io/{order.kind.lower()}"
    return {f"{stem}-name": order.name, f"{stem}-namespace": order.namespace, f"{stem}-cluster": order.cluster}


def order_named(kind: str, labels: Mapping[str, str], *, at_home: bool = False) -> OrderRef | None:
    """The order of this kind whose child carries the labels; None when one of them is missing.

    at_home  the kind is served on the management cluster alone, so its children do not name one (contracts 3.1)
    """
    stem = f"c5c3.io/{kind.lower()}"
    name, namespace = labels.get(f"{stem}-name"), labels.get(f"{stem}-namespace")
    cluster = "" if at_home else labels.get(f"{stem}-cluster")
    if not name or not namespace or cluster is None:
        return None
    return OrderRef(kind=kind, cluster=cluster, namespace=namespace, name=name)


@lru_cache(maxsize=4096)
def keystone_name_key(name: str) -> str:
    """The name as Keystone's identity tables compare it (`*_general_ci`): without case, accents and blanks at its end.

    NFD, drop category Mn, NFC, lower: `lower`, not `casefold`, which would also equate ß with ss (doubt 12.19). Three
    letters have no accent to drop and are others to MariaDB all the same.
    """
    bare = "".join(char for char in unicodedata.normalize("NFD", name) if unicodedata.category(char) != "Mn")
    return unicodedata.normalize("NFC", bare).lower().translate(_ALIKE).rstrip(" ")


_ALIKE = str.maketrans("ıſß", "iss")


CLAIMS = "c5c3.io/claims"
"""Label of a claim: the kind of the identity that it stands for, `User` for example."""


def claim_name(plane: str, kind: str, scope: str, name: str) -> str:
    """Name of the Lease that stands for one identity in Keystone (contracts 14.3).

    plane  `namespace/name` of the ControlPlane
    scope  the domain of a user or project, the type of a service
    """
    identity = "\x00".join((plane, kind, keystone_name_key(scope), keystone_name_key(name)))
    return f"c5c3-claim-{hashlib.sha256(identity.encode()).hexdigest()[:40]}"
