"""The names that Services have in a cluster, and where they are on this machine, which has no cluster DNS.

What the product delivers keeps the cluster's names, as it must; a test or a person maps them here before connecting.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from deploy.local.part import Stack
from deploy.local.parts import keystone, openbao, planes


def table(stack: Stack) -> dict[str, str]:
    """Service name and port -> where it listens: a URL's beginning, or host:port where no URL is spoken."""
    managed, _ = planes.planes(stack)
    return {
        f"{managed.name}-keystone.{managed.namespace}.svc:5000": keystone.auth_url(stack).removesuffix("/v3"),
        f"{planes.MARIADB}.{managed.namespace}.svc:3306": f"127.0.0.1:{stack.ports['mariadb']}",
        f"{openbao.SERVICE_NAME}:8200": openbao.url(stack),
    }


def reachable(stack: Stack, where: str) -> str:
    """A URL or host:port with a Service's name in it, as it is reached here. Anything else is answered as it is.

    Keystone speaks TLS here and plain HTTP behind its Service: the scheme changes too.
    """
    parts = urlsplit(where if "://" in where else f"//{where}")
    if (found := table(stack).get(parts.netloc)) is None:
        return where
    return found + where.partition(parts.netloc)[2]
