"""All checks, side by side where they do not need each other, and the page that shows them."""

from __future__ import annotations

import asyncio

from rich.console import Console
from temporalio.client import Client
from temporalio.service import RPCError

from activities.cluster import ORDER_KINDS
from activities.clusters import BadKubeconfig
from activities.errors import ClusterError
from worker.cli import orders, show
from worker.cli.doctor import leftovers, management, planes, rights, targets, temporal
from worker.cli.doctor.check import Check, Diagnosis, State, asked, fail, ok
from worker.cli.orders import Listed
from worker.cli.reach import MANAGEMENT, Reach
from worker.temporal import TemporalUnusable


async def examined(reach: Reach, account: str, stuck_after: float) -> Diagnosis:
    """Every check. The cluster's are left out when the cluster cannot be reached, Temporal's likewise.

    account  the product's ServiceAccount, empty when nobody said
    """
    (client, served), (found, checks) = await asyncio.gather(_temporal(reach), _clusters(reach, account, stuck_after))
    if client is not None and found is not None:
        try:
            served += await temporal.runs_of(client, reach.settings.task_queue, found)
        except RPCError as error:
            served.append(fail("temporal", f"Temporal does not list the runs: {error.message}"))
    every = [*served, *checks]
    return Diagnosis(healthy=all(each.state is not State.FAIL for each in every), checks=tuple(every))


async def _temporal(reach: Reach) -> tuple[Client | None, list[Check]]:
    try:
        client = await reach.temporal()
        return client, await temporal.checks(client, reach.settings)
    except TemporalUnusable as error:
        return None, [fail("temporal", str(error), "see --temporal-address, and that the server runs")]
    except RPCError as error:
        return None, [fail("temporal", f"Temporal does not say: {error.message}")]


async def _clusters(reach: Reach, account: str, stuck_after: float) -> tuple[Listed | None, list[Check]]:
    try:
        clusters = await reach.clusters()
        who = await rights.who(clusters.management)
    except (BadKubeconfig, ClusterError) as error:
        return None, [fail("management", str(error), "see --kubeconfig and --context, and that the API server answers")]
    every = await asyncio.gather(
        asked("management", management.checks(clusters.management, reach.settings)),
        asked("rights", rights.checks(clusters.management, reach.settings.operator_namespace, account, who)),
        asked("targets", targets.checks(clusters)),
        asked("planes", planes.checks(clusters)),
        asked("orders", leftovers.children(clusters)),
    )
    found = await orders.listed(clusters, list(ORDER_KINDS.values()), None, "all")
    checks = [ok("management", f"the API server answers, to {who}"), *(check for one in every for check in one)]
    for each in found.unread:
        # A target cluster that does not answer has its own line already.
        if each.cluster == MANAGEMENT:
            checks.append(fail("orders", f"{each.what} could not be read: {each.error}"))
    return found, [*checks, *leftovers.stuck(found.orders, stuck_after)]


def shown(out: Console, found: Diagnosis) -> None:
    """A line a check, what failed last, so that it is what a person sees first above the prompt."""
    table = show.grid("", "", last="", fold=True)
    for check in sorted(found.checks, key=lambda each: [*State].index(each.state)):
        text = show.said(check.text)
        if check.remedy:
            text.append(f"\n  -> {show.plain(check.remedy)}", style="bold")
        table.add_row(show.said(check.state.value), show.said(check.area), text)
    show.put(out, table)
    counts = {state: sum(each.state is state for each in found.checks) for state in State}
    out.print()
    out.print(", ".join(f"{number} {state.value}" for state, number in counts.items()))
