"""The search attributes of an order: what makes "every order that is not ready, by reason" one saved query.

They are all keywords, and have to exist in the Temporal namespace before the first start (`worker.temporal` checks).
"""

from __future__ import annotations

from temporalio.common import SearchAttributeKey

ORDER_KIND = SearchAttributeKey.for_keyword("OrderKind")
"""`KeystoneProject`, also while the order is torn down (the workflow type then differs)."""

ORDER_NAMESPACE = SearchAttributeKey.for_keyword("OrderNamespace")

ORDER_CLUSTER = SearchAttributeKey.for_keyword("OrderCluster")
"""The registered target cluster's name, `management` for the management cluster: an empty value is hard to ask for."""

CONTROL_PLANE = SearchAttributeKey.for_keyword("ControlPlane")
"""`namespace/name` of the plane that the order names."""

ORDER_READY = SearchAttributeKey.for_keyword("OrderReady")
"""Status of the condition `Ready`: `True`, `False` or `Unknown`."""

ORDER_REASON = SearchAttributeKey.for_keyword("OrderReason")
"""Reason of the first condition that is not True, or of `Ready`."""

SEARCH = (ORDER_KIND, ORDER_NAMESPACE, ORDER_CLUSTER, CONTROL_PLANE, ORDER_READY, ORDER_REASON)
