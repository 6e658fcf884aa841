"""Long-lived processes of an instance: started apart from the launcher, found again after it, ended cleanly.

Every process carries its instance folder and part in its environment. That mark, not a pid file, says whose a process
is: it survives a launcher killed between start and note, covers children (gunicorn's workers), and no reused pid has
it. The note beside it (pid, start time, what was asked for) tells the leader from its children and old from new.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from deploy.local.part import PartError, Process, Stack

FOLDER_MARK, PART_MARK = "C5C3_STACK_FOLDER", "C5C3_STACK_PART"
# What a process of ours may see of the launcher's environment: nothing that changes what it does.
INHERITED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")


# A longer log is put aside at the next start; one of before is kept.
LOG_LIMIT = 20 * 1024**2


@dataclass(frozen=True)
class Note:
    """What was written down of a started process."""

    pid: int
    started: float
    digest: str


def digest(process: Process) -> str:
    """What a running process is compared by. The program's own size and time count: a rebuilt one replaces the old."""
    program = Path(process.argv[0])
    stamp = [program.stat().st_size, program.stat().st_mtime_ns] if program.exists() else []
    told = [list(process.argv), sorted(process.env.items()), str(process.cwd), process.version, stamp]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def note_path(stack: Stack, part: str) -> Path:
    return stack.folder / "run" / f"{part}.json"


def log_path(stack: Stack, part: str) -> Path:
    return stack.folder / "logs" / f"{part}.log"


def read_note(stack: Stack, part: str) -> Note | None:
    try:
        return Note(**json.loads(note_path(stack, part).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def running(stack: Stack, part: str) -> Note | None:
    """The note of the part's leader while that very process lives; a pid that someone else has now does not count."""
    note = read_note(stack, part)
    return note if note and is_alive(note) else None


def is_alive(note: Note) -> bool:
    """Whether the noted process lives. A child of ours that has ended is reaped here rather than taken for alive."""
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(note.pid, os.WNOHANG)
    try:
        process = psutil.Process(note.pid)
        # Start times are computed from the boot time, which a clock adjustment moves a little.
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - note.started) < 3
    except psutil.Error:
        return False


def marked(folder: Path, part: str | None = None) -> list[psutil.Process]:
    """All live processes that carry this folder's mark (and the part's), noted or not."""
    found = []
    for process in psutil.process_iter():
        try:
            env = process.environ()
            if env.get(FOLDER_MARK) == str(folder) and part in (None, env.get(PART_MARK)):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return [p for p in found if p.pid != os.getpid()]


def start(stack: Stack, part: str, process: Process) -> Note:
    """Starts a process in a session of its own, with its output appended to the part's log."""
    log = log_path(stack, part)
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_suffix(".log.old"))
    env = {k: os.environ[k] for k in INHERITED if k in os.environ}
    env |= {**process.env, FOLDER_MARK: str(stack.folder), PART_MARK: part}
    with log.open("ab") as out:
        out.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} starting {part}\n".encode())
        out.flush()
        try:
            child = subprocess.Popen(
                process.argv,
                env=env,
                cwd=process.cwd or stack.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise PartError(
                f"{part}: {process.argv[0]} cannot be started ({error.strerror}); delete it and run up again"
            ) from None
    child.returncode = 0  # it is not ours to wait for: no warning when this object is collected while the process lives
    note = Note(child.pid, psutil.Process(child.pid).create_time(), digest(process))
    path = note_path(stack, part)
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".half")
    half.write_text(json.dumps(asdict(note)))
    half.replace(path)
    return note


async def end(stack: Stack, part: str | None = None, *, patience: float = 15, kill: bool = False) -> bool:
    """Ends the part's processes (or all of the folder's), politely and then not. Answers whether there were any."""
    victims = await asyncio.to_thread(marked, stack.folder, part)
    note = read_note(stack, part) if part else None
    leaders = [p for p in victims if note and p.pid == note.pid] or victims
    for process in victims if kill else leaders:
        with contextlib.suppress(psutil.Error):
            process.kill() if kill else process.terminate()
            process.resume()  # a stopped one would not see the signal
    deadline = time.monotonic() + patience
    while left := [p for p in victims if _lives(p)]:
        if time.monotonic() > deadline:
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            deadline += 5
        await asyncio.sleep(0.03)
    if part:
        note_path(stack, part).unlink(missing_ok=True)
    return bool(victims)


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(process.pid, os.WNOHANG)
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def last_words(stack: Stack, part: str, lines: int = 6) -> str:
    """The end of the part's log since its last start."""
    try:
        text = log_path(stack, part).read_bytes()[-8000:].decode(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(f"  | {line[:300]}" for line in text.split("--- ")[-1].splitlines()[-lines:])
