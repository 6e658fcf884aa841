"""A registration's children as the real definitions take them: strictly, with nothing dropped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.invalid.api import Api, plural_path
from tests.workflows.test_registration import FULL, everything, registration
from workflows.keystoneservice import sweep
from workflows.keystoneservice.children import Body, Registration

ELSEWHERE = {
    "Secret": ("v1", "secrets"),
    "PushSecret": ("external-secrets.io/v1alpha1", "pushsecrets"),
    "ExternalSecret": ("external-secrets.io/v1", "externalsecrets"),
}
KORC = {kind: ("openstack.k-orc.cloud/v1alpha1", f"{kind.lower()}s") for kind in sweep.BESIDE_THE_PLANE}
KINDS = {**ELSEWHERE, **KORC}


def here(reg: Registration, namespace: str) -> Registration:
    """The same registration with plane and order in the one namespace that the test has."""
    meta = reg.plane.metadata.model_copy(update={"namespace": namespace})
    return reg.model_copy(
        update={
            "order": reg.order.model_copy(update={"namespace": namespace}),
            "plane": reg.plane.model_copy(update={"metadata": meta}),
        }
    )


def kept(live: Any, wanted: Any) -> bool:
    """Whether everything wanted is there; defaults may stand beside it, in items of lists as well."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(key in live and kept(live[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        same = isinstance(live, list) and len(live) == len(wanted)
        return same and all(kept(one, other) for one, other in zip(live, wanted, strict=True))
    return bool(live == wanted)


NAMES = [f"{body['kind']}-{body['metadata']['name']}" for body in everything(registration(), FULL)]


@pytest.mark.api
@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_a_child_is_taken_as_it_is(api: Api, namespace: str, number: int) -> None:
    child: Body = everything(here(registration(), namespace), FULL)[number]
    version, plural = KINDS[child["kind"]]
    path = f"{plural_path(version, plural, namespace)}/{child['metadata']['name']}"
    taken = api.apply(path, {"apiVersion": version, **child}, dryRun="All", fieldValidation="Strict")
    assert taken.ok, taken.message
    assert kept(taken.body, child)
