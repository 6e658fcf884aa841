"""The search attributes of an order's workflow, so that people list orders by what they wait for.

They must exist before the first start; both programs check, and say the command.
"""

from __future__ import annotations

from temporalio.common import SearchAttributeKey

KIND = SearchAttributeKey.for_keyword("OrderKind")
NAMESPACE = SearchAttributeKey.for_keyword("OrderNamespace")
CLUSTER = SearchAttributeKey.for_keyword("OrderCluster")
PLANE = SearchAttributeKey.for_keyword("ControlPlane")
READY = SearchAttributeKey.for_keyword("OrderReady")
REASON = SearchAttributeKey.for_keyword("OrderReason")

ALL = (KIND, NAMESPACE, CLUSTER, PLANE, READY, REASON)

MANAGEMENT = "management"
"""`OrderCluster` of an order on the management cluster: an empty keyword cannot be searched for."""
