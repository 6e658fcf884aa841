"""Lengths of time as other programs write them, to be compared as what they are."""

from __future__ import annotations

import re

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def seconds(value: object) -> int | None:
    """As a number or text of seconds, as OpenBao prints them, or as a duration like 48h0m0s; None if it is neither."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return int(value)
    text = value if isinstance(value, str) else ""
    if text.isascii() and text.isdigit():
        return int(text)
    if not re.fullmatch("([0-9]+[dhms])+", text):
        return None
    return sum(int(count) * _UNITS[unit] for count, unit in re.findall("([0-9]+)([dhms])", text))
