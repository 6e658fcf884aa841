"""Rights proven minimal, by the audit logs of the two API servers and of OpenBao over all that an instance was asked.

What is granted is used, what is used is granted, and nothing was refused that no test provoked. The logs begin with the
instance, and only the whole suite uses everything: these tests come last in `make test`, and are left out of a part.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pytest

from deploy.local.parts import openbao, operator
from deploy.local.parts.crds import load
from tests.all import WHOLE
from tests.audit import Request, requests
from tests.chart.helm import DEPLOY
from tests.e2e.stage import Stage

pytestmark = [
    pytest.mark.real,
    pytest.mark.last,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(WHOLE not in os.environ, reason="looks back at the whole of `make test`"),
]

CLUSTERS = ("management", "target")
UNUSED = {
    # Asked for on clusters that run OwnerReferencesPermissionEnforcement; the local stack's do not.
    ("keystoneprojects/finalizers.c5c3.io", "update"),
    ("keystoneservices/finalizers.c5c3.io", "update"),
    ("mariadbdatabases/finalizers.c5c3.io", "update"),
}
EVERYBODY = ("selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews")
"""What any ServiceAccount may ask."""
REFUSED = (401, 403)
"""Any other answer, also that there is no such object, is one that the right was needed for."""
HINT = "granted and never used on this instance; `make test` uses every right"


@dataclass(frozen=True, order=True)
class Right:
    """One verb on one kind, as RBAC names it, in one namespace or, when that is empty, in all."""

    kind: str
    verb: str
    namespace: str


def needed(request: Request) -> set[Right]:
    """What it needed, each in its own namespace. An apply that made its object needed to be allowed that as well."""
    made = (request.verb, request.code) == ("patch", 201)
    return {Right(request.kind, verb, request.namespace) for verb in {request.verb, *(("create",) if made else ())}}


def everywhere(right: Right) -> Right:
    return Right(right.kind, right.verb, "")


def granted(cluster: str) -> set[Right]:
    """What the chart grants there, from the very file that it is made of."""
    objects = load(operator.manifests(cluster)[-1])
    roles = {(one["kind"], one["metadata"]["name"]): one["rules"] for one in objects if "rules" in one}
    return {
        Right(f"{resource}.{group}" if group else resource, verb, binding["metadata"].get("namespace", ""))
        for binding in objects
        if "roleRef" in binding
        for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def provoked(stage: Stage, at: float) -> bool:
    return any(began <= at <= ended for began, ended in stage.provoked)


@pytest.fixture(scope="module")
def asked(real_stack: Stage) -> dict[str, list[Request]]:
    """Everything that the programs ever asked of each cluster."""
    return {cluster: requests(real_stack.stack, cluster) for cluster in CLUSTERS}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_no_right_is_granted_twice(cluster: str) -> None:
    rights = granted(cluster)
    assert [right for right in rights if right.namespace and everywhere(right) in rights] == []


@pytest.mark.row("O02")
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_right_is_used(asked: dict[str, list[Request]], cluster: str) -> None:
    used = {right for request in asked[cluster] if request.code not in REFUSED for right in needed(request)}
    used |= {everywhere(right) for right in used}
    unused = sorted(right for right in granted(cluster) - used if (right.kind, right.verb) not in UNUSED)
    assert unused == [], HINT


@pytest.mark.row("O02")
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_nothing_is_done_that_the_chart_does_not_grant(
    real_stack: Stage, asked: dict[str, list[Request]], cluster: str
) -> None:
    """A right that some other binding of the stack gave would be missing in production."""
    done = [each for each in asked[cluster] if each.code not in REFUSED and each.at >= real_stack.begun]
    assert done, "the programs asked nothing: do they run under another name?"
    rights = granted(cluster)
    foreign = {
        right
        for request in done
        if not request.resource.startswith("/") and request.resource not in EVERYBODY
        for right in needed(request)
        if not {right, everywhere(right)} & rights
    }
    assert foreign == set()


@pytest.mark.row("O02")
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_no_request_of_the_programs_was_refused(
    real_stack: Stage, asked: dict[str, list[Request]], cluster: str
) -> None:
    """They run as their ServiceAccount; the only refusals are those that a test provoked by taking a right away."""
    refused = [
        request
        for request in asked[cluster]
        if request.at >= real_stack.begun and request.code in REFUSED and not provoked(real_stack, request.at)
    ]
    assert refused == []


# -- OpenBao ---------------------------------------------------------------------------------------------------------

OURS = {"c5c3-operator": "", "order-db-dynamic": "", "eso-tenant": "/service-accounts/"}
"""Policies that orders need, and which of their paths; the others are the reference's, for its own services."""
NEVER_LOGGED = {
    # Asked for beside update, on the paths that OpenBao protects itself.
    ("c5c3-operator", "sudo"),
    # A new secret in kv-v2 is an update to OpenBao 2.7; the reference's policy is for other versions as well.
    ("eso-tenant", "create data"),
}


