"""The counts and the table are right before anything is measured with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.local.part import Stack
from tests import audit
from tests.bench.table import Row, printed


def _entry(id_: str, stage: str = "ResponseComplete", **changed: Any) -> Mapping[str, Any]:
    return {
        "auditID": id_,
        "stage": stage,
        "user": {"username": audit.OPERATOR},
        "verb": "get",
        "requestURI": "/apis/x/v1/namespaces/n/projects/one",
        "requestReceivedTimestamp": "2026-11-30T00:00:00Z",
        "objectRef": {"resource": "projects", "namespace": "n", "name": "one"},
        **changed,
    }


def _log(folder: Path, *entries: Mapping[str, Any]) -> audit.Audit:
    (folder / "logs").mkdir()
    log = audit.Audit(Stack("x", folder, folder, {}))
    log.path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return log


def test_a_watch_counts_once(tmp_path: Path) -> None:
    log = _log(tmp_path, _entry("1", "ResponseStarted", verb="watch"), _entry("1", verb="watch"), _entry("2"))
    assert [request.verb for request in log.since(0)] == ["watch", "get"]


def test_only_what_came_after_the_mark(tmp_path: Path) -> None:
    log = _log(tmp_path, _entry("1"))
    mark = log.mark()
    with log.path.open("a") as end:
        end.write(json.dumps(_entry("2")) + "\n" + '{"auditID": "half')
    assert len(log.since(mark)) == 1


def test_named_by_the_object_or_in_a_selector(tmp_path: Path) -> None:
    listed = _entry("2", verb="list", objectRef={}, requestURI="/apis/x/v1/projects?labelSelector=name%3Done")
    stranger = _entry("3", objectRef={"name": "two"}, requestURI="/apis/x/v1/namespaces/n/projects/two")
    requests = _log(tmp_path, _entry("1"), listed, stranger).since(0)
    assert [request.verb for request in audit.naming(requests, {"one"})] == ["get", "list"]


def test_the_table_says_what_is_missed() -> None:
    table = printed([Row.seconds("slow", 1, 2, 1.3), Row.counted("few", 3, 4)])
    assert [line.endswith("MISSED") for line in table.splitlines()] == [False, True, False]
