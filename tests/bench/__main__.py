"""`python -m tests.bench`: order to Ready, and what it costs, measured on the real stack beside the same by hand.

Both ways take turns within one run, so that whatever else the machine does falls on both; ratios are what counts. The
first rounds of each way only warm the stack up and are left out. Needs a machine that does nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import secrets
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client

from deploy.local import stack
from deploy.local.part import PartError, Stack
from deploy.local.parts.operator import SYSTEM
from deploy.local.show import shown
from tests import audit
from tests.bench import history
from tests.bench.desk import USER, Desk, Unexpected
from tests.bench.services import ServiceDesk
from tests.bench.table import Row, printed
from tests.bench.usage import Usage

DESKS: dict[str, type[Desk]] = {"project": Desk, "service": ServiceDesk}
PARTS = ("planes", "controllers-management", "controllers-target", "worker", "watcher")
RESULTS = Path(__file__).parent / "results"
WARM_UP = 2


@dataclass(frozen=True)
class Limits:
    """What each kind is held to: ratios to the same by hand, requests and events per order."""

    one: float
    batch: float
    requests: int
    events: int
    resync: int = 16


LIMITS = {"project": Limits(1.3, 1.2, 15, 90), "service": Limits(1.15, 1.15, 60, 150)}


@dataclass(frozen=True)
class Took:
    """A batch: seconds until the last was Ready, the median of each one's, processor seconds of each part."""

    whole: float
    each: float
    processor: dict[str, float]


class Bench:
    """One run on one instance."""

    def __init__(self, here: Stack, desk: Desk, client: Client) -> None:
        self.here, self.desk, self.client, self.log = here, desk, client, audit.Audit(here)
        self.run = f"b{secrets.token_hex(3)}"
        self._used = 0

    def names(self, count: int) -> tuple[str, list[str]]:
        """A batch nobody had before, and that many names in it."""
        self._used += 1
        batch = f"{self.run}-{self._used}"
        return batch, [f"{batch}-{number}" for number in range(count)]

    async def round(self, count: int, *, order: bool) -> Took:
        """One batch one way, taken back afterwards."""
        batch, names = self.names(count)
        way = self.desk.ordered if order else self.desk.by_hand
        try:
            async with Usage(self.here) as usage:
                each = await way(names, batch)
        finally:
            await self.desk.clear(batch)
        return Took(max(each), statistics.median(each), usage.told())

    async def compare(self, count: int, rounds: int, warm_up: int) -> dict[str, Any]:
        """So many rounds of both ways in turn; who begins changes from round to round."""
        found: dict[bool, list[Took]] = {True: [], False: []}
        for number in range(-warm_up, rounds):
            for order in (True, False) if number % 2 else (False, True):
                took = await self.round(count, order=order)
                _say(
                    f"{'warm-up ' if number < 0 else ''}{count} {'ordered' if order else 'by hand'}: {took.whole:.2f} s"
                )
                if number >= 0:
                    found[order].append(took)
        ordered, by_hand = ([took.whole for took in found[order]] for order in (True, False))
        return {
            "count": count,
            "rounds": rounds,
            "warm_up": warm_up,
            "ordered": ordered,
            "by_hand": by_hand,
            "ordered_median": statistics.median(ordered),
            "by_hand_median": statistics.median(by_hand),
            "ratio": statistics.median(ordered) / statistics.median(by_hand),
            "processor": {way: _mean(found[order]) for way, order in (("ordered", True), ("by_hand", False))},
        }

    async def cost(self, orders: int) -> dict[str, Any]:
        """One order after the other, alone: requests and events until it is quiet, then a pass that changes nothing."""
        found: dict[str, list[int]] = {"requests": [], "requests_all": [], "events": [], "resync": [], "by_hand": []}
        verbs: list[str] = []
        for _ in range(orders):
            batch, (name,) = self.names(1)
            mark = self.log.mark()
            await self.desk.ordered([name], batch)
            id_ = self.desk.reference(name).workflow_id
            events = await history.quiet(self.client, id_)
            mine = audit.of(self.log.since(mark), audit.OPERATOR)
            named = audit.naming(mine, self.desk.named([name]), token=name)
            found["requests"].append(len(named))
            found["requests_all"].append(len([r for r in mine if r.namespace != SYSTEM]))
            found["events"].append(events)
            verbs = [f"{request.verb} {request.resource}" for request in named]
            await self.client.get_workflow_handle(id_).execute_update("resync_now")
            found["resync"].append(await history.quiet(self.client, id_) - events)
            await self.desk.clear(batch)
            batch, (name,) = self.names(1)
            mark = self.log.mark()
            await self.desk.by_hand([name], batch)
            found["by_hand"].append(len(audit.writes(audit.of(self.log.since(mark), USER))))
            await self.desk.clear(batch)
        return {**found, "which": verbs}


