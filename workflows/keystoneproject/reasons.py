"""KeystoneProject's condition and its reasons (the CRD reference lists them)."""

from __future__ import annotations

PROJECT_READY = "ProjectReady"
CONDITIONS = (PROJECT_READY,)
"""Every sub-condition of the kind, in the order people read them."""

PROVISIONED = "ProjectProvisioned"
COLLISION = "ProjectCollision"
PROBING = "ProbingForCollision"
WAITING = "WaitingForProject"
FAILED = "ProjectFailed"
ERROR = "ProjectError"
REFERENCED_BY_ASSIGNMENTS = "ReferencedByRoleAssignments"
REFERENCED_BY_CREDENTIALS = "ReferencedByApplicationCredentials"
