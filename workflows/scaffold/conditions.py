"""Status as it should read: our conditions and fields laid over the live ones, and only what differs written.

Writing an equal status would wake every watch on the order, so `changes` answers None then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from workflows.scaffold.verdict import Verdict, cut

READY = "Ready"
ALL_READY = "AllReady"
NOT_ALL_READY = "NotAllReady"


def ready(types: Sequence[str], verdicts: Mapping[str, bool], note: str) -> Verdict:
    """The aggregate: True iff every listed type is there and True, and nothing is noted (contracts 4.10, 14.9)."""
    missing = [type_ for type_ in types if not verdicts.get(type_)]
    if not missing and not note:
        return Verdict(type=READY, status=True, reason=ALL_READY, message="Everything that was ordered is there.")
    text = note or f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not True."
    return Verdict(type=READY, status=False, reason=NOT_ALL_READY, message=text)


def changes(
    live: Mapping[str, Any],
    generation: int,
    types: Sequence[str],
    verdicts: Sequence[Verdict],
    fields: Mapping[str, Any],
    note: str,
    now: datetime,
) -> dict[str, Any] | None:
    """The JSON merge patch of `status` that makes it say this, or None when it says so already.

    types  every sub-condition of the kind, in order; one that no verdict names keeps what it says
    note   what `Ready` should say beyond its parts: a pause, an error, a teardown; Ready is then False
    `lastTransitionTime` moves only when a condition's status flips. Foreign conditions are kept.
    """
    before = {condition["type"]: condition for condition in live.get("conditions") or []}
    found = {verdict.type: verdict for verdict in verdicts}
    status_of = {type_: before[type_].get("status") == "True" for type_ in types if type_ in before}
    status_of |= {verdict.type: verdict.status for verdict in verdicts}
    after = dict(before)
    for verdict in (*found.values(), ready(types, status_of, note)):
        after[verdict.type] = _condition(before.get(verdict.type), verdict, generation, now)
    wanted: dict[str, Any] = {"observedGeneration": generation, **fields}
    patch = {key: _replacing(live.get(key), value) for key, value in wanted.items() if live.get(key) != value}
    if list(after.values()) != list(before.values()):
        patch["conditions"] = list(after.values())
    return patch or None


def _replacing(old: Any, new: Any) -> Any:
    """The merge patch that leaves nothing of the old value: keys of a map that are gone have to be named."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {key: None for key in old if key not in new} | {k: _replacing(old.get(k), v) for k, v in new.items()}
    return new


def _condition(old: Mapping[str, Any] | None, verdict: Verdict, generation: int, now: datetime) -> dict[str, Any]:
    status = "True" if verdict.status else "False"
    since = old.get("lastTransitionTime") if old and old.get("status") == status else None
    return {
        "type": verdict.type,
        "status": status,
        "reason": verdict.reason,
        "message": cut(verdict.message),
        "observedGeneration": generation,
        "lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
