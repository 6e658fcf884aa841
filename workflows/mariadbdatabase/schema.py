"""Names of schemas, and the OpenBao role whose users may do everything in one of them and nothing elsewhere.

The placeholders in the statements are OpenBao's; the only text of a person's in them is the schema's name, which is
an identifier by then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from workflows.scaffold.times import seconds

_IDENTIFIER = re.compile("[A-Za-z0-9_]{1,64}")
_RESERVED = frozenset({"mysql", "information_schema", "performance_schema", "sys"})
_HOUR = 3600
DEFAULT_TTL = 48 * _HOUR
MAX_TTL = 72 * _HOUR

Role = dict[str, Any]


def is_identifier(schema: str) -> bool:
    return _IDENTIFIER.fullmatch(schema) is not None


def is_reserved(schema: str) -> bool:
    """Whether it is one of the server's own, in any case: on some systems MariaDB folds names itself."""
    return schema.lower() in _RESERVED


def grant(schema: str) -> str:
    """What the statement says of the schema: in a grant on a database an unescaped _ stands for any letter."""
    escaped = schema.replace("_", "\\_")
    return f"GRANT ALL PRIVILEGES ON `{escaped}`.* TO '{{{{name}}}}'@'%';"


def role(schema: str, keystone_namespace: str) -> Role:
    """The role as OpenBao takes it, for the connection that the plane's database was onboarded with."""
    return {
        "db_name": f"keystone-{keystone_namespace}",
        "creation_statements": ["CREATE USER '{{name}}'@'%' IDENTIFIED BY '{{password}}';", grant(schema)],
        "revocation_statements": ["DROP USER IF EXISTS '{{name}}'@'%';"],
        "default_ttl": DEFAULT_TTL,
        "max_ttl": MAX_TTL,
    }


def same_role(stored: Mapping[str, Any], wanted: Role) -> bool:
    """Whether the stored role says what is wanted: statements exactly, times as times whatever their unit."""
    for field, value in wanted.items():
        have = stored.get(field)
        if field.endswith("_ttl"):
            have = seconds(have)
        if have != value:
            return False
    return True
