"""MariaDBDatabase's conditions and their reasons (contracts 4.12; the CRD reference lists them)."""

from __future__ import annotations

DATABASE_READY = "DatabaseReady"
DELIVERY_READY = "DeliveryReady"
CONDITIONS = (DATABASE_READY, DELIVERY_READY)
"""Every sub-condition of the kind, in the order people read them."""

# Either condition
DYNAMIC_UNAVAILABLE = "DynamicCredentialsUnavailable"
WAITING_FOR_DB_CREDENTIALS = "WaitingForDBCredentials"
CLUSTER_UNAVAILABLE = "TargetClusterUnavailable"
WAITING_FOR_CREDENTIALS = "WaitingForCredentials"

# DatabaseReady
PROVISIONED = "DatabaseProvisioned"
CLUSTER_NOT_READY = "ClusterNotReady"
NAME_INVALID = "DatabaseNameInvalid"
NAME_RESERVED = "DatabaseNameReserved"
COLLISION = "DatabaseCollision"
WAITING_FOR_CERTIFICATE = "WaitingForClientCertificate"
OPENBAO_ERROR = "OpenBaoError"
WAITING_FOR_DATABASE = "WaitingForDatabase"

# DeliveryReady
DELIVERED = "Delivered"
NOT_PUBLISHED = "DatabaseNotPublished"
WAITING_FOR_CA = "WaitingForCABundle"
REFUSED = "DeliveryRefused"
DELIVERY_ERROR = "DeliveryError"
