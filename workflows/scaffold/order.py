"""Which order: its kind, cluster, namespace and name, and the workflow id that people type.

There is no uid in it: a re-created order of the same name is the next thing the same workflow id sees.
"""

from __future__ import annotations

from workflows.api.meta import Model


class OrderRef(Model):
    """One order. `cluster` is the registered target cluster's name, empty for the management cluster."""

    kind: str
    cluster: str
    namespace: str
    name: str

    @property
    def workflow_id(self) -> str:
        """`KeystoneProject:team-a/reporting`, on a target cluster `KeystoneProject:team-a/reporting@edge-1`."""
        return f"{self.kind}:{self.key}" + (f"@{self.cluster}" if self.cluster else "")

    @property
    def key(self) -> str:
        """`namespace/name`, as kubectl people write it."""
        return f"{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, workflow_id: str) -> OrderRef:
        """The reverse of `workflow_id`. Raises ValueError with the form that is expected."""
        kind, _, rest = workflow_id.partition(":")
        key, _, cluster = rest.partition("@")
        namespace, _, name = key.partition("/")
        if not (kind and namespace and name):
            raise ValueError(f"{workflow_id!r} is not an order's workflow id: KIND:NAMESPACE/NAME[@CLUSTER]")
        return cls(kind=kind, cluster=cluster, namespace=namespace, name=name)


RING = "changed"
"""The signal by which the watcher rings an order. It carries nothing."""

RESYNC = "resync"
"""The signal by which a person asks for a full pass. It carries nothing and clears any pause."""
