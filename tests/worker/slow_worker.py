"""The worker program with a toy in place of the kinds: its step takes as long as TOY_SECONDS says.

`python -m tests.worker.slow_worker` is otherwise `python -m worker`, checks, signals and all.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from temporalio import activity

from tests.worker.toy import Toy
from worker import __main__ as program
from worker import assembly


@activity.defn
async def touch() -> None:
    """Says that it began, takes its time, says that it ended; a cancellation is not heard while it is stubborn."""
    begun, ended = Path(os.environ["TOY_FOLDER"], "begun"), Path(os.environ["TOY_FOLDER"], "ended")
    begun.write_text("")
    if os.environ.get("TOY_STUBBORN"):
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue
    await asyncio.sleep(float(os.environ["TOY_SECONDS"]))
    ended.write_text("")


if __name__ == "__main__":
    assembly.WORKFLOWS = (Toy,)
    assembly.activities_over = lambda clusters, openbao: [touch]
    if os.environ.get("TOY_STUBBORN"):
        program._AFTER_GRACE_SECONDS = -24  # 26 seconds are the shortest grace that can be set
    program.main()
