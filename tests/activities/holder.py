"""A process that has key material in hand and stands still at a given moment, to be killed there.

Every file that it opens for writing is told on its standard output, by the interpreter's own hook.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import sys
import time
from pathlib import Path
from typing import Any

from activities.clusters import connect_management, connect_target
from activities.openbao import OpenBao
from tests.bao_by_hand import NAME
from worker.cli import kubeconfig
from workflows.api.mariadbdatabase import Bao

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TMPFILE


def tell(event: str, what: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(what[2], int) and what[2] & WRITES and what[0] != "/dev/null":
        print(f"wrote {what[0]}", flush=True)
    elif event in ("os.rename", "os.link", "tempfile.mkstemp", "tempfile.mkdtemp"):
        print(f"{event} {what[0]}", flush=True)


def stand_still(*_: object, **__: object) -> None:
    print("now", flush=True)
    time.sleep(600)


def halt_before_the_key_is_read() -> None:
    ssl.SSLContext.load_cert_chain = stand_still  # type: ignore[method-assign]


async def main(moment: str, given: dict[str, str]) -> None:
    pair = {key: base64.b64decode(given[key]) for key in ("ca.crt", "tls.crt", "tls.key")}
    if moment.endswith("key"):
        halt_before_the_key_is_read()
    match moment:
        case "key" | "login" | "session":
            bao = OpenBao(Path(given["token_file"]))
            async with bao.session(Bao(server=given["server"]), pair, time.monotonic() + 60) as session:
                await session.read_role(NAME)
                stand_still()
        case "target's key":
            await connect_target("edge", given["kubeconfig"].encode())
        case "management's key":
            await connect_management(Path(given["kubeconfig_file"]))
        case "person's key":
            await kubeconfig.connect(Path(given["kubeconfig_file"]), None)


if __name__ == "__main__":
    said = json.loads(sys.stdin.read())
    sys.addaudithook(tell)
    asyncio.run(main(sys.argv[1], said))
