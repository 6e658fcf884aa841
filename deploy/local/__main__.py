"""`python -m deploy.local`: the real stack on this machine, from the command line.

  up [--parts a,b]      bring it up; run it again to repair what broke
  down [--forget]       end it; --forget deletes its data, keys and logs
  status                what runs, where, since when
  logs PART [-f]        the part's log
  env                   shell exports: eval "$(python -m deploy.local env)"

Each takes --instance NAME (default: demo); instances run side by side. Everything is on 127.0.0.1 and in one folder,
$C5C3_STACK_HOME or ~/.cache/c5c3-orders. What exists already can be used instead of being started:

  C5C3_STACK_KUBECONFIG, C5C3_STACK_TARGET_KUBECONFIG   files with admin rights on the two clusters
  C5C3_STACK_TEMPORAL, C5C3_STACK_OPENBAO               addresses (host:port; https://host:port)
  C5C3_STACK_OTLP                                       where worker and watcher send traces (http://host:port)
  C5C3_STACK_WITHOUT=korc,cert-manager,…                parts that your own cluster has already
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
import time

from deploy.local import processes, stack
from deploy.local.part import PartError, Stack
from deploy.local.show import shown


async def _up(instance: str, parts: list[str] | None) -> Stack:
    began = time.monotonic()
    with shown() as progress:
        found = await stack.up(instance, parts, progress)
        progress.note(f"the core is up after {time.monotonic() - began:.1f} s")
        await stack.later(instance)
    print(f"{instance} is up after {time.monotonic() - began:.1f} s, in {found.folder}")
    return found


async def _status(instance: str) -> int:
    parts = await stack.status(instance)
    for part in parts:
        where = " ".join(f"{name}:{port}" for name, port in (part.ports or {}).items())
        since = f"{part.seconds:7.0f} s  pid {part.pid}  {part.memory} MiB" if part.pid else ""
        print(f"{part.part:24} {part.state:16} {since:36} {where}")
    print(f"memory (resident, shared pages counted twice): {sum(part.memory or 0 for part in parts)} MiB")
    return 0 if all(part.state in ("up", "-") for part in parts) else 1


async def _down(instance: str, forget: bool) -> None:
    with shown() as progress:
        await stack.down(instance, forget, progress)


def main() -> int:
    """Runs one command; a failure that a person can mend is one sentence and exit code 1."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.local", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="up|down|status|logs|env")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--instance", default=stack.DEFAULT, metavar="NAME")
    up = commands.add_parser("up", parents=[common])
    up.add_argument("--parts", type=lambda text: text.split(","), metavar="a,b")
    down = commands.add_parser("down", parents=[common])
    down.add_argument("--forget", action="store_true")
    commands.add_parser("status", parents=[common])
    logs = commands.add_parser("logs", parents=[common])
    logs.add_argument("part")
    logs.add_argument("-f", "--follow", action="store_true")
    commands.add_parser("env", parents=[common])
    args = parser.parse_args()
    try:
        if args.command == "up":
            asyncio.run(_up(args.instance, args.parts))
        elif args.command == "down":
            asyncio.run(_down(args.instance, args.forget))
        elif args.command == "status":
            return asyncio.run(_status(args.instance))
        elif args.command == "env":
            for name, value in stack.environment(stack.existing(args.instance)).items():
                print(f"export {name}={shlex.quote(value)}")
        else:
            part = stack.find(args.part).name
            file = processes.log_path(stack.existing(args.instance), part)
            if not file.exists():
                raise PartError(f"{part} has no log in this instance: it has no process, or was not started yet")
            os.execvp("tail", ["tail", "-n", "200", *(["-f"] if args.follow else []), str(file)])
    except PartError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: what runs stays up; `up` again goes on, `down` ends it", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