@dataclass(frozen=True)
class Asked:
    """One request that OpenBao answered, and the policies that let it through."""

    at: float
    operation: str
    path: str
    granting: frozenset[str]
    refused: bool


def answered(stage: Stage) -> Iterator[Asked]:
    with openbao.audit_log(stage.stack).open("rb") as log:
        for line in log:
            if b'"type":"response"' not in line or not line.endswith(b"\n"):
                continue
            entry = json.loads(line)
            request, auth = entry["request"], entry.get("auth") or {}
            granting = {
                one.get("name", "") for one in (auth.get("policy_results") or {}).get("granting_policies") or ()
            }
            error = entry.get("error") or ""
            at = datetime.fromisoformat(entry["time"]).timestamp()
            yield Asked(at, request["operation"], request["path"], frozenset(granting), "permission denied" in error)


def policy(name: str) -> dict[str, set[str]]:
    """Its capabilities, by path as it is written."""
    text = (DEPLOY / "openbao" / "policies" / f"{name}.hcl").read_text()
    blocks = re.findall(r'path "([^"]+)" \{\s*capabilities = \[([^\]]*)\]', text)
    assert len(blocks) == len(re.findall("^path ", text, re.MULTILINE))
    return {path: set(re.findall(r'"(\w+)"', capabilities)) for path, capabilities in blocks}


def matches(path: str, asked: str) -> bool:
    """OpenBao's own rule: `+` is one segment, `*` at the end is anything, an identity is filled in."""
    pattern = re.escape(re.sub(r"\{\{[^}]*\}\}", "+", path)).replace(r"\+", "[^/]+")
    return re.fullmatch(pattern.removesuffix(r"\*") + (".*" if path.endswith("*") else ""), asked) is not None


@pytest.fixture(scope="module")
def answers(real_stack: Stage) -> list[Asked]:
    return list(answered(real_stack))


@pytest.mark.row("O02")
@pytest.mark.parametrize("name", OURS)
def test_every_capability_in_openbao_is_used(answers: list[Asked], name: str) -> None:
    done = {(one.operation, one.path) for one in answers if name in one.granting}
    unused = [
        f"{capability} {path}"
        for path, capabilities in policy(name).items()
        if OURS[name] in path
        for capability in sorted(capabilities)
        if not {(name, capability), (name, f"{capability} {path.split('/')[1]}")} & NEVER_LOGGED
        and not any(operation == capability and matches(path, asked) for operation, asked in done)
    ]
    assert unused == [], HINT


@pytest.mark.row("O02")
def test_openbao_refused_nothing_that_the_operators_policy_is_about(real_stack: Stage, answers: list[Asked]) -> None:
    """Tests ask in its name for other paths, on purpose."""
    paths = policy("c5c3-operator")
    refused = [
        one
        for one in answers
        if one.refused and any(matches(path, one.path) for path in paths)
        if one.at >= real_stack.begun and not provoked(real_stack, one.at)
    ]
    assert refused == []
