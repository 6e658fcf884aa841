"""The judge of the way to the service: source Secret, PushSecret, OpenBao, ExternalSecret, consumer Secret (4.7).

Secrets are compared by what stands for their values; no value is seen here.
"""

from __future__ import annotations

from workflows.api.korc import KorcObject
from workflows.api.meta import Model, find
from workflows.keystoneservice import children, delivery, reasons
from workflows.keystoneservice.blocks import false
from workflows.keystoneservice.children import Registration
from workflows.scaffold.child import Body, Seen, Standing, as_declared, standing_before_spec, the, write
from workflows.scaffold.ownership import includes, refusal
from workflows.scaffold.verdict import Act, Decision, Verdict

SOURCE_DELETED = "SourceDeleted"
"""External Secrets' word, since its chart 2.3, for a PushSecret that has stopped because its source was missing."""


class Content(Model):
    """What is to be delivered, by what stands for it.

    digest  of the clouds.yaml document, as the annotations say it
    source  each key of the source Secret to its value's fingerprint
    """

    digest: str
    source: dict[str, str]


def judge_publish(reg: Registration, generation: int, content: Content | None, seen: Seen) -> Decision:
    """How the delivery stands: ready once the service's Secret holds the current password (row A19).

    content  None when the generation's password cannot be read
    """
    if content is None:
        name = f"Secret {reg.plane.namespace}/{delivery.password_name(reg.order, generation)}"
        return _wait(f"{name} has no password to deliver; the update `rotate` makes the next one.")
    if (decision := _unless_declared(reg, delivery.source_secret(reg), seen, content.source)) is not None:
        return decision
    push = delivery.push_secret(reg, content.digest)
    if (decision := _unless_declared(reg, push, seen)) is not None:
        return decision
    pushed, external = seen.of(push), seen.of(delivery.external_secret(reg, "", ""))
    assert pushed is not None
    if _taken_back(pushed):
        # It does not look at its source again. It has nothing in OpenBao now, which its deletion would take along.
        message = f"{the(push)} is deleted and made anew, for its source Secret was gone for a time{_words(pushed)}"
        return _wait(message).model_copy(update={"do": (write(Act.DELETE, push, exact=True),)})
    before = external.metadata.annotations.get(delivery.FORCE_SYNC, "") if external else ""
    if not _fresh(pushed, before, content.digest):
        return _wait(f"{the(push)} has not brought the password to OpenBao yet{_words(pushed)}")
    consumer = seen.of(delivery.consumer(reg.order))
    if external is None and consumer is not None and not _fetched(consumer, reg):
        # External Secrets would take it over without a word, drop its keys, and delete it with the ExternalSecret.
        message = refusal("Secret", reg.order.namespace, delivery.consumer_name(reg.order))
        return Decision(verdict=false(reasons.ACCOUNT_READY, reasons.ACCOUNT_ERROR, message))
    fetch = delivery.external_secret(reg, content.digest, pushed.status.synced_resource_version)
    if (decision := _unless_declared(reg, fetch, seen)) is not None:
        return decision
    if consumer is None or consumer.data.get("password") != content.source["password"]:
        state = "does not hold the current password yet" if consumer else "does not exist yet"
        words = _words(seen.of(fetch))
        return _wait(f"Secret {reg.order.namespace}/{delivery.consumer_name(reg.order)} {state}: {the(fetch)}{words}")
    message = f"The account can log in with Secret {reg.order.namespace}/{delivery.consumer_name(reg.order)}."
    verdict = Verdict(type=reasons.ACCOUNT_READY, status=True, reason=reasons.ACCOUNT_PROVISIONED, message=message)
    return Decision(verdict=verdict)


def _unless_declared(
    reg: Registration, wanted: Body, seen: Seen, data: dict[str, str] | None = None
) -> Decision | None:
    """The write that makes the object what it should be, or why there can be none; None when it is so.

    data  of a Secret, what it should hold; what others have put there besides stays
    """
    live = seen.of(wanted)
    if live is not None:
        early = standing_before_spec(live, wanted, children.marks(reg.order, reg.uid), seen)
        if early is not None and early.standing is Standing.REFUSED:
            return Decision(verdict=false(reasons.ACCOUNT_READY, reasons.ACCOUNT_ERROR, early.message))
        if early is not None:
            return _wait(early.message)
        # The reference operator leaves the labels off: that alone is no reason to have all pushed and fetched again.
        marked = (
            {**wanted["metadata"], "labels": {}}
            if children.marks(reg.order, reg.uid).controls(live.metadata)
            else wanted["metadata"]
        )
        if as_declared(live, {**wanted, "metadata": marked}) and includes(live.data, data or {}):
            return None
    return _wait(f"{the(wanted)} has yet to be written.").model_copy(update={"do": (write(Act.APPLY, wanted),)})


def _fetched(consumer: KorcObject, reg: Registration) -> bool:
    """Whether External Secrets made it for the order."""
    name = delivery.consumer_name(reg.order)
    return any(
        each.get("kind") == "ExternalSecret" and each.get("name") == name for each in consumer.metadata.owner_references
    )


def _fresh(pushed: KorcObject, before: str, digest: str) -> bool:
    """Whether OpenBao has this content: `Ready` alone may speak of an earlier push (contracts 13).

    before  the ExternalSecret's annotation: the content that was fetched last, and the push that had carried it
    """
    ready = find(pushed.status.conditions, "Ready")
    synced = pushed.status.synced_resource_version
    if ready is None or ready.status != "True" or not synced:
        return False
    content, _, push = before.partition("/")
    return content in ("", digest) or synced != push


def _taken_back(pushed: KorcObject) -> bool:
    """Whether External Secrets has pushed while the source was missing, and so deleted what it had pushed before."""
    ready = find(pushed.status.conditions, "Ready")
    return ready is not None and ready.status == "False" and ready.reason == SOURCE_DELETED


def _words(child: KorcObject | None) -> str:
    """External Secrets' last words on an object, or that there are none yet."""
    ready = find(child.status.conditions, "Ready") if child else None
    if ready is None:
        return " (External Secrets has not reported on it yet)"
    return f" (External Secrets: {ready.reason}: {ready.message})"


def _wait(message: str) -> Decision:
    return Decision(verdict=false(reasons.ACCOUNT_READY, reasons.WAITING_FOR_ACCOUNT, message), stays=True)
