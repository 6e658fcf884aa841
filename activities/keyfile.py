"""Key material as a file, for the moment in which OpenSSL, which takes it in no other form, reads it.

The file is in memory and never has a name, so nothing is left of it however we end.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nameless(content: bytes) -> Iterator[str]:
    """Where to read the content. Elsewhere than on Linux a temporary file of ours serves."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("c5c3", os.MFD_CLOEXEC)
        try:
            os.fchmod(number, 0o600)
            os.write(number, content)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
        return
    with tempfile.NamedTemporaryFile(prefix="c5c3-") as file:  # mode 0600
        file.write(content)
        file.flush()
        yield file.name
