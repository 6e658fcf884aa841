"""KeystoneService's conditions and their reasons (contracts 4.3 to 4.5; the CRD reference lists them)."""

from __future__ import annotations

CATALOG_READY = "CatalogReady"
ACCOUNT_READY = "AccountReady"
CONDITIONS = (CATALOG_READY, ACCOUNT_READY)
"""Every sub-condition of the kind, in the order people read them."""

# Either block
NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
PROBING = "ProbingForCollision"

# CatalogReady
CATALOG_NOT_DECLARED = "CatalogNotDeclared"
CATALOG_REGISTERED = "CatalogRegistered"
SERVICE_COLLISION = "ServiceCollision"
WAITING_FOR_CATALOG = "WaitingForCatalog"
CATALOG_FAILED = "CatalogFailed"
CATALOG_ERROR = "CatalogError"

# AccountReady
ACCOUNT_NOT_DECLARED = "AccountNotDeclared"
ACCOUNT_PROVISIONED = "AccountProvisioned"
ACCOUNT_COLLISION = "ServiceAccountCollision"
STORE_NOT_READY = "SecretStoreNotReady"
WAITING_FOR_ACCOUNT = "WaitingForServiceAccounts"
ACCOUNT_FAILED = "ServiceAccountsFailed"
ACCOUNT_ERROR = "ServiceAccountError"

# The one event
SCHEDULED_ROTATION_DEFERRED = "ScheduledRotationDeferred"
