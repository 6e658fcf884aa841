"""What our programs asked of the two API servers, by the servers' own audit logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from deploy.local.part import Stack

OPERATOR = "system:serviceaccount:c5c3-system:c5c3-operator"


@dataclass(frozen=True)
class Request:
    """One answered request of the operator's. `resource` carries its group and subresource: `projects.openstack…`."""

    at: float
    verb: str
    resource: str
    namespace: str
    name: str
    code: int


def requests(stack: Stack, cluster: str, since: float = 0) -> Iterator[Request]:
    """The operator's requests in the order in which they came in."""
    found = []
    with (stack.folder / "logs" / f"audit-{cluster}.jsonl").open("rb") as log:
        for line in log:
            if OPERATOR.encode() not in line:
                continue
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a line that a killed server left half-written, or one being written now
            target = event.get("objectRef") or {}
            at = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
            if event["user"]["username"] != OPERATOR or at < since:
                continue
            group, sub = target.get("apiGroup", ""), target.get("subresource", "")
            resource = target.get("resource", event["requestURI"]) + (f"/{sub}" if sub else "")
            found.append(
                Request(
                    at,
                    event["verb"],
                    f"{resource}.{group}" if group else resource,
                    target.get("namespace", ""),
                    target.get("name", ""),
                    (event.get("responseStatus") or {}).get("code", 0),
                )
            )
    return iter(sorted(found, key=lambda request: request.at))
