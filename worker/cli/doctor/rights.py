"""Whether the product may do what it has to: each rule of deploy/rbac, asked of the API server itself.

Who is the product is asked about itself, which takes no right. A person asks about the product's ServiceAccount by
SubjectAccessReview: that takes the right to ask, and none to act as it. The manifests are the one list of rights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import product
from typing import Any

import yaml

from activities.cluster import Cluster, Kind, Object
from activities.errors import ClusterError
from worker.cli.doctor.check import Check, fail, ok, warn
from worker.cli.reach import PeopleSettings

AREA = "rights"
ACCOUNT = "c5c3-operator"
"""The ServiceAccount of worker and watcher, in their namespace: OpenBao binds it by this name (contracts 9.2)."""
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


def needed(manifest: str) -> list[Right]:
    """Every right that `management` or `target` grants."""
    text = (resources.files("worker.cli") / "rights" / f"{manifest}.yaml").read_text()
    return list(dict.fromkeys(_granted(each for each in yaml.safe_load_all(text) if each)))


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


async def checks(cluster: Cluster, settings: PeopleSettings, us: str) -> list[Check]:
    """The product's rights on the management cluster."""
    namespace = settings.operator_namespace
    account = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    subject = None if us == account else {"user": account, "groups": groups}
    return await granted(
        AREA, cluster, needed("management"), subject, "management", f"ServiceAccount {namespace}/{ACCOUNT}"
    )


async def granted(
    area: str, cluster: Cluster, rights: list[Right], subject: Object | None, manifest: str, whose: str
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
        remedy = "ask as somebody who may create subjectaccessreviews, or in the worker's pod, which asks about itself"
        return [warn(area, f"you may not ask what {whose} may do", remedy)]
    missing: dict[tuple[str, str, str], list[str]] = {}
    for right, allowed in zip(rights, answers, strict=True):
        if not allowed:
            missing.setdefault((right.group, right.resource, right.namespace), []).append(right.verb)
    return [
        fail(
            area,
            f"{whose} may not {', '.join(verbs)} {resource}{f'.{group}' if group else ''}"
            + (f" in namespace {namespace}" if namespace else ""),
            f"kubectl apply --server-side -f deploy/rbac/{manifest}.yaml"
            + (f" on cluster {cluster.name}" if cluster.name else ""),
        )
        for (group, resource, namespace), verbs in missing.items()
    ] or [ok(area, f"{whose} has all {len(rights)} rights of deploy/rbac/{manifest}.yaml")]
