"""What the charts make of values: pods that the programs can start with, and a sentence for what they cannot."""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.parts import operator
from tests.chart.helm import ACCESS, NEEDED, PRODUCT, Helm, Object, merged, named, variables
from watcher.settings import WatcherSettings
from worker.settings import PREFIX, ConnectionSettings, WorkerSettings, load

pytestmark = [pytest.mark.real, pytest.mark.timeout(2400)]

EVERYTHING: Object = {
    "image": {"repository": "registry.example/c5c3-orders", "digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "pull"}],
    "temporal": {
        "address": "orders.tmprl.cloud:7233",
        "namespace": "orders.acct",
        "taskQueue": "other",
        "tls": {
            "enabled": True,
            "caSecretName": "temporal-ca",
            "clientSecretName": "temporal-client",
            "serverName": "frontend",
        },
        "apiKey": {"secretName": "temporal-key", "key": "key"},
    },
    "logging": {"level": "debug"},
    "otlp": {"endpoint": "http://collector.telemetry:4318"},
    "metrics": {"port": 9090},
    "leaderElection": {"enabled": False},
    "worker": {
        "replicas": 3,
        "settings": {
            "maxConcurrentActivities": 100,
            "maxConcurrentWorkflowTasks": 20,
            "maxCachedWorkflows": 100000,
            "gracefulShutdownSeconds": 90,
            "serveBesideReference": True,
            "referenceNamespace": "reference",
        },
        "versioning": {"deploymentName": "c5c3-orders", "buildId": "b1"},
        "openBaoTokenAudience": "openbao",
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
    },
    "watcher": {
        "settings": {"ringsPerSecond": 20.5, "coldRingsPerSecond": 0.1, "ringConcurrency": 5},
        "extraEnv": [{"name": "SSL_CERT_FILE", "value": "/etc/authorities/all.pem"}],
        "extraVolumes": [{"name": "authorities", "configMap": {"name": "authorities"}}],
        "extraVolumeMounts": [{"name": "authorities", "mountPath": "/etc/authorities", "readOnly": True}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
    },
    "networkPolicy": {"dnsPorts": [5353], "extraEgressPorts": [3128], "metricsFrom": [{"podSelector": {}}]},
    "monitoring": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "runbookUrl": "https://docs.example/runbook.html"},
        "grafanaDashboard": {"enabled": True},
    },
}
LEAST: Object = {
    "uninstallGuard": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "crds": {"install": False},
    "rbac": {"create": False},
    "serviceAccount": {"create": False, "name": "mine"},
    "clustersNamespace": {"create": False, "name": "clusters"},
    **{program: {"podDisruptionBudget": {"enabled": False}} for program in ("worker", "watcher")},
}
ENCRYPTED: Object = {"encryption": {"secretName": "payload-keys", "activeKey": "k2"}}
NEVER = {
    "temporal_api_key": "whoever reads Deployments would read it; a Secret's file holds it",
    "kubeconfig": "the pod's ServiceAccount is what rights and OpenBao are bound to",
}
"""Settings that no value sets."""
SETS = {"needed": NEEDED, "everything": EVERYTHING, "least": merged(NEEDED, LEAST)}
SOME: Object = {"assignedNamespaces": ["team-a", "team-b"], "keystoneNamespaces": ["openstack"]}


@pytest.mark.parametrize("values", SETS.values(), ids=SETS)
def test_helm_lints_it(helm: Helm, values: Object) -> None:
    helm.run("lint", "--strict", PRODUCT, values=values)


def test_helm_lints_the_chart_of_target_clusters(helm: Helm) -> None:
    helm.run("lint", "--strict", ACCESS, values=SOME)


