"""Plugs the product together: which workflows and activities one worker serves, and how it runs them.

The sandbox stays on for workflow code. What carries none is imported once and passed through, named module by module:
Temporal matches by prefix, so naming a package would switch the sandbox off for the workflows inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Worker, WorkerDeploymentConfig
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.clusters import Clusters
from activities.keystoneproject import KeystoneProjects
from activities.keystoneservice import KeystoneServices
from activities.mariadbdatabase import MariaDBDatabases
from activities.openbao import OpenBao
from activities.orders import Orders
from worker.release import version
from worker.settings import WorkerSettings
from workflows.keystoneproject.teardown import KeystoneProjectTeardown
from workflows.keystoneproject.workflow import KeystoneProject
from workflows.keystoneservice.teardown import KeystoneServiceTeardown
from workflows.keystoneservice.workflow import KeystoneService
from workflows.mariadbdatabase.teardown import MariaDBDatabaseTeardown
from workflows.mariadbdatabase.workflow import MariaDBDatabase

PURE = (
    "workflows.api",
    "workflows.scaffold.carry",
    "workflows.scaffold.child",
    "workflows.scaffold.conditions",
    "workflows.scaffold.gated",
    "workflows.scaffold.gates",
    "workflows.scaffold.korc",
    "workflows.scaffold.naming",
    "workflows.scaffold.order",
    "workflows.scaffold.ownership",
    "workflows.scaffold.removal",
    "workflows.scaffold.search",
    "workflows.scaffold.steps",
    "workflows.scaffold.times",
    "workflows.scaffold.verdict",
    "workflows.keystoneproject.children",
    "workflows.keystoneproject.judge",
    "workflows.keystoneproject.reasons",
    "workflows.keystoneservice.account",
    "workflows.keystoneservice.blocks",
    "workflows.keystoneservice.catalog",
    "workflows.keystoneservice.children",
    "workflows.keystoneservice.delivery",
    "workflows.keystoneservice.gates",
    "workflows.keystoneservice.identity",
    "workflows.keystoneservice.publish",
    "workflows.keystoneservice.reasons",
    "workflows.keystoneservice.sweep",
    "workflows.mariadbdatabase.children",
    "workflows.mariadbdatabase.delivery",
    "workflows.mariadbdatabase.gates",
    "workflows.mariadbdatabase.provision",
    "workflows.mariadbdatabase.reasons",
    "workflows.mariadbdatabase.removal",
    "workflows.mariadbdatabase.schema",
)
"""Modules without workflow code, passed through the sandbox. A test compares the list with the sources."""


WORKFLOWS: tuple[type, ...] = (
    KeystoneProject,
    KeystoneProjectTeardown,
    KeystoneService,
    KeystoneServiceTeardown,
    MariaDBDatabase,
    MariaDBDatabaseTeardown,
)


def activities_over(clusters: Clusters, openbao: OpenBao) -> list[Callable[..., Any]]:
    """Every step of every kind, over these clusters and this OpenBao."""
    projects, services, databases = (
        KeystoneProjects(clusters),
        KeystoneServices(clusters),
        MariaDBDatabases(clusters, openbao),
    )
    orders = Orders(clusters, {each.kind.kind: each for each in (projects, services, databases)})
    return [
        orders.admit,
        orders.examine,
        orders.report,
        orders.release,
        orders.settle,
        projects.provision_project,
        projects.remove_project,
        services.provision_catalog,
        services.accounts.provision_account,
        services.accounts.publish_account,
        services.accounts.nudge_account,
        services.remove_registration,
        databases.provision_database,
        databases.deliver_database,
        databases.remove_database,
    ]


def build(
    client: Client,
    settings: WorkerSettings,
    workflows: Sequence[type],
    activities: Sequence[Callable[..., Any]],
) -> Worker:
    """A worker that is not running yet. Tracing comes with the client, failure types with each workflow."""
    return Worker(
        client,
        task_queue=settings.task_queue,
        workflows=workflows,
        activities=activities,
        workflow_runner=runner(),
        max_cached_workflows=settings.max_cached_workflows,
        max_concurrent_workflow_tasks=settings.max_concurrent_workflow_tasks,
        max_concurrent_activities=settings.max_concurrent_activities,
        graceful_shutdown_timeout=timedelta(seconds=settings.graceful_shutdown_seconds),
        deployment_config=_version(settings),
    )


def runner() -> SandboxedWorkflowRunner:
    """How workflow code is run, here and where histories are replayed."""
    return SandboxedWorkflowRunner(SandboxRestrictions.default.with_passthrough_modules(*PURE))


def _version(settings: WorkerSettings) -> WorkerDeploymentConfig:
    """What runs here, by name. Without a deployment's name it only says so: any worker then serves any order.

    With one, running orders move to the newest version by themselves; `workflow.patched` guards what must not change.
    (Told nothing, Temporal would hash every module at each start, to find a name by itself.)
    """
    versioned = settings.deployment_name is not None and settings.build_id is not None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(settings.deployment_name or "c5c3-orders", settings.build_id or version()),
        use_worker_versioning=versioned,
        default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE if versioned else VersioningBehavior.UNSPECIFIED,
    )
