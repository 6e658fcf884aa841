"""The two metrics of the contracts (9.3), as Prometheus reads them: names, labels, buckets, and what is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.clusters import Clusters, connect_management
from activities.errors import ClusterError, Moved, at_boundary
from activities.instrument import instrument
from activities.keystoneproject import KeystoneProjects
from deploy.local import kube, pki
from deploy.local.part import Stack
from tests.conftest import Told
from workflows.api.controlplane import ControlPlane
from workflows.scaffold.order import OrderRef
from workflows.scaffold.steps import OrderSeen, Task

DURATION = "c5c3_operator_reconcile_duration_seconds"
ERRORS = "c5c3_operator_reconcile_errors"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(told: Told) -> Samples:
    """Every sample of the two metrics, by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(told.text())
        if family.name in (DURATION, ERRORS)
        for sample in family.samples
    }


class Change:
    """What was observed since it was made."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._before = read(told)

    def __call__(self, name: str, **labels: str) -> float:
        key = (name, frozenset(labels.items()))
        return read(self._told).get(key, 0.0) - self._before.get(key, 0.0)

    @property
    def errors(self) -> float:
        """Errors of all kinds."""
        after = sum(value for (name, _), value in read(self._told).items() if name == f"{ERRORS}_total")
        return after - sum(value for (name, _), value in self._before.items() if name == f"{ERRORS}_total")


def test_names_labels_and_buckets(told: Told) -> None:
    with pytest.raises(ValueError, match="broken"), instrument("KeystoneProjectProvision"):
        raise ValueError("broken")
    samples = read(told)
    labels: dict[str, set[str]] = {}
    for name, pairs in samples:
        labels.setdefault(name, set()).update(key for key, _ in pairs)
    assert labels == {
        f"{DURATION}_bucket": {"sub_reconciler", "le"},
        f"{DURATION}_count": {"sub_reconciler"},
        f"{DURATION}_sum": {"sub_reconciler"},
        f"{ERRORS}_total": {"sub_reconciler", "condition_type"},
    }
    bounds = {float(dict(pairs)["le"]) for name, pairs in samples if name == f"{DURATION}_bucket"}
    assert bounds == {0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, float("inf")}


@pytest.mark.parametrize(
    ("block", "condition_type"),
    [
        ("KeystoneServiceCatalog", "CatalogReady"),
        ("KeystoneServiceAccount", "AccountReady"),
        ("MariaDBDatabaseProvision", "DatabaseReady"),
        ("MariaDBDatabaseDelivery", "DeliveryReady"),
        ("KeystoneProjectProvision", "ProjectReady"),
        ("SomethingElse", "UNKNOWN"),
    ],
)
def test_an_error_is_counted_by_block_and_condition(told: Told, block: str, condition_type: str) -> None:
    change = Change(told)
    with pytest.raises(ApplicationError), at_boundary(), instrument(block):
        raise ClusterError("reading it", 503, "ServiceUnavailable", "")
    assert change(f"{ERRORS}_total", sub_reconciler=block, condition_type=condition_type) == 1
    assert change.errors == 1
    assert change(f"{DURATION}_count", sub_reconciler=block) == 1


@pytest.mark.parametrize(
    "error", [Moved("gone"), ApplicationError("waiting", category=ApplicationErrorCategory.BENIGN), None]
)
def test_what_is_expected_is_observed_and_not_counted(told: Told, error: Exception | None) -> None:
    change = Change(told)
    try:
        with instrument("KeystoneProjectProvision"):
            if error:
                raise error
    except (Moved, ApplicationError):
        pass
    assert change.errors == 0
    assert change(f"{DURATION}_count", sub_reconciler="KeystoneProjectProvision") == 1


REF = OrderRef(kind="KeystoneProject", cluster="", namespace="team-a", name="measured")
PLANE = ControlPlane.model_validate({
    "metadata": {"name": "cp", "namespace": "openstack", "uid": "u"},
    "spec": {"namespaceAssignments": [{"namespace": "team-a"}]},
})  # fmt: skip


def task_of(order: kube.Object) -> Task:
    meta = order["metadata"]
    seen = OrderSeen(
        uid=meta["uid"], generation=1, resource_version=meta["resourceVersion"], plane_key="openstack/cp",
        finalized=True, spec=order["spec"], status={},
    )  # fmt: skip
    return Task(ref=REF, order=seen, plane=PLANE)


async def order_with(stack: Stack, project: str) -> kube.Object:
    spec = {"controlPlaneRef": {"name": "cp", "namespace": "openstack"}, "projectName": project}
    path = "/apis/c5c3.io/v1alpha1/namespaces/team-a/keystoneprojects"
    body = {"apiVersion": "c5c3.io/v1alpha1", "kind": "KeystoneProject",
            "metadata": {"name": REF.name, "namespace": REF.namespace}, "spec": spec}  # fmt: skip
    await kube.apply(stack, "management", [body])
    return await kube.call(stack, "management", "GET", f"{path}/{REF.name}")


@pytest.mark.api
@pytest.mark.row("O01")
async def test_refusals_and_waits_of_a_real_step_are_no_errors_and_a_403_is(
    api_stack: Stack, told: Told, tmp_path: Path
) -> None:
    clusters = Clusters(await connect_management(kube.kubeconfig(api_stack, "management", "operator")), "c5c3-clusters")
    try:
        change = Change(told)
        steps = KeystoneProjects(clusters)
        # A step looks at the plane again before it writes.
        await kube.apply(api_stack, "management", [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openstack"}},
            {"apiVersion": "c5c3.io/v1alpha1", "kind": "ControlPlane",
             "metadata": {"name": "cp", "namespace": "openstack"},
             "spec": {"openStackRelease": "2025.2", "services": {"keystone": {"mode": "Managed"}},
                      "infrastructure": {"database": {"clusterRef": {"name": "mariadb"}}},
                      "namespaceAssignments": [{"namespace": "team-a"}]}},
        ])  # fmt: skip
        waiting = await steps.provision_project(task_of(await order_with(api_stack, "measured")))
        assert not waiting.verdicts[0].status
        refused = await steps.provision_project(task_of({**await order_with(api_stack, "measured"), "spec": {
            "controlPlaneRef": {"name": "cp", "namespace": "openstack"}, "projectName": "service-glance",
        }}))  # fmt: skip
        assert refused.verdicts[0].reason == "ProjectCollision"
        assert change.errors == 0
        assert change(f"{DURATION}_count", sub_reconciler="KeystoneProjectProvision") == 2
    finally:
        path = "/apis/c5c3.io/v1alpha1/namespaces/openstack/controlplanes/cp"
        await kube.call(api_stack, "management", "DELETE", path)
        await clusters.close()

    nobody = tmp_path / "nobody"
    pki.client_kubeconfig(api_stack, "management", "nobody", nobody)
    clusters = Clusters(await connect_management(nobody), "c5c3-clusters")
    try:
        with pytest.raises(ApplicationError, match="403"):
            await KeystoneProjects(clusters).provision_project(task_of(await order_with(api_stack, "measured")))
        assert change.errors == 1
        labels = {"sub_reconciler": "KeystoneProjectProvision", "condition_type": "ProjectReady"}
        assert change(f"{ERRORS}_total", **labels) == 1
    finally:
        await clusters.close()
