"""Everything about one order, put together: what it says, what its children say, what its run did and is doing.

A part that cannot be read is a sentence in `unread`, and the others are shown all the same.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from rich.console import Console
from temporalio.service import RPCError

from activities.cluster import CONTROL_PLANE, ORDER_KINDS, Cluster, Object
from activities.clusters import BadKubeconfig, Clusters, Unregistered
from activities.errors import ClusterError
from worker.cli import children, orders, runs, show
from worker.cli.children import Child
from worker.cli.orders import Order, age
from worker.cli.reach import MANAGEMENT, Reach
from worker.cli.remedies import remedy
from worker.cli.runs import Run, Step
from worker.temporal import TemporalUnusable
from workflows.api.controlplane import ControlPlane
from workflows.api.meta import Model
from workflows.scaffold.order import OrderRef


class Said(Model):
    """One condition, and what would help when it is not True."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime | None = None
    stale: bool = False
    meaning: str = ""
    help: str = ""


class Explained(Model):
    """What `explain` found. `order` is None when there is none, though a run or children may be left."""

    workflow_id: str
    order: Order | None = None
    conditions: tuple[Said, ...] = ()
    children: tuple[Child, ...] = ()
    run: Run | None = None
    unread: tuple[str, ...] = ()


async def explained(reach: Reach, ref: OrderRef) -> Explained:
    """Raises what reaching the management cluster raises; the rest is told in the answer."""
    clusters = await reach.clusters()
    unread: list[str] = []
    home: Cluster | None = None
    raw: Object | None = None
    try:
        home = await clusters.get(ref.cluster)
        served = await orders.served_in(clusters, ref.cluster)
        if served == (None,) or ref.namespace in served:
            raw = await home.get(ORDER_KINDS[ref.kind], ref.namespace, ref.name)
        else:
            named = ", ".join(map(str, served))
            unread.append(f"{ref.key}: cluster {ref.cluster} is registered for orders in {named} alone")
    except (Unregistered, BadKubeconfig, ClusterError) as error:
        if not ref.cluster:
            raise
        unread.append(str(error))
    (found, unreadable), run = await asyncio.gather(_children(clusters, home, ref, raw), _run(reach, ref, unread))
    order = orders.order_of(ORDER_KINDS[ref.kind], ref.cluster or MANAGEMENT, raw) if raw else None
    return Explained(
        workflow_id=ref.workflow_id,
        order=order,
        conditions=_conditions(ref.kind, raw) if raw else (),
        children=tuple(found),
        run=run,
        unread=(*unread, *unreadable),
    )


def _conditions(kind: str, raw: Object) -> tuple[Said, ...]:
    generation = raw["metadata"].get("generation") or 0
    said = []
    for each in orders.conditions_of(raw):
        row = remedy(kind, each.type, each.reason) if each.status != "True" else None
        said.append(
            Said(
                type=each.type,
                status=each.status,
                reason=each.reason,
                message=each.message,
                since=each.last_transition_time,
                stale=each.observed_generation is not None and each.observed_generation != generation,
                meaning=row.meaning if row else "",
                help=row.help if row else "",
            )
        )
    return tuple(said)


async def _children(
    clusters: Clusters, home: Cluster | None, ref: OrderRef, raw: Object | None
) -> tuple[list[Child], list[str]]:
    management = clusters.management
    unread: list[str] = []
    keystone, planes = management, []
    if raw is not None:
        plane_ref = (raw.get("spec") or {}).get("controlPlaneRef") or {}
        namespace = plane_ref.get("namespace") or ref.namespace
        planes = [namespace]
        try:
            live = await management.get(CONTROL_PLANE, namespace, plane_ref.get("name") or "-")
            if live is not None:
                plane = ControlPlane.model_validate(live)
                planes.append(plane.keystone_namespace)
                keystone = await clusters.get(plane.keystone_cluster) if ref.kind == "MariaDBDatabase" else management
        except (Unregistered, BadKubeconfig, ClusterError) as error:
            unread.append(str(error))
    uid = raw["metadata"]["uid"] if raw else ""
    looked, unreadable = await children.found(
        children.places(management, home or management, keystone, ref, planes), ref, uid
    )
    return looked, [*unread, *unreadable]


async def _run(reach: Reach, ref: OrderRef, unread: list[str]) -> Run | None:
    try:
        run = await runs.run_of(await reach.temporal(), ref.workflow_id)
    except (TemporalUnusable, RPCError) as error:
        unread.append(str(error))
        return None
    return run and run.model_copy(update={"link": reach.link(ref.workflow_id, run.run_id)})


