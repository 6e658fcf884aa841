"""The commands: what may be said to each, and the exit codes.

0  what was asked for is so
1  something is not: an order that is not there, a check that failed, a cluster or Temporal that does not answer
2  the command line, or a setting, says nothing that could be done
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click
from temporalio.service import RPCError

from activities.cluster import ORDER_KINDS, Kind
from activities.clusters import BadKubeconfig
from activities.errors import ClusterError
from worker.cli import act, explain, orders, show
from worker.cli.doctor import doctor
from worker.cli.doctor.rights import ACCOUNT
from worker.cli.reach import Reach, settings
from worker.settings import BadSettings
from worker.temporal import TemporalUnusable
from workflows.scaffold.order import OrderRef

Command = Callable[..., Awaitable[int]]
_SETTINGS = ("temporal_address", "temporal_namespace", "task_queue", "operator_namespace")
"""Options that stand above a setting of the same name."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """Orders of an OpenStack control plane: how they are, why, and what would help."""


def command(name: str, *more: Callable[[Any], Any]) -> Callable[[Command], click.Command]:
    """A command of the group: its own options, then those that say what is reached."""

    def made(function: Command) -> click.Command:
        @functools.wraps(function)
        def run(**given: Any) -> None:
            sys.exit(_ended(function, given))

        for option in reversed((*more, *_COMMON)):
            run = option(run)
        return main.command(name)(run)

    return made


def _ended(function: Command, given: dict[str, Any]) -> int:
    """Runs a command, and turns what can go wrong on the way into one sentence and an exit code."""
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    flags = {name: given.pop(name, None) for name in _SETTINGS}
    kubeconfig, context = given.pop("kubeconfig"), given.pop("context")
    try:
        reach = Reach(settings(**flags), kubeconfig, context, given.pop("temporal_ui") or "")
    except BadSettings as error:
        show.complain(str(error))
        return 2
    try:
        return asyncio.run(_within(reach, function, given))
    except (BadKubeconfig, ClusterError, TemporalUnusable, act.NotDone) as error:
        show.complain(f"error: {error}")
    except RPCError as error:
        show.complain(f"error: Temporal at {reach.settings.temporal_address}: {error.message}")
    return 1


async def _within(reach: Reach, function: Command, given: dict[str, Any]) -> int:
    async with reach:
        return await function(reach, **given)


class _Kind(click.ParamType[Kind]):
    """A kind of order, as people spell it."""

    name = "KIND"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Kind:
        found = orders.kind_named(value)
        return found or self.fail(f"{value!r} is no kind of order: there are {', '.join(ORDER_KINDS)}", param, ctx)


class _Place(click.ParamType[OrderRef]):
    """Where an order is: NAMESPACE/NAME, on a target cluster NAMESPACE/NAME@CLUSTER."""

    name = "NAMESPACE/NAME[@CLUSTER]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> OrderRef:
        try:
            return OrderRef.parse(f"?:{value}")
        except ValueError:
            self.fail(f"{value!r} is not {self.name}", param, ctx)


_COMMON = (
    click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="For people or machines."),
    click.option("--kubeconfig", type=click.Path(path_type=Path, dir_okay=False), help="Else KUBECONFIG's, or yours."),
    click.option("--context", help="The kubeconfig's context of the management cluster."),
    click.option(
        "--temporal-address",
        metavar="HOST:PORT",
        envvar=["C5C3_TEMPORAL_ADDRESS", "TEMPORAL_ADDRESS"],
        help="Else localhost:7233.",
    ),
    click.option(
        "--temporal-namespace",
        metavar="NAME",
        envvar=["C5C3_TEMPORAL_NAMESPACE", "TEMPORAL_NAMESPACE"],
        help="Else default.",
    ),
    click.option("--temporal-ui", metavar="URL", envvar="TEMPORAL_UI", help="Where the Temporal UI is, for links."),
    click.option("--task-queue", metavar="NAME", help="The workers' task queue, else c5c3-orders."),
)
_ORDER = (click.argument("kind", type=_Kind()), click.argument("place", type=_Place(), metavar=_Place.name))
_PATIENCE = click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait for the answer.")


@command(
    "list",
    click.option("--kind", type=_Kind(), help="Only orders of this kind."),
    click.option("-n", "--namespace", help="Only orders in this namespace."),
    click.option("-A", "--all-namespaces", is_flag=True, help="Orders in all namespaces (the default)."),
    click.option("--cluster", default="all", show_default=True, help="management, a target cluster's name, or all."),
    click.option("--not-ready", is_flag=True, help="Only orders that are not Ready."),
    click.option("--reason", help="Only orders of which some condition reads this reason."),
)
async def list_(
    reach: Reach,
    *,
    kind: Kind | None,
    namespace: str | None,
    all_namespaces: bool,
    cluster: str,
    not_ready: bool,
    reason: str | None,
    output: str,
) -> int:
    """List orders on the management cluster and all target clusters."""
    if namespace and all_namespaces:
        show.complain("--namespace and --all-namespaces exclude each other")
        return 2
    kinds = [kind] if kind else list(ORDER_KINDS.values())
    found = await orders.listed(await reach.clusters(), kinds, namespace, cluster)
    wanted = [
        order
        for order in found.orders
        if not (not_ready and order.ready) and reason in (None, order.reason, *order.reasons)
    ]
    found = found.model_copy(update={"orders": tuple(wanted)})
    if output == "json":
        show.json(found)
    else:
        show.orders(show.console(), found)
        for each in found.unread:
            show.complain(f"{each.cluster}: {each.what} could not be read: {each.error}")
    return 1 if found.unread else 0


@command("explain", *_ORDER)
async def explain_(reach: Reach, *, kind: Kind, place: OrderRef, output: str) -> int:
    """Say everything about one order: conditions, children, what it waits for, its last passes, what would help."""
    found = await explain.explained(reach, place.model_copy(update={"kind": kind.kind}))
    show.json(found) if output == "json" else explain.shown(show.console(), found)
    return 0 if found.order and not found.unread else 1


@command("resync", *_ORDER, _PATIENCE, click.option("--no-wait", is_flag=True, help="Ask for a pass, await none."))
async def resync(reach: Reach, *, kind: Kind, place: OrderRef, timeout: float, no_wait: bool, output: str) -> int:
    """Have a full pass made over an order now, and show what it found."""
    ref = place.model_copy(update={"kind": kind.kind})
    found = await act.resynced(reach, ref, None if no_wait else timeout)
    show.json(found) if output == "json" else act.show_pass(show.console(), found)
    return 0


@command("rotate", click.argument("place", type=_Place(), metavar="NAMESPACE/NAME"), _PATIENCE)
async def rotate(reach: Reach, *, place: OrderRef, timeout: float, output: str) -> int:
    """Give a KeystoneService's account a new password, and say whether it is delivered."""
    found = await act.rotated(reach, place.model_copy(update={"kind": "KeystoneService"}), timeout)
    show.json(found) if output == "json" else act.show_rotation(show.console(), found)
    return 0


@command(
    "doctor",
    click.option("--operator-namespace", metavar="NAME", help="The product's own namespace, else c5c3-system."),
    click.option("--service-account", metavar="NAME", default="", help=f"Its ServiceAccount there, else {ACCOUNT}."),
    click.option("--stuck-after", default=600.0, show_default=True, help="Seconds that a deletion may take."),
)
async def doctor_(reach: Reach, *, service_account: str, stuck_after: float, output: str) -> int:
    """Check every dependency and right of the product, and say the remedy. Reads only."""
    found = await doctor.examined(reach, service_account, stuck_after)
    show.json(found) if output == "json" else doctor.shown(show.console(), found)
    return 0 if found.healthy else 1


if __name__ == "__main__":
    main(prog_name="c5c3-orders")
