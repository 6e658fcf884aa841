"""ControlPlanes: credential, stores, OpenBao, and what databases need, as the plane's own objects say.

No Secret is read. OpenBao's health is asked without a login and without a certificate, so it may decline to answer us.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import aiohttp

from activities.cluster import (
    CERTIFICATE,
    CONTROL_PLANE,
    KORC_DOMAIN,
    MARIADB,
    SECRET,
    SECRET_STORE,
    STORE_KINDS,
    Cluster,
    Kind,
    Object,
)
from activities.clusters import BadKubeconfig, Clusters, Unregistered
from activities.errors import ClusterError
from activities.ordered import bao_of
from worker.cli.doctor.check import Check, asked, fail, ok, warn
from worker.cli.orders import conditions_of
from workflows.api.controlplane import ControlPlane
from workflows.api.korc import KorcObject
from workflows.api.meta import find
from workflows.mariadbdatabase.children import CLIENT
from workflows.scaffold import korc

AREA = "planes"
_SECONDS = 5.0


async def planes_of(clusters: Clusters) -> list[ControlPlane]:
    listed = (await clusters.management.list(CONTROL_PLANE))["items"]
    return [ControlPlane.model_validate(each) for each in listed]


async def checks(clusters: Clusters) -> list[Check]:
    planes = await planes_of(clusters)
    if not planes:
        return [warn(AREA, "there is no ControlPlane", "create one: every order names the plane that serves it")]
    parts: tuple[Callable[[Clusters, ControlPlane], Awaitable[list[Check]]], ...] = (_credential, _stores, _database)
    every = [asked(AREA, part(clusters, plane)) for plane in planes for part in parts]
    found = await asyncio.gather(*every, asked(AREA, _openbao(clusters.management, planes)))
    return [check for one in found for check in one]


async def _credential(clusters: Clusters, plane: ControlPlane) -> list[Check]:
    """The plane's own identity in Keystone, in K-ORC's hands."""
    found = []
    if plane.paused:
        found.append(
            warn(AREA, f"{plane.key} is paused: nothing is written for its orders", "remove its c5c3.io/paused")
        )
    if not plane.admin_credential_ready:
        said = find(plane.status.conditions, "AdminCredentialReady")
        words = f": {said.message or said.reason}" if said else ""
        remedy = f"kubectl -n {plane.namespace} describe controlplane {plane.metadata.name}"
        found.append(fail(AREA, f"{plane.key}: AdminCredentialReady is not True{words}", remedy))
    secrets = {plane.cred_ref["secretName"], plane.managed_cred_ref["secretName"]}
    for name in sorted(secrets):
        listed = await clusters.management.list(SECRET, plane.namespace, name=name, metadata_only=True)
        if not listed["items"]:
            text = f"{plane.key}: the Secret {plane.namespace}/{name}, by which K-ORC logs in, is missing"
            found.append(fail(AREA, text, "see the ControlPlane's operator, which makes it"))
    raw = await clusters.management.get(KORC_DOMAIN, plane.namespace, plane.domain_handle)
    domain = KorcObject.model_validate(raw) if raw else None
    if domain is None or not korc.up_to_date(domain):
        words = korc.words(domain) if domain else "it does not exist"
        text = f"{plane.key}: the import of its admin domain, Domain {plane.domain_handle}, is not Available: {words}"
        found.append(fail(AREA, text, "see K-ORC: is it running, and does Keystone answer it?"))
    return found or [ok(AREA, f"{plane.key}: the admin credential is ready, and K-ORC knows its domain")]


async def _stores(clusters: Clusters, plane: ControlPlane) -> list[Check]:
    """The store that passwords travel through: one for all, or one in each namespace that may register."""
    ref = plane.store_ref
    kind = STORE_KINDS.get(ref["kind"])
    if kind is None:
        return [fail(AREA, f"{plane.key}: its secretStoreRef names no kind of store: {ref['kind']}")]
    allowed = plane.spec.korc.service_registrations.allowed_namespaces
    where = dict.fromkeys((plane.namespace, *allowed)) if kind is SECRET_STORE else {None: None}
    found = [await _store(clusters.management, plane, kind, namespace, ref["name"]) for namespace in where]
    bad = [each for each in found if each is not None]
    return bad or [ok(AREA, f"{plane.key}: {ref['kind']} {ref['name']} is Ready{_in(list(where))}")]


async def _store(cluster: Cluster, plane: ControlPlane, kind: Kind, namespace: str | None, name: str) -> Check | None:
    place = f"{kind.kind} {namespace + '/' if namespace else ''}{name}"
    raw = await cluster.get(kind, namespace, name)
    if raw is None:
        remedy = "the plane's operator lays it down in each namespace that may register"
        return fail(AREA, f"{plane.key}: {place} does not exist", remedy)
    words = _not_ready(raw)
    remedy = "see External Secrets and OpenBao: is it unsealed, and does it know the store's login?"
    return fail(AREA, f"{plane.key}: {place} is not Ready: {words}", remedy) if words else None


async def _database(clusters: Clusters, plane: ControlPlane) -> list[Check]:
    """What MariaDBDatabases need, of a plane that issues credentials."""
    if not plane.issues_credentials or plane.database is None:
        return [ok(AREA, f"{plane.key}: issues no database credentials, so there is nothing to onboard")]
    found = []
    if not plane.db_credentials_ready:
        remedy = "onboard its database: python -m deploy.openbao setup-database-tenant"
        found.append(fail(AREA, f"{plane.key}: DBCredentialsReady is not True", remedy))
    name = plane.database.cluster_ref.name
    try:
        keystone = await clusters.get(plane.keystone_cluster)
        server = await keystone.get(MARIADB, plane.keystone_namespace, name)
        if server is None or (words := _not_ready(server)):
            words = "it does not exist" if server is None else words
            text = f"{plane.key}: MariaDB {plane.keystone_namespace}/{name} is not Ready: {words}"
            found.append(fail(AREA, text, "see mariadb-operator and the server"))
    except (Unregistered, BadKubeconfig, ClusterError) as error:
        where = f"cluster {plane.keystone_cluster}" if plane.keystone_cluster else "management cluster"
        text = f"{plane.key}: the shared MariaDB could not be looked at on Keystone's {where}: {error}"
        found.append(fail(AREA, text, "see that the cluster is registered, answers, and serves MariaDB"))
    certificate = await clusters.management.get(CERTIFICATE, plane.namespace, CLIENT)
    if certificate is not None and (words := _not_ready(certificate)):
        text = f"{plane.key}: Certificate {CLIENT}, by which OpenBao lets its orders in, is not Ready: {words}"
        found.append(fail(AREA, text, "see cert-manager and the ClusterIssuer openbao-ca-issuer"))
    made = "is Ready" if certificate is not None else "comes with the first order"
    return found or [ok(AREA, f"{plane.key}: database {name} is onboarded and Ready; the client certificate {made}")]


async def _openbao(management: Cluster, planes: list[ControlPlane]) -> list[Check]:
    """Every OpenBao that a plane's store names, once."""
    baos = await asyncio.gather(*(bao_of(management, plane.store_ref, plane.namespace) for plane in planes))
    return list(await asyncio.gather(*(health(server) for server in sorted({bao.server for bao in baos}))))