def shown(out: Console, found: Explained) -> None:
    """The page for people: headings, and a table under each."""
    _head(out, found)
    if found.conditions:
        _section(out, "Conditions")
        table = show.grid("", "", "", last="", fold=True)
        for each in found.conditions:
            words = f"{each.reason}: {each.message}" + (" (said of an earlier generation)" if each.stale else "")
            table.add_row(*map(show.said, (each.type, each.status, age(each.since), words)))
        show.put(out, table)
    _help(out, found)
    if found.children:
        _section(out, "Children")
        table = show.grid("", "", "", last="", fold=True)
        for child in found.children:
            place = f"{child.namespace}/{child.name}" + (f"@{child.cluster}" if child.cluster != MANAGEMENT else "")
            words = "; ".join(each for each in (child.words, child.id and f"id {child.id}") if each)
            state = show.said(child.state, _colour(child.state))
            table.add_row(show.said(child.kind), state, show.said(age(child.created)), show.beside(out, place, words))
        show.put(out, table)
    _shown_run(out, found.run)
    for unread in found.unread:
        show.complain(f"could not be read: {unread}")


def _head(out: Console, found: Explained) -> None:
    order = found.order
    if order is None:
        none = "there is no such order" if not found.unread else "whether there is such an order could not be seen"
        rest = " (its children are below)" if found.children else ""
        out.print(show.said(f"{found.workflow_id}: {none}{rest}"))
        return
    state = "Ready" if order.ready else "not Ready"
    if order.deleting:
        state = f"being deleted for {age(order.deleting)}"
    out.print(show.said(f"{found.workflow_id} is {state}: {order.reason}", "bold"))
    out.print(show.said(f"plane {order.control_plane}, ordered {age(order.created)} ago, on {order.cluster}"))


def _help(out: Console, found: Explained) -> None:
    """What each reason means and what would help, once. Ready only sums the others up, unless it is alone."""
    known = {each.reason: each for each in found.conditions if each.meaning}
    rows = {reason: each for reason, each in known.items() if each.type != "Ready"} or known
    if rows:
        _section(out, "What would help")
        table = show.grid("", last="", fold=True)
        for reason, each in rows.items():
            table.add_row(show.said(reason), show.said(f"{each.meaning} {each.help}".replace("`", "'")))
        show.put(out, table)


def _shown_run(out: Console, run: Run | None) -> None:
    if run is None:
        _section(out, "Run")
        out.print("none in Temporal, or Temporal does not answer")
        return
    _section(out, f"Run ({run.workflow_type}, {run.status.lower()} for {age(run.started)})")
    if run.link:
        out.print(run.link, soft_wrap=True)
    for step in run.pending:
        again = f", again in {max(0, round((step.next_try - _now(step)).total_seconds()))} s" if step.next_try else ""
        doing = "waits" if step.name == "settle" else f"is at {step.name}"
        text = f"{doing} for {age(step.at)} (try {step.attempts}{again}): {step.outcome or step.summary}"
        out.print(show.said(text), soft_wrap=False)
    if not run.pending and run.status == "Running":
        out.print("waits for a ring: nothing is left to do until something it depends on moves")
    for one in run.passes:
        _section(out, f"Pass {age(one.at)} ago, because of {', '.join(one.causes) or 'its own look'}")
        table = show.grid("", "", "", last="", fold=True)
        for step in one.steps:
            tries = f"{step.attempts} tries" if step.attempts > 1 else ""
            took = "goes on" if step.seconds is None else f"{step.seconds:.2f} s"
            style = "red" if step.failed else ""
            table.add_row(show.said(f"{step.at:%H:%M:%S}Z {step.name}"), show.said(took), show.said(tries),
                          show.said(_result(step), style))  # fmt: skip
        show.put(out, table)


def _result(step: Step) -> str:
    if step.name == "settle":
        return f"{step.summary}{': ' if step.outcome else ''}{step.outcome}"
    return step.outcome


def _now(step: Step) -> datetime:
    return datetime.now(step.at.tzinfo)


def _section(out: Console, title: str) -> None:
    out.print()
    out.print(show.said(title, "bold"))


def _colour(state: str) -> str:
    return {"ready": "green", "there": "green", "failed": "red", "deleting": "yellow", "waiting": "yellow"}[state]