async def measure(kind: str, instance: str, runs: int, batches: list[int], rounds: int) -> dict[str, Any]:
    with shown():
        here = await stack.up(instance, [*PARTS, *(["stores", "standin-roleassignment"] if kind == "service" else [])])
    load = os.getloadavg()
    async with DESKS[kind](here) as desk:
        bench = Bench(here, desk, await history.connect(here))
        found: dict[str, Any] = {"kind": kind, "machine": _machine(), "load_before": load}
        if runs:
            found["one"] = await bench.compare(1, runs, WARM_UP)
            found["cost"] = await bench.cost(max(1, min(5, runs)))
        found["batches"] = [
            await bench.compare(count, rounds if count <= 50 else max(1, rounds // 2), 1 if count <= 50 else 0)
            for count in batches
        ]
    return found | {"load_after": os.getloadavg()}


def rows(found: dict[str, Any]) -> list[Row]:
    made, limits = [], LIMITS[found["kind"]]
    if one := found.get("one"):
        what = f"one order to Ready, median of {one['rounds']}"
        made.append(Row.seconds(what, one["by_hand_median"], one["ordered_median"], limits.one))
    for batch in found["batches"]:
        what = f"{batch['count']} at once, all Ready, median of {batch['rounds']}"
        made.append(Row.seconds(what, batch["by_hand_median"], batch["ordered_median"], limits.batch))
    if cost := found.get("cost"):
        what = "API requests that name the order, its children or its claim"
        made.append(Row.counted(what, max(cost["requests"]), limits.requests, max(cost["by_hand"])))
        made.append(Row.counted("API requests with those for the plane and the streams", max(cost["requests_all"])))
        made.append(Row.counted("events in Temporal until it is quiet", max(cost["events"]), limits.events))
        made.append(Row.counted("events of a pass that changes nothing", max(cost["resync"]), limits.resync))
    return made


def _mean(rounds: list[Took]) -> dict[str, float]:
    """Processor seconds of each part per round."""
    return {part: round(statistics.mean(r.processor[part] for r in rounds), 3) for part in rounds[0].processor}


def processor(found: dict[str, Any]) -> str:
    """Where the time goes, a line per way and batch."""
    lines = []
    for compared in [*([found["one"]] if "one" in found else []), *found["batches"]]:
        for way, parts in compared["processor"].items():
            said = ", ".join(f"{part} {seconds:.2f}" for part, seconds in parts.items())
            lines.append(f"  {compared['count']:>3} {way.replace('_', ' ')}: {said}")
    return "\n".join(lines)


def _machine() -> dict[str, Any]:
    return {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def _counts(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each and int(each) > 0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--kind", choices=sorted(DESKS), default="project", help="what is ordered (project)")
    parser.add_argument("--runs", type=int, default=20, help="rounds of one order at a time (20; 0 leaves them out)")
    parser.add_argument("--batch", type=_counts, default=[10, 200], help="sizes of batches, as in 10,200")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of each batch (4; half of it above 50)")
    parser.add_argument("--instance", default="bench", metavar="NAME")
    parser.add_argument("--save", action="store_true", help=f"write the numbers to {RESULTS.name}/KIND.json")
    parser.add_argument("--down", action="store_true", help="take the instance down afterwards")
    args = parser.parse_args()
    try:
        found = asyncio.run(measure(args.kind, args.instance, args.runs, args.batch, args.rounds))
    except (PartError, Unexpected) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if args.down:
            asyncio.run(stack.down(args.instance))
    table = rows(found)
    print(printed(table))
    print(f"\nprocessor seconds of each part per round:\n{processor(found)}")
    load = f"load {found['load_before'][0]:.1f} before, {found['load_after'][0]:.1f} after"
    print(f"\n{found['machine']['cores']} cores, {load}; the first rounds of each warm up and are not in the medians.")
    if args.save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{args.kind}.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(row.kept for row in table) else 2


if __name__ == "__main__":
    sys.exit(main())
