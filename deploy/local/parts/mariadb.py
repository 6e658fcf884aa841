"""MariaDB 10.11: the database of Keystone and of the ordered schemas, on its own data directory and port.

Uses the machine's mariadbd when there is one, else an unpacked Debian package; either way it runs as whoever calls.
Root's password is set by an init file, before the first connection can be made.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
from pathlib import Path
from typing import Any

import pymysql
from pymysql.cursors import Cursor

from deploy.local import debian
from deploy.local.commands import password, run
from deploy.local.files import write_secret
from deploy.local.part import Part, Process, Stack, say

_REMEDY = "install the Debian package mariadb-server (10.11 or newer), then run this again"
_PACKAGES = ("mariadb-server", "mariadb-server-core", "mariadb-client-core", "mariadb-common")
_PROGRAMS = ("usr/sbin/mariadbd", "usr/bin/my_print_defaults", "usr/bin/resolveip")


def root_password(stack: Stack) -> str:
    """The password of MariaDB's root, generated once."""
    return password(_folder(stack) / "root-password")


def connect(stack: Stack, *, timeout: float = 5) -> pymysql.Connection[Cursor]:
    """A connection as root with autocommit. Blocking: call it in a thread."""
    return pymysql.connect(
        host="127.0.0.1",
        port=stack.ports["mariadb"],
        user="root",
        password=root_password(stack),
        connect_timeout=int(timeout),
        read_timeout=timeout,
        charset="utf8mb4",
        autocommit=True,
    )


def execute(stack: Stack, *statements: tuple[str, tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Runs statements as root and answers the rows of the last one. Blocking."""
    connection = connect(stack, timeout=30)
    try:
        with connection.cursor() as cursor:
            for text, values in statements:
                cursor.execute(text, values or None)
            return list(cursor.fetchall())
    finally:
        connection.close()


class MariaDB(Part):
    """The part."""

    name = "mariadb"
    needs: tuple[str, ...] = ()
    port_names = ("mariadb",)

    async def prepare(self, stack: Stack) -> None:
        """Finds or unpacks the server, then lays out the data directory under a scratch name and renames it."""
        usr = _installed()
        if usr is None:
            say("unpacking MariaDB")
            usr = await debian.unpack(stack.home, "mariadb", _PACKAGES, _PROGRAMS, _REMEDY) / "usr"
        folder = _folder(stack)
        _write_init_file(stack)
        data = folder / "data"
        if data.exists():
            return
        say("making MariaDB's data directory")
        scratch = folder / "data.new"
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        await run(
            usr / "bin" / "mariadb-install-db",
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-name-resolve",
            "--skip-test-db",
            f"--user={getpass.getuser()}",
            f"--basedir={usr}",
            f"--datadir={scratch}",
            f"--lc-messages-dir={usr / 'share' / 'mysql'}",
            env=_environment(usr),
            remedy=f"look into {folder} and remove it to start afresh",
        )
        scratch.rename(data)

    def process(self, stack: Stack) -> Process:
        """The server. The socket's name is relative: a deep folder would be too long for the kernel."""
        folder = _folder(stack)
        usr = _installed() or stack.home / "debian" / "mariadb" / "usr"
        argv = (
            str(usr / "sbin" / "mariadbd"),
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--basedir={usr}",
            f"--datadir={folder / 'data'}",
            f"--plugin-dir={usr / 'lib' / 'mysql' / 'plugin'}",
            f"--lc-messages-dir={usr / 'share' / 'mysql'}",
            f"--character-sets-dir={usr / 'share' / 'mysql' / 'charsets'}",
            f"--init-file={folder / 'init.sql'}",
            "--bind-address=127.0.0.1",
            f"--port={stack.ports['mariadb']}",
            "--socket=mariadb.sock",
            "--pid-file=mariadb.pid",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--character-set-server=utf8mb3",
            "--collation-server=utf8mb3_general_ci",
            "--max-connections=300",
            "--innodb-buffer-pool-size=64M",
            "--innodb-flush-log-at-trx-commit=2",
        )
        return Process(argv, _environment(usr))

    async def ready(self, stack: Stack) -> bool:
        """Whether root can log in: the init file has run by then."""

        def probe() -> bool:
            try:
                connect(stack, timeout=1).close()
            except (pymysql.MySQLError, OSError):
                return False
            return True

        return await asyncio.to_thread(probe)


def _folder(stack: Stack) -> Path:
    return stack.folder / "mariadb"


def _installed() -> Path | None:
    for folder in (*os.environ.get("PATH", "").split(os.pathsep), "/usr/sbin", "/usr/local/sbin"):
        program = Path(folder) / "mariadbd"
        if folder and os.access(program, os.X_OK):
            return program.resolve().parent.parent
    return None


def _environment(usr: Path) -> dict[str, str]:
    libraries = "" if usr == _installed() else debian.library_path(usr.parent)
    return {"LD_LIBRARY_PATH": libraries} if libraries else {}


def _write_init_file(stack: Stack) -> None:
    secret = root_password(stack)  # url-safe letters only, so quoting is enough
    statements = [
        f"SET PASSWORD FOR 'root'@'localhost' = PASSWORD('{secret}');",
        "DROP USER IF EXISTS 'root'@'127.0.0.1', 'root'@'::1';",
        f"CREATE OR REPLACE USER 'root'@'%' IDENTIFIED BY '{secret}';",
        "GRANT ALL PRIVILEGES ON *.* TO 'root'@'%' WITH GRANT OPTION;",
    ]
    write_secret(_folder(stack) / "init.sql", "\n".join([*statements, ""]).encode())


PARTS = (MariaDB(),)
