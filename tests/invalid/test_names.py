"""A name that is too long stops at the door, and an object that came in before the rule did can still leave."""

from __future__ import annotations

import copy

import pytest
import yaml

from tests.invalid.api import Api, Object, plural_path
from tests.invalid.conftest import DEPLOY

FINALIZER = "c5c3.io/keystoneproject-teardown"


@pytest.mark.api
def test_an_object_older_than_the_name_rule_stays_deletable(api: Api, namespace: str) -> None:
    """In a copy of the kind under another group, so that the real one never serves without its rules."""
    definition: Object = yaml.safe_load((DEPLOY / "crds/keystoneprojects.yaml").read_text())
    group = f"{namespace}.test"
    definition["metadata"]["name"] = f"keystoneprojects.{group}"
    definition["spec"]["group"] = group
    lax = copy.deepcopy(definition)
    del lax["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
    path = plural_path(f"{group}/v1alpha1", "keystoneprojects", namespace)
    name = "a" * 64
    order: Object = {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "KeystoneProject",
        "metadata": {"name": name, "finalizers": [FINALIZER]},
        "spec": {"controlPlaneRef": {"name": "cp"}},
    }
    try:
        api.define(lax)
        made = api.request("POST", path, order)
        assert made.ok, made.message
        api.define(definition)
        refused = api.request("POST", path, {**order, "metadata": {"name": "b" * 64}}, dryRun="All")
        assert refused.code == 422, "the rules are back"

        deleting = api.request("DELETE", f"{path}/{name}")
        assert deleting.body["metadata"]["deletionTimestamp"]
        status = {"status": {"observedGeneration": 1}}
        assert api.request("PATCH", f"{path}/{name}/status", status, content="application/merge-patch+json").ok
        live = api.request("GET", f"{path}/{name}").body
        del live["metadata"]["finalizers"]
        released = api.request("PUT", f"{path}/{name}", live)
        assert released.ok, released.message
        assert api.request("GET", f"{path}/{name}").code == 404
    finally:
        api.request("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/keystoneprojects.{group}")
