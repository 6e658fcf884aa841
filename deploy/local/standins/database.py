"""Stand-in for mariadb-operator's Database controller, which is not served here, over the real MariaDB.

As that controller was seen to act: the finalizer comes only once the schema exists, an existing schema is taken over
silently, and while the MariaDB is not ready a new Database has no status at all.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import os
from typing import Any

import kopf
import pymysql

from deploy.local.standins.loop import GONE, Cluster, Key, Object, Rings, key_of

GROUP, VERSION = "k8s.mariadb.com", "v1alpha1"
DATABASES, MARIADBS = f"{GROUP}/{VERSION}/databases", f"{GROUP}/{VERSION}/mariadbs"
FINALIZER = "database.k8s.mariadb.com/finalizer"
RETRY = 30.0

cluster = Cluster()
known: dict[Key, Object] = {}


async def look(key: Key) -> float | None:
    """One pass over one Database."""
    seen = await cluster.get(DATABASES, *key)
    if seen is None:
        return GONE
    server = await cluster.get(MARIADBS, *_server_of(seen))
    if "deletionTimestamp" in seen["metadata"]:
        return await _delete(seen, server)
    if server is None:
        await _report(seen, "False", "Failed", "MariaDB not found")
        return RETRY
    if not _is_ready(server):
        return RETRY
    spec = seen["spec"]
    charset, collate = spec.get("characterSet", "utf8"), spec.get("collate", "utf8_general_ci")
    create = f"CREATE DATABASE IF NOT EXISTS {_quoted(seen)} CHARACTER SET '{charset}' COLLATE '{collate}'"
    try:
        await _execute(server, create)
    except pymysql.err.OperationalError as error:
        await _report(seen, "False", "Failed", f"Error connecting to MariaDB: Error {error.args[0]}: {error.args[1]}")
        return RETRY
    except pymysql.MySQLError as error:
        await _report(seen, "False", "Failed", f"Error creating database: Error {error.args[0]}: {error.args[1]}")
        return RETRY
    await cluster.add_finalizer(DATABASES, seen, FINALIZER)
    await _report(seen, "True", "Created", "Created")
    return None


async def _delete(seen: Object, server: Object | None) -> float | None:
    """The policy at the moment of the deletion counts. Without a server there is nothing that could be dropped."""
    if FINALIZER not in seen["metadata"].get("finalizers", []):
        return None
    if server is not None and "deletionTimestamp" not in server["metadata"]:
        if not _is_ready(server):
            return RETRY
        if seen["spec"].get("cleanupPolicy", "Delete") == "Delete":
            await _execute(server, f"DROP DATABASE IF EXISTS {_quoted(seen)}")
    await cluster.drop_finalizer(DATABASES, seen, FINALIZER)
    return None


def _server_of(seen: Object) -> Key:
    ref = seen["spec"]["mariaDbRef"]
    return str(ref.get("namespace") or seen["metadata"]["namespace"]), str(ref["name"])


def _is_ready(server: Object) -> bool:
    conditions = (server.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _quoted(seen: Object) -> str:
    name = str(seen["spec"].get("name") or seen["metadata"]["name"])
    return "`" + name.replace("`", "``") + "`"


async def _execute(server: Object, statement: str) -> None:
    """As root, whose password the MariaDB object points at. The address is this process's: there is no Service here."""
    ref = server["spec"]["rootPasswordSecretKeyRef"]
    secret = await cluster.get("v1/secrets", server["metadata"]["namespace"], ref["name"]) or {}
    password = base64.b64decode((secret.get("data") or {}).get(ref.get("key", "password"), "")).decode()

    def work() -> None:
        port = int(os.environ["STANDIN_MARIADB_PORT"])
        connection = pymysql.connect(
            host="127.0.0.1", port=port, user="root", password=password, connect_timeout=5, read_timeout=30
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)

    await asyncio.to_thread(work)


async def _report(seen: Object, status: str, reason: str, message: str) -> None:
    old: Object = next(iter((seen.get("status") or {}).get("conditions") or []), {})
    if (old.get("status"), old.get("reason"), old.get("message")) == (status, reason, message):
        return
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    since = old["lastTransitionTime"] if old.get("status") == status else now
    ready = {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
    meta = seen["metadata"]
    await cluster.patch(DATABASES, meta["namespace"], meta["name"], {"status": {"conditions": [ready]}}, "status")


rings = Rings(look)


@kopf.on.event(GROUP, VERSION, "databases")
async def database_moved(body: kopf.Body, type: str | None, **_: Any) -> None:
    """Rings the Database."""
    key = key_of(body)
    if type == "DELETED":
        known.pop(key, None)
    else:
        known[key] = dict(body)
    rings.ring(key)


@kopf.on.event(GROUP, VERSION, "mariadbs")
async def server_moved(body: kopf.Body, **_: Any) -> None:
    """Rings every Database of this server."""
    for key, seen in list(known.items()):
        if _server_of(seen) == key_of(body):
            rings.ring(key)
