"""Whether the product may do what it has to: each rule of deploy/rbac, asked of the API server where it is bound.

Who is the product is asked about itself, which takes no right. A person asks about the product's ServiceAccount by
SubjectAccessReview: that takes the right to ask, and none to act as it. The manifests are the one list of rights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import product
from typing import Any

import yaml

from activities.cluster import Cluster, Kind, Object
from activities.errors import ClusterError
from worker.cli.doctor.check import Check, fail, ok, warn

AREA = "rights"
ACCOUNT = "c5c3-operator"
"""The ServiceAccount of worker and watcher unless it is named otherwise: OpenBao binds it by name (contracts 9.2)."""
_SYSTEM = "c5c3-system"
"""Our own namespace, as the manifests have it."""
_KEYSTONE = "c5c3-operator-keystone"
"""The role of deploy/rbac/target.yaml that is needed beside a Keystone alone."""
_SELF = Kind("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview")
_SUBJECT = Kind("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")
_WHO = Kind("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview")
_AT_ONCE = 20


@dataclass(frozen=True)
class Right:
    """One verb on one resource. `namespace` is empty for all."""

    group: str
    resource: str
    verb: str
    namespace: str = ""

    @property
    def attributes(self) -> Object:
        resource, _, sub = self.resource.partition("/")
        found = {"group": self.group, "resource": resource, "subresource": sub, "verb": self.verb}
        return found | {"namespace": self.namespace}


def needed_at_home(namespace: str) -> list[Right]:
    """Every right that deploy/rbac/management.yaml grants; `namespace` is our own."""
    found = _granted(_objects("management"))
    return list(
        dict.fromkeys(replace(each, namespace=namespace) if each.namespace == _SYSTEM else each for each in found)
    )


def needed_on_target(served: Sequence[str | None], keystones: Sequence[str]) -> list[Right]:
    """What deploy/rbac/target.yaml grants, in the namespaces where it is needed.

    served     those whose orders are served, None for all
    keystones  those of Keystones that planes place there
    """
    roles = list(_objects("target"))
    orders = list(_granted(each for each in roles if each["metadata"]["name"] != _KEYSTONE))
    databases = list(_granted(each for each in roles if each["metadata"]["name"] == _KEYSTONE))
    databases += [each for each in orders if each.resource == "databases"]
    return list(
        dict.fromkeys(
            replace(right, namespace=namespace or "")
            for rights, namespaces in ((orders, served), (databases, keystones))
            for namespace in namespaces
            for right in rights
        )
    )


def _objects(manifest: str) -> Iterator[Any]:
    text = (resources.files("worker.cli") / "rights" / f"{manifest}.yaml").read_text()
    return (each for each in yaml.safe_load_all(text) if each)


def _granted(objects: Iterable[Any]) -> Iterator[Right]:
    for each in objects:
        namespace = each["metadata"].get("namespace", "") if each["kind"] == "Role" else ""
        for rule in each.get("rules") or ():
            for group, resource, verb in product(rule["apiGroups"], rule["resources"], rule["verbs"]):
                yield Right(group, resource, verb, namespace)


async def who(cluster: Cluster) -> str:
    """The user that we are to this cluster."""
    answer = await cluster.create(_WHO, {"metadata": {}})
    return str(answer["status"]["userInfo"]["username"])


async def checks(cluster: Cluster, namespace: str, account: str, us: str) -> list[Check]:
    """The product's rights on the management cluster.

    account  its ServiceAccount in our own namespace; empty when nobody said: who asks from there asks about itself
    """
    here = f"system:serviceaccount:{namespace}:"
    account = account or (us.removeprefix(here) if us.startswith(here) else ACCOUNT)
    user = here + account
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    subject = None if us == user else {"user": user, "groups": groups}
    whose, manifest = f"ServiceAccount {namespace}/{account}", "deploy/rbac/management.yaml"
    remedy = f"helm upgrade the chart (rbac.create=true), or without Helm: kubectl apply --server-side -f {manifest}"
    return await granted(AREA, cluster, needed_at_home(namespace), subject, whose, manifest, remedy)


async def on_target(area: str, cluster: Cluster, served: Sequence[str | None], keystones: Sequence[str]) -> list[Check]:
    """Our own rights on a target cluster, where its registration wants them."""
    manifest = "deploy/rbac/target.yaml"
    if None in served:
        remedy = (
            f"on cluster {cluster.name}: helm upgrade target-cluster-access with everyNamespace=true, or without Helm:"
            f" kubectl apply --server-side -f {manifest}; or list the namespaces that are served under the key"
            f" namespaces of the Secret {cluster.name}"
        )
    else:
        remedy = (
            f"on cluster {cluster.name}: helm upgrade target-cluster-access with the namespace in assignedNamespaces"
            f" (a Keystone's in keystoneNamespaces), or without Helm bind the roles of {manifest} there"
        )
    rights = needed_on_target(served, keystones)
    return await granted(area, cluster, rights, None, f"{cluster.name}'s registration", manifest, remedy)


async def granted(
    area: str, cluster: Cluster, rights: list[Right], subject: Object | None, whose: str, manifest: str, remedy: str
) -> list[Check]:
    """What is missing of these rights, a line a resource. Without a subject they are our own."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def may(right: Right) -> bool:
        kind, spec = (_SUBJECT, subject) if subject else (_SELF, {})
        async with slots:
            answer = await cluster.create(
                kind, {"metadata": {}, "spec": {**spec, "resourceAttributes": right.attributes}}
            )
        return bool(answer["status"].get("allowed"))

    try:
        answers = await asyncio.gather(*(may(right) for right in rights))
    except ClusterError as error:
        if error.status != 403:
            raise
        ask = "ask as somebody who may create subjectaccessreviews, or in the worker's pod, which asks about itself"
        return [warn(area, f"you may not ask what {whose} may do", ask)]
    verbs_missing: dict[tuple[str, str], list[str]] = {}
    for right, allowed in zip(rights, answers, strict=True):
        if not allowed:
            resource = right.resource + (f".{right.group}" if right.group else "")
            verbs_missing.setdefault((resource, right.namespace), []).append(right.verb)
    missing: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (resource, namespace), verbs in verbs_missing.items():
        missing.setdefault((resource, tuple(verbs)), []).append(namespace)
    return [
        fail(
            area,
            f"{whose} may not {', '.join(verbs)} {resource}{_in(namespaces)}",
            remedy,
        )
        for (resource, verbs), namespaces in missing.items()
    ] or [ok(area, f"{whose} has all {len(rights)} rights of {manifest}")]


def _in(namespaces: Iterable[str]) -> str:
    named = ", ".join(each for each in namespaces if each)
    return f" in namespace {named}" if named else ""
