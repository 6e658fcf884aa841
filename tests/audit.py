"""What a caller asked of the API server, from its own audit log: the only count that no code of ours can embellish."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from deploy.local.part import Stack

OPERATOR = "system:serviceaccount:c5c3-system:c5c3-operator"


@dataclass(frozen=True)
class Asked:
    """One request, however often the log mentions it."""

    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    at: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource} {self.namespace}/{self.name} -> {self.code}"


class Audit:
    """The log from now on. Requests are told apart by their namespaces: each test has its own."""

    def __init__(self, stack: Stack, cluster: str = "management", user: str = OPERATOR) -> None:
        self._file: Path = stack.folder / "logs" / f"audit-{cluster}.jsonl"
        self._user = user
        self._from = self._file.stat().st_size if self._file.exists() else 0

    async def asked(self, *namespaces: str, settle: float = 0.3) -> list[Asked]:
        """Every request of the operator in these namespaces since the log was opened, in order of arrival.

        A watch that is still open has been answered once and counts.
        """
        await asyncio.sleep(settle)
        with self._file.open("rb") as log:
            log.seek(self._from)
            lines = log.read().splitlines()
        found: dict[str, Asked] = {}
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            where = event.get("objectRef") or {}
            if event["user"]["username"] != self._user or where.get("namespace", "") not in namespaces:
                continue
            sub = where.get("subresource")
            found[event["auditID"]] = Asked(
                verb=event["verb"],
                resource=where["resource"] + (f"/{sub}" if sub else ""),
                namespace=where["namespace"],
                name=where.get("name", ""),
                code=(event.get("responseStatus") or {}).get("code", 0),
                at=event["requestReceivedTimestamp"],
            )
        return sorted(found.values(), key=lambda one: one.at)


WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def writes(asked: list[Asked]) -> list[str]:
    """Those that would change something, as text."""
    return [str(one) for one in asked if one.verb in WRITES]
