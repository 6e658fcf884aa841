"""Keystone 30 in a virtual environment of its own, over MariaDB, behind uvicorn with TLS.

Whether its schema and first objects are there is asked of the database, so nothing can disagree with it. The schema
compares names ignoring case and accents, as a Keystone on MySQL does in production.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import shutil
import ssl
import sys
from importlib import resources
from pathlib import Path

import pymysql

from deploy.local.authority import LOCAL_NAMES, Pair, authority, issue
from deploy.local.commands import password, run
from deploy.local.files import write_secret
from deploy.local.part import Part, Process, Stack, say
from deploy.local.parts import mariadb
from deploy.local.programs import alone

REGION = "RegionOne"
_REMEDY = "see the reason above it in the log, or remove the instance's folder to start afresh"

# keystone reads the arguments of whatever program it runs in: it must not see uvicorn's.
_WSGI = """import sys

sys.argv = sys.argv[:1]
from a2wsgi import WSGIMiddleware
from keystone.server.wsgi import initialize_public_application

application = WSGIMiddleware(initialize_public_application(), workers=8)
"""

# `keystone-manage db_sync` and `bootstrap` in one go: each alone spends seconds on importing keystone.
_MANAGE = """import sys
from keystone.cmd import cli
from keystone.conf import CONF

file, *words = sys.argv[1:]
for command in (["db_sync"], ["bootstrap", *words]):
    CONF.clear()
    cli.main(argv=["keystone-manage", "--config-file", file, *command])
"""

_CONFIGURATION = """[DEFAULT]
use_stderr = true
default_log_levels = keystone=WARNING,oslo=WARNING,sqlalchemy=WARNING
public_endpoint = {url}

[database]
connection = mysql+pymysql://keystone:{password}@127.0.0.1:{port}/keystone?charset=utf8mb3
max_pool_size = 20

[identity]
password_hash_rounds = 4

[token]
expiration = 14400

[fernet_tokens]
key_repository = {folder}/fernet

[fernet_receipts]
key_repository = {folder}/fernet

[credential]
key_repository = {folder}/credential

[cache]
enabled = true
backend = dogpile.cache.memory
"""


def auth_url(stack: Stack) -> str:
    """Where Keystone is: what a client's `auth_url` says."""
    return f"https://127.0.0.1:{stack.ports['keystone']}/v3"


def admin_password(stack: Stack) -> str:
    """The password of the user `admin`, generated once."""
    return password(_folder(stack) / "admin-password")


def authority_pair(stack: Stack) -> Pair:
    """The authority that Keystone's certificate is signed by."""
    return authority(_folder(stack) / "tls", "keystone-ca")


class Keystone(Part):
    """The part."""

    name = "keystone"
    needs: tuple[str, ...] = ("mariadb",)
    port_names = ("keystone",)
    patience = 120

    def __init__(self) -> None:
        self._begun: dict[Path, asyncio.Task[None]] = {}

    async def prepare(self, stack: Stack) -> None:
        """The virtual environment (a minute, once for all instances), keys and configuration."""
        await _environment(stack.home)
        folder = _folder(stack)
        issue(authority_pair(stack), folder / "tls", "keystone", LOCAL_NAMES)
        write_secret(folder / "wsgi.py", _WSGI.encode())
        configuration = _CONFIGURATION.format(
            url=auth_url(stack).removesuffix("/v3"),
            password=password(folder / "database-password"),
            port=stack.ports["mariadb"],
            folder=folder,
        )
        write_secret(folder / "keystone.conf", configuration.encode())
        for kind in ("fernet", "credential"):
            for number in ("0", "1"):  # the staged key and the primary one
                if not (folder / kind / number).exists():
                    write_secret(folder / kind / number, base64.urlsafe_b64encode(secrets.token_bytes(32)))
            (folder / kind).chmod(0o700)  # or keystone warns at each start

    async def configure(self, stack: Stack) -> None:
        """Begins to fill the database while the server starts, which does not look at it before the first request."""
        self._begun[stack.folder] = asyncio.create_task(_fill(stack))

    def process(self, stack: Stack) -> Process:
        """One process: its memory is the cache, which makes a request ten times cheaper and must not have a twin.

        Each write invalidates what it changes: a list of projects takes 0.04 s of CPU instead of 1.0 (63 queries, most
        of them the same token's roles).

        Not gunicorn: its threads were seen to lose TLS connections, its plain workers are blocked by silent ones. Idle
        connections are kept for longer than clients keep them, so the server never closes one under a request.
        """
        folder = _folder(stack)
        argv = (
            *(str(_venv(stack.home) / "bin" / "python"), "-m", "uvicorn"),
            *("--host=127.0.0.1", f"--port={stack.ports['keystone']}"),
            f"--ssl-certfile={folder / 'tls' / 'keystone.crt'}",
            f"--ssl-keyfile={folder / 'tls' / 'keystone.key'}",
            *("--interface=asgi3", "--lifespan=off"),
            *("--timeout-keep-alive=300", "--timeout-graceful-shutdown=3"),
            *("--log-level=warning", "--no-access-log"),
            "wsgi:application",
        )
        files = ("keystone.conf", "wsgi.py", "tls/keystone.crt")
        read = hashlib.sha256(b"".join((folder / file).read_bytes() for file in files))
        return Process(argv, _variables(folder), folder, read.hexdigest())

    async def ready(self, stack: Stack) -> bool:
        """Whether the version document is served, over TLS that verifies."""
        return await asyncio.to_thread(_answers, auth_url(stack), authority_pair(stack).certificate)

    async def bootstrap(self, stack: Stack) -> None:
        """Waits for what `configure` began."""
        if begun := self._begun.pop(stack.folder, None):
            await begun


