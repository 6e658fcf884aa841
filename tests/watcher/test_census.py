"""How many orders there are and how they stand, by labels that are closed sets; and children whose order is gone."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from activities.cluster import KEYSTONE_PROJECT, KORC_PROJECT
from tests.conftest import Told
from tests.watcher.objects import Object, child, order, ref
from tests.watcher.test_ear import FINALIZER, House
from watcher.census import NOT_OBSERVED, OTHER, REASONS, Census
from workflows.scaffold.order import OrderRef

KIND = "KeystoneProject"


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def reads(found: Object, ready: str, reason: str, since: float = 0, generation: int = 1) -> Object:
    """The order with what is reported of it."""

    def condition(type_: str, reason: str) -> dict[str, Any]:
        return {"type": type_, "status": ready, "reason": reason, "observedGeneration": generation,
                "lastTransitionTime": ago(since)}  # fmt: skip

    conditions = [
        condition("ProjectReady", reason),
        condition("Ready", "AllReady" if ready == "True" else "NotAllReady"),
    ]
    return {**found, "status": {"conditions": conditions}}


def deleted(found: Object, since: float) -> Object:
    meta = {**found["metadata"], "deletionTimestamp": ago(since), "finalizers": [FINALIZER]}
    return {**found, "metadata": meta}


def counted(census: Census) -> dict[tuple[bool, str], int]:
    return {(ready, reason): n for (kind, ready, reason), n in census.counts().items() if kind == KIND and n}


def test_orders_are_counted_by_how_they_stand_and_the_count_goes_back_down() -> None:
    census, one = Census(), ref("one")
    census.put(one, order("one", creationTimestamp=ago(100)))
    census.put(ref("two"), reads(order("two"), "True", "ProjectProvisioned"))
    assert counted(census) == {(False, NOT_OBSERVED): 1, (True, "AllReady"): 1}
    census.put(one, reads(order("one"), "False", "WaitingForProject"))
    assert counted(census) == {(False, "WaitingForProject"): 1, (True, "AllReady"): 1}
    census.put(one, reads(order("one"), "True", "ProjectProvisioned"))
    assert counted(census) == {(True, "AllReady"): 2}
    census.put(one, deleted(reads(order("one"), "True", "ProjectProvisioned"), 5))
    assert counted(census) == {(False, "Deleting"): 1, (True, "AllReady"): 1}
    census.drop(one)
    census.drop(ref("two"))
    assert counted(census) == {}
    assert census.counts()["MariaDBDatabase", True, "AllReady"] == 0, "a kind without orders is counted"


def test_the_age_is_that_of_the_oldest_by_reason_and_ends_with_it() -> None:
    census = Census()
    census.put(ref("new"), order("new", creationTimestamp=ago(50)))
    census.put(ref("one"), reads(order("one"), "False", "WaitingForProject", since=300))
    census.put(ref("two"), reads(order("two"), "False", "WaitingForProject", since=700))
    census.put(ref("fine"), reads(order("fine"), "True", "ProjectProvisioned", since=9000))
    ages = census.oldest_unready()
    assert ages == pytest.approx({(KIND, NOT_OBSERVED): 50, (KIND, "WaitingForProject"): 700}, abs=3)
    census.put(ref("two"), reads(order("two"), "True", "ProjectProvisioned"))
    assert census.oldest_unready()[KIND, "WaitingForProject"] == pytest.approx(300, abs=3)


def test_a_deletion_has_an_age_of_its_own_and_one_that_is_held_says_so() -> None:
    census = Census()
    census.put(ref("one"), deleted(reads(order("one"), "False", "WaitingForProject", since=9000), 60))
    census.put(ref("two"), deleted(reads(order("two"), "False", "ReferencedByRoleAssignments"), 200))
    assert census.oldest_unready() == {}
    expected = {(KIND, "Deleting"): 60, (KIND, "ReferencedByRoleAssignments"): 200}
    assert census.oldest_deletion() == pytest.approx(expected, abs=3)


def test_an_edited_order_counts_as_not_observed_since_it_was_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    census, edited = Census(), reads(order(generation=2), "True", "ProjectProvisioned", since=9000)
    census.put(ref(), reads(order(), "True", "ProjectProvisioned", since=9000))
    census.put(ref(), edited)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 40)
    census.put(ref(), edited)
    assert census.oldest_unready() == pytest.approx({(KIND, NOT_OBSERVED): 40}, abs=3)


def test_whatever_stands_in_a_status_makes_no_label_of_its_own() -> None:
    census = Census()
    for n in range(50):
        census.put(ref(f"o-{n}"), reads(order(f"o-{n}"), "False", f"MadeUp{n}"))
    census.put(ref("odd"), {**order("odd"), "status": {"conditions": [{"type": "Ready", "status": None}, 7]}})
    assert set(counted(census)) == {(False, OTHER), (False, "NotAllReady")}


def test_every_reason_of_the_documentation_is_a_label() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reasons.md").read_text()
    documented = {found[1] for line in text.splitlines() if (found := re.match(r"\| `(\w+)`", line))}
    assert len(documented) > 30
    assert documented - REASONS <= {"ProjectReady", "CatalogReady", "AccountReady", "DatabaseReady", "DeliveryReady"}


# -- time to Ready ----------------------------------------------------------------------------------------------


class Took:
    """What the histogram got since it was made: how often, and how long together."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._before = self._read()

    def _read(self) -> tuple[float, float]:
        samples = {
            sample.name: sample.value
            for family in text_string_to_metric_families(self._told.text())
            for sample in family.samples
            if family.name == "c5c3_order_time_to_ready_seconds" and sample.labels.get("kind") == KIND
        }
        stem = "c5c3_order_time_to_ready_seconds"
        return samples.get(f"{stem}_count", 0), samples.get(f"{stem}_sum", 0)

    def __call__(self) -> tuple[float, float]:
        now = self._read()
        return now[0] - self._before[0], now[1] - self._before[1]