@pytest.mark.parametrize("values", SETS.values(), ids=SETS)
def test_the_programs_take_every_variable(
    helm: Helm, values: Object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment of each pod, read by the program's own settings; where it names a file, there is one."""
    rendered = named(helm.render(PRODUCT, values))
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    for program, settings in (("worker", WorkerSettings), ("watcher", WatcherSettings)):
        with pytest.MonkeyPatch.context() as environment:
            deployment = rendered["Deployment", f"c5c3-orders-{program}"]
            for name, value in variables(deployment).items():
                file = tmp_path / value.replace("/", "-")
                if is_file := value.startswith("/etc/c5c3/"):
                    assert any(value.startswith(mount + "/") for mount in secrets_of(deployment))
                    file.write_text("text")
                environment.setenv(name, str(file) if is_file else value)
            loaded = load(settings)
        said = merged(yaml.safe_load((PRODUCT / "values.yaml").read_text()), values)
        assert settled(loaded) == wanted(said, program)


def secrets_of(deployment: Object) -> dict[str, str]:
    """Where Secrets are laid down in the pod, and which; a token by its audience."""
    spec = deployment["spec"]["template"]["spec"]
    by_volume = {each["name"]: each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each}
    tokens = [each for each in spec["volumes"] if "projected" in each]
    by_volume |= {
        each["name"]: source["serviceAccountToken"]["audience"]
        for each in tokens
        for source in each["projected"]["sources"]
    }
    mounts = spec["containers"][0]["volumeMounts"]
    return {each["mountPath"]: by_volume[each["name"]] for each in mounts if each["name"] in by_volume}


def settled(loaded: ConnectionSettings) -> dict[str, Any]:
    """What the program was told, files by whether they were."""
    return {
        name: value if not isinstance(value, Path) else True
        for name, value in loaded.model_dump().items()
        if name != "service_account_token_file"
    }


def wanted(values: Object, program: str) -> dict[str, Any]:
    """The same, read off the values by hand; what they do not say is the program's default."""
    settings = WorkerSettings if program == "worker" else WatcherSettings
    temporal, own = values["temporal"], values[program]["settings"]
    client = bool(temporal["tls"]["clientSecretName"]) or None
    found = {
        "temporal_address": temporal["address"],
        "temporal_namespace": temporal["namespace"],
        "task_queue": temporal["taskQueue"],
        "temporal_tls": temporal["tls"]["enabled"],
        "temporal_tls_ca": bool(temporal["tls"]["caSecretName"]) or None,
        "temporal_tls_cert": client,
        "temporal_tls_key": client,
        "temporal_tls_server_name": temporal["tls"]["serverName"] or None,
        "temporal_api_key_file": bool(temporal["apiKey"]["secretName"]) or None,
        "log_level": values["logging"]["level"],
        "otlp_endpoint": values["otlp"]["endpoint"] or None,
        "http_address": f":{values['metrics']['port']}",
        "clusters_namespace": values["clustersNamespace"]["name"],
        "operator_namespace": "c5c3-system",
    }
    if program == "worker":
        versioning = values["worker"]["versioning"]
        found |= {"deployment_name": versioning["deploymentName"] or None, "build_id": versioning["buildId"] or None}
        names = {
            "max_concurrent_activities": "maxConcurrentActivities",
            "max_concurrent_workflow_tasks": "maxConcurrentWorkflowTasks",
            "max_cached_workflows": "maxCachedWorkflows",
            "graceful_shutdown_seconds": "gracefulShutdownSeconds",
            "serve_beside_reference": "serveBesideReference",
            "reference_namespace": "referenceNamespace",
        }
    else:
        found |= {"leader_election": values["leaderElection"]["enabled"]}
        names = {
            "rings_per_second": "ringsPerSecond",
            "cold_rings_per_second": "coldRingsPerSecond",
            "ring_concurrency": "ringConcurrency",
        }
    found |= {field: own[name] for field, name in names.items() if name in own}
    defaults = {name: field.default for name, field in settings.model_fields.items()}
    return {name: found.get(name, default) for name, default in defaults.items() if "token_file" not in name}


def test_every_setting_can_be_set_but_those_that_must_not(helm: Helm) -> None:
    rendered = named(helm.render(PRODUCT, merged(EVERYTHING, ENCRYPTED)))
    for program, settings in (("worker", WorkerSettings), ("watcher", WatcherSettings)):
        told = variables(rendered["Deployment", f"c5c3-orders-{program}"])
        ours = {name.removeprefix(PREFIX).lower() for name in told if name.startswith(PREFIX)}
        assert ours == settings.model_fields.keys() - NEVER.keys()


def test_a_token_for_openbao_alone_is_asked_for_by_its_audience(helm: Helm) -> None:
    deployment = named(helm.render(PRODUCT, EVERYTHING))["Deployment", "c5c3-orders-worker"]
    folder, file = variables(deployment)["C5C3_SERVICE_ACCOUNT_TOKEN_FILE"].rsplit("/", 1)
    assert secrets_of(deployment)[folder] == "openbao"
    (volume,) = [each for each in deployment["spec"]["template"]["spec"]["volumes"] if "projected" in each]
    assert volume["projected"]["sources"][0]["serviceAccountToken"]["path"] == file


def test_the_guard_runs_where_the_watcher_does_and_reaches_what_it_reaches(helm: Helm) -> None:
    rendered = named(helm.render(PRODUCT, EVERYTHING))
    guard = rendered["Job", "c5c3-orders-uninstall"]["spec"]["template"]["spec"]
    watcher = rendered["Deployment", "c5c3-orders-watcher"]["spec"]["template"]["spec"]
    for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert guard[key] == watcher[key]
    assert EVERYTHING["watcher"]["extraEnv"][0] in guard["containers"][0]["env"]
    assert EVERYTHING["watcher"]["extraVolumes"][0] in guard["volumes"]
    assert EVERYTHING["watcher"]["extraVolumeMounts"][0] in guard["containers"][0]["volumeMounts"]


def test_the_notes_say_how_to_go_on(helm: Helm, tmp_path: Path) -> None:
    """After a refused uninstall, to the very revision: without one Helm goes to the one before."""
    said = notes(helm, EVERYTHING, tmp_path / "versioned")
    assert "helm rollback c5c3-orders 1 --namespace c5c3-system" in said
    assert "set-current-version --namespace orders.acct --deployment-name c5c3-orders --build-id b1" in said
    assert "set-current-version" not in notes(helm, NEEDED, tmp_path / "plain")


def notes(helm: Helm, values: Object, folder: Path) -> str:
    """The chart's notes, which Helm shows to none but a cluster's: rendered as an object of a copy of the chart."""
    shutil.copytree(PRODUCT, folder)
    (folder / "templates" / "NOTES.txt").rename(folder / "notes")
    shown = '{{ tpl (.Files.Get "notes") . | quote }}'
    (folder / "templates" / "said.yaml").write_text(
        f"kind: ConfigMap\nmetadata: {{name: said}}\ndata: {{it: {shown}}}\n"
    )
    return str(named(helm.render(folder, values))["ConfigMap", "said"]["data"]["it"])


def test_keys_of_encryption_are_files_of_a_secret(helm: Helm) -> None:
    rendered = named(helm.render(PRODUCT, merged(NEEDED, ENCRYPTED)))
    for program in ("worker", "watcher"):
        deployment = rendered["Deployment", f"c5c3-orders-{program}"]
        told = variables(deployment)
        assert told["C5C3_PAYLOAD_KEY"] == "k2"
        assert secrets_of(deployment)[told["C5C3_PAYLOAD_KEYS_DIR"]] == "payload-keys"


def test_a_pod_writes_nowhere_but_to_memory_and_is_nobody(helm: Helm) -> None:
    rendered = helm.render(PRODUCT, EVERYTHING)
    pods = [one["spec"]["template"]["spec"] for one in rendered if one["kind"] in ("Deployment", "Job")]
    assert len(pods) == 3
    for pod in pods:
        (container,) = pod["containers"]
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        by_name = {volume["name"]: volume for volume in pod["volumes"]}
        writable = [mount for mount in container["volumeMounts"] if not mount.get("readOnly")]
        assert [mount["mountPath"] for mount in writable] == ["/dev/shm"]
        assert by_name[writable[0]["name"]]["emptyDir"]["medium"] == "Memory"
        assert container["resources"]["limits"]["memory"]


def test_a_worker_has_longer_to_end_than_its_steps(helm: Helm) -> None:
    for values, least in ((NEEDED, 30), (EVERYTHING, 90)):
        pod = named(helm.render(PRODUCT, values))["Deployment", "c5c3-orders-worker"]["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] > least + 10  # what a cancelled step may take after it


def test_what_is_rendered_by_default_is_what_the_local_stack_applies(helm: Helm) -> None:
    """But for labels and annotations of Helm's, and the namespace that Helm makes itself."""
    rendered = named(helm.render(PRODUCT, NEEDED))
    applied = named([one for file in operator.manifests("management") for one in yaml.safe_load_all(file.read_text())])
    applied.pop(("Namespace", "c5c3-system"))
    assert {key: bare(rendered[key]) for key in applied} == {key: bare(one) for key, one in applied.items()}
    theirs = {kind for kind, _ in applied} - {"Namespace"}
    assert {key for key in rendered if key[0] in theirs} == applied.keys() - {("Namespace", "c5c3-clusters")}


def test_the_same_holds_on_a_target_cluster_with_rights_in_every_namespace(helm: Helm) -> None:
    rendered = named(helm.render(ACCESS, {"everyNamespace": True, "tokenSecret": {"create": False}}))
    applied = named([one for file in operator.manifests("target") for one in yaml.safe_load_all(file.read_text())])
    applied.pop(("Namespace", "c5c3-system"))
    applied = {key: one for key, one in applied.items() if "Policy" not in key[0]}
    assert {key: bare(one) for key, one in rendered.items()} == {key: bare(one) for key, one in applied.items()}


def bare(one: Object) -> Object:
    """Without what Helm adds."""
    meta = {key: value for key, value in one["metadata"].items() if key not in ("labels", "annotations")}
    return {**one, "metadata": meta}


def test_definitions_and_registrations_stay_after_an_uninstall(helm: Helm) -> None:
    for rendered in (helm.render(PRODUCT, NEEDED), helm.render(ACCESS, SOME)):
        lasting = re.compile("CustomResourceDefinition|Namespace|ValidatingAdmissionPolicy(Binding)?")
        kept = [one for one in rendered if lasting.fullmatch(one["kind"])]
        assert len(kept) >= 4
        for one in kept:
            assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_rights_on_a_target_cluster_are_bound_where_orders_are_served(helm: Helm) -> None:
    rendered = helm.render(ACCESS, SOME)
    assert not [one for one in rendered if one["kind"] == "ClusterRoleBinding"]
    bound = {(one["metadata"]["namespace"], one["roleRef"]["name"]) for one in rendered if one["kind"] == "RoleBinding"}
    assert bound == {
        *((namespace, "c5c3-operator") for namespace in ("team-a", "team-b", "openstack")),
        ("openstack", "c5c3-operator-keystone"),
    }
    for one in rendered:
        if one["kind"] == "RoleBinding":
            assert one["subjects"] == [{"kind": "ServiceAccount", "name": "c5c3-operator", "namespace": "c5c3-system"}]


def test_other_names_are_other_names_everywhere(helm: Helm) -> None:
    values = merged(NEEDED, {"serviceAccount": {"name": "mine"}, "clustersNamespace": {"name": "clusters"}})
    rendered = helm.render(PRODUCT, values, namespace="elsewhere")
    text = yaml.safe_dump([one for one in rendered if one["kind"] != "CustomResourceDefinition"])
    assert "c5c3-system" not in text
    assert "c5c3-clusters" not in text
    subjects = [subject for one in rendered for subject in one.get("subjects") or ()]
    assert len(subjects) == 2
    assert all(subject["name"] == "mine" and subject["namespace"] == "elsewhere" for subject in subjects)


def test_egress_is_open_to_what_the_values_name(helm: Helm) -> None:
    policy = named(helm.render(PRODUCT, EVERYTHING))["NetworkPolicy", "c5c3-orders"]["spec"]
    ports = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert ports == {5353, 443, 6443, 8200, 7233, 4318, 3128}
    assert policy["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}], "from": [{"podSelector": {}}]}]


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
def test_a_collector_without_a_port_is_reached_by_its_scheme(helm: Helm, scheme: str, port: int) -> None:
    """Also where no API server listens on 443; and no port is said twice."""
    values = {"otlp": {"endpoint": f"{scheme}://collector/"}, "networkPolicy": {"apiServerPorts": [6443, 7233]}}
    policy = named(helm.render(PRODUCT, merged(NEEDED, values)))["NetworkPolicy", "c5c3-orders"]["spec"]
    assert sorted(each["port"] for each in policy["egress"][1]["ports"]) == sorted([6443, 7233, 8200, port])


def test_rules_and_dashboard_are_the_files(helm: Helm) -> None:
    rendered = named(helm.render(PRODUCT, EVERYTHING))
    rules = rendered["PrometheusRule", "c5c3-orders"]["spec"]
    alerts = (PRODUCT / "files" / "alerts.yaml").read_text()
    assert rules == yaml.safe_load(alerts.replace("docs/runbook.md#", "https://docs.example/runbook.html#"))
    unchanged = merged(NEEDED, {"monitoring": {"prometheusRule": {"enabled": True}}})
    assert named(helm.render(PRODUCT, unchanged))["PrometheusRule", "c5c3-orders"]["spec"] == yaml.safe_load(alerts)
    dashboard = rendered["ConfigMap", "c5c3-orders-dashboard"]["data"]["c5c3-orders.json"]
    assert dashboard == (PRODUCT / "files" / "dashboard.json").read_text()
    monitor = rendered["ServiceMonitor", "c5c3-orders"]["spec"]
    services = [one for (kind, _), one in rendered.items() if kind == "Service"]
    assert len(services) == 2
    for service in services:
        assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()


WRONG = {
    "a typo": ({"worker": {"replica": 3}}, "additional properties 'replica' not allowed"),
    "a typo in a setting": ({"watcher": {"settings": {"ringPerSecond": 3}}}, "'ringPerSecond' not allowed"),
    "a wrong type": ({"worker": {"replicas": "three"}}, "got string, want integer"),
    "too little": ({"worker": {"settings": {"gracefulShutdownSeconds": 5}}}, "exclusiveMinimum: got 5, want 25"),
    "no such level": ({"logging": {"level": "loud"}}, "value must be one of 'debug', 'info', 'warning', 'error'"),
    "no address": ({"temporal": {"address": "http://temporal"}}, "'http://temporal' does not match pattern"),
    "a setting past the values": ({"worker": {"extraEnv": [{"name": "C5C3_LOG_LEVEL"}]}}, "'not' failed"),
    "no address at all": ({"temporal": {"address": ""}}, "Set temporal.address"),
    "no image": ({"image": {"repository": ""}}, "Set image.repository"),
    "half a version": ({"worker": {"versioning": {"buildId": "b1"}}}, "belong together: set both or neither"),
    "nothing at all": ({"worker": {"versioning": None}}, "missing property 'versioning'"),
    "a label that selects": (
        {"worker": {"podLabels": {"app.kubernetes.io/name": "x"}}},
        "app.kubernetes.io~1name': 'not' failed",
    ),
    "half a key": ({"encryption": {"secretName": "keys"}}, "belong together: set both or neither"),
}


@pytest.mark.parametrize(("values", "sentence"), WRONG.values(), ids=WRONG)
def test_bad_values_are_refused_with_a_sentence(helm: Helm, values: Object, sentence: str) -> None:
    assert sentence in helm.refusal("template", PRODUCT, values=merged(NEEDED, values))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "Set assignedNamespaces"),
        ({"everyNamespace": True, "assignedNamespaces": ["team-a"]}, "Set assignedNamespaces"),
        ({"assignedNamespace": ["team-a"]}, "'assignedNamespace' not allowed"),
        ({"assignedNamespaces": "team-a"}, "got string, want array"),
        ({"assignedNamespaces": ["Team A"]}, "does not match pattern"),
    ],
)
def test_bad_values_of_a_target_cluster_are_refused_with_a_sentence(helm: Helm, values: Object, sentence: str) -> None:
    assert sentence in helm.refusal("template", ACCESS, values=values)


@pytest.mark.parametrize(("chart", "values"), [(PRODUCT, EVERYTHING), (ACCESS, SOME)], ids=["product", "access"])
def test_a_packaged_chart_is_whole(helm: Helm, chart: Path, values: Object, tmp_path: Path) -> None:
    """No link is left in it, nothing that it does not need, and it renders the same."""
    helm.run("package", chart, "--destination", tmp_path)
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        assert not [member.name for member in archive if not member.isfile()]
        assert not [member.name for member in archive if "upstream" in member.name]
    assert helm.render(package, values) == helm.render(chart, values)


@pytest.mark.parametrize("missing", ["files/alerts.yaml", "files/dashboard.json", "files/rights.yaml", "files/crds"])
def test_a_chart_that_lacks_a_file_says_so(helm: Helm, missing: str, tmp_path: Path) -> None:
    """A folder that was copied without what its links point to would else render half a product."""
    helm.run("package", PRODUCT, "--destination", tmp_path)
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        archive.extractall(tmp_path, [m for m in archive if f"c5c3-orders/{missing}" not in m.name], filter="data")
    assert f"the chart has no {missing}: package it anew" in helm.refusal(
        "template", tmp_path / "c5c3-orders", values=EVERYTHING
    )