async def _fill(stack: Stack) -> None:
    """Schema, admin, roles, catalog: once, unless the database says that they are there."""
    if await asyncio.to_thread(_filled, stack):
        return
    say("making its schema")
    folder = _folder(stack)
    await asyncio.to_thread(
        mariadb.execute,
        stack,
        ("CREATE DATABASE IF NOT EXISTS keystone CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci", ()),
        ("CREATE OR REPLACE USER 'keystone'@'%%' IDENTIFIED BY %s", (password(folder / "database-password"),)),
        ("GRANT ALL PRIVILEGES ON keystone.* TO 'keystone'@'%'", ()),
    )
    url = auth_url(stack)
    await run(
        _venv(stack.home) / "bin" / "python",
        *("-c", _MANAGE, folder / "keystone.conf"),
        *("--bootstrap-username", "admin", "--bootstrap-project-name", "admin", "--bootstrap-role-name", "admin"),
        *("--bootstrap-service-name", "keystone", "--bootstrap-region-id", REGION),
        *("--bootstrap-public-url", url, "--bootstrap-internal-url", url, "--bootstrap-admin-url", url),
        env={**_variables(folder), "OS_BOOTSTRAP_PASSWORD": admin_password(stack)},
        remedy=_REMEDY,
    )


def _folder(stack: Stack) -> Path:
    return stack.folder / "keystone"


def _lock() -> Path:
    return Path(str(resources.files("deploy.local") / "keystone.lock"))


def _venv(home: Path) -> Path:
    """The environment for this lock file and this Python: another lock is another folder."""
    digest = hashlib.sha256(_lock().read_bytes()).hexdigest()[:12]
    return home / "venvs" / f"keystone-{digest}-py{sys.version_info.major}{sys.version_info.minor}"


async def _environment(home: Path) -> Path:
    venv = _venv(home)
    done = venv / "complete"
    async with alone(home / "venvs" / ".keystone.lock"):
        if not done.exists():
            remedy = "check that Python's venv module is installed and that pip reaches its package index"
            say("installing Keystone into a virtual environment")
            await asyncio.to_thread(shutil.rmtree, venv, ignore_errors=True)
            await run(sys.executable, "-m", "venv", venv, remedy=remedy)
            pip = (
                venv / "bin" / "python",
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-compile",
            )
            await run(*pip, "--no-deps", "--require-hashes", "--requirement", _lock(), remedy=remedy, timeout=1800)
            done.touch()
    return venv


def _variables(folder: Path) -> dict[str, str]:
    return {
        "OS_KEYSTONE_CONFIG_DIR": str(folder),
        "OS_KEYSTONE_CONFIG_FILES": "keystone.conf",
        "PYTHONWARNINGS": "ignore",
    }


def _answers(url: str, certificate: Path) -> bool:
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=2, context=ssl.create_default_context(cafile=str(certificate))) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _filled(stack: Stack) -> bool:
    """The last thing that the bootstrap writes is the catalog's endpoints."""
    query = "SELECT COUNT(*) FROM keystone.endpoint WHERE url = %s"
    try:
        return bool(mariadb.execute(stack, (query, (auth_url(stack),)))[0][0] == 3)
    except pymysql.MySQLError:
        return False


PARTS = (Keystone(),)