def test_a_new_orders_first_ready_is_timed_once(told: Told) -> None:
    census, took = Census(), Took(told)
    census.put(ref(), order(creationTimestamp=ago(0)))
    census.put(ref(), reads(order(), "False", "WaitingForProject"))
    census.put(ref(), reads(order(), "True", "ProjectProvisioned"))
    assert took() == pytest.approx((1, 0), abs=0.5)
    census.put(ref(), reads(order(), "False", "WaitingForProject"))
    census.put(ref(), reads(order(), "True", "ProjectProvisioned"))
    assert took()[0] == 1


def test_one_that_was_created_while_nobody_listened_is_timed_from_its_creation(told: Told) -> None:
    census, took = Census(), Took(told)
    census.put(ref(), order(creationTimestamp=ago(90)))
    census.put(ref(), reads(order(), "True", "ProjectProvisioned"))
    assert took() == pytest.approx((1, 90), abs=3)


@pytest.mark.parametrize("known", [("False", "WaitingForProject"), ("True", "ProjectProvisioned")])
def test_one_of_which_it_is_not_known_whether_it_was_ready_is_not_timed(told: Told, known: tuple[str, str]) -> None:
    census, took = Census(), Took(told)
    census.put(ref(), reads(order(creationTimestamp=ago(90)), *known))
    census.put(ref(), reads(order(), "True", "ProjectProvisioned"))
    assert took()[0] == 0


# -- children ---------------------------------------------------------------------------------------------------


def everything(_: OrderRef) -> bool:
    return True


def test_children_whose_order_is_gone_are_counted_until_they_are() -> None:
    house = House()
    orders, children = house.ear(KEYSTONE_PROJECT), house.ear(KORC_PROJECT)
    orders.listed([order()])
    children.listed([child("a"), child("b", of=ref("never-there")), child("c", of=ref("far", cluster="edge-1"))])
    assert children.orphans(lambda of: not of.cluster) == 1, "of orders that nobody listed it is not known"
    assert children.orphans(everything) == 2
    orders.heard("DELETED", order())
    assert children.orphans(everything) == 3
    children.heard("DELETED", child("b", of=ref("never-there")))
    orders.heard("ADDED", order())
    assert children.orphans(everything) == 1