_DECLINES = "OpenBao at {} listens, and tells nothing without a client certificate"
_SAYS = {501: "is not initialized", 503: "is sealed"}


async def health(server: str) -> Check:
    """OpenBao's health. Nothing is sent, so whom we ask need not prove who it is."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SECONDS)) as session,
            session.get(f"{server}/v1/sys/health", ssl=False, params={"standbyok": "true"}) as answer,
        ):
            status, body = answer.status, await answer.text()
    except aiohttp.ClientSSLError:
        return ok(AREA, _DECLINES.format(server))
    except (aiohttp.ClientConnectorError, TimeoutError) as error:
        where = urlsplit(server).netloc
        text = f"OpenBao at {where} cannot be asked from here ({type(error).__name__}): what its stores say counts"
        return warn(AREA, text, "run this in the worker's pod, where that name is known")
    except (aiohttp.ClientError, OSError):
        return ok(AREA, _DECLINES.format(server))
    if status in _SAYS:
        return fail(AREA, f"OpenBao at {server} {_SAYS[status]}", "bao operator unseal (docs of your installation)")
    if status >= 400:
        return warn(AREA, f"OpenBao at {server} answers its health with {status}", "see its log")
    return ok(AREA, f"OpenBao at {server} is unsealed{_version(body)}")


def _version(body: str) -> str:
    try:
        return f" (version {json.loads(body)['version']})"
    except (ValueError, KeyError, TypeError):
        return ""


def _not_ready(raw: Object) -> str:
    """Why an object is not Ready, in its controller's words; empty when it is."""
    ready = find(conditions_of(raw), "Ready")
    if ready is None:
        return "its controller has not said so yet"
    return "" if ready.status == "True" else ready.message or ready.reason


def _in(namespaces: list[str | None]) -> str:
    named = [each for each in namespaces if each]
    return f" in {', '.join(named)}" if named else ""
