"""`python -m deploy.openbao STEP`: prepares an OpenBao for the product. Run any step again at any time.

  setup-secret-engines                mounts: kv-v2, pki, database/mariadb, barbican
  setup-auth                          kubernetes and approle mounts, roles
  setup-policies                      the policies beside this file (after setup-auth)
  all                                 the three, in this order
  setup-database-tenant NAMESPACE CP  the database connection of a ControlPlane
  setup-eso-tenant NAMESPACE          the External Secrets store of a namespace

Everything is said on the command line, secrets by file ("-" is standard input); nothing is read from the environment.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deploy.openbao import layout
from deploy.openbao.bootstrap import Bootstrap, BootstrapError, Connection, Reviewer
from deploy.openbao.kubernetes import Cluster, tenant

STEPS = ("setup-secret-engines", "setup-auth", "setup-policies", "all")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m deploy.openbao", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = top.add_subparsers(dest="step", required=True, metavar="STEP")
    for name in (*STEPS, "setup-database-tenant", "setup-eso-tenant"):
        step = steps.add_parser(name)
        step.add_argument("--url", required=True, help="OpenBao's address, https://openbao.shared-services.svc:8200")
        if name != "setup-eso-tenant":
            step.add_argument("--ca", required=True, help="file: the authority of OpenBao's certificate")
            step.add_argument("--cert", required=True, help="file: client certificate")
            step.add_argument("--key", required=True, help="file: key of the client certificate")
            step.add_argument("--token-file", required=True, help="file with the token, - for standard input")
        if name in ("setup-auth", "all"):
            step.add_argument("--kubernetes-host", default=Reviewer.host, help="the management cluster's API server")
            step.add_argument("--kubernetes-ca", help="file: its authority, where OpenBao does not run in that cluster")
            step.add_argument("--reviewer-token-file", help="file: a token that may review tokens, likewise")
            step.add_argument("--operator-service-account", default="c5c3-operator")
            step.add_argument("--operator-namespace", default="c5c3-system")
        if name.endswith("-tenant"):
            step.add_argument("namespace", help="the ControlPlane's namespace, or the one that gets the store")
            step.add_argument("--kubeconfig", required=True, help="file: the management cluster")
            step.add_argument("--kubectl", default="kubectl", help="the kubectl to use")
        if name == "setup-database-tenant":
            step.add_argument("plane", help="the ControlPlane's name")
            step.add_argument("--address", help="host:port of the MariaDB, where its Service is not reachable")
    return top


def run(options: argparse.Namespace) -> None:
    """One step."""
    if options.step == "setup-eso-tenant":
        cluster = Cluster(options.kubeconfig, options.kubectl)
        cluster.apply(layout.tenant_store(options.namespace, options.url))
        return
    cert = (options.cert, options.key)
    bootstrap = Bootstrap(Connection(options.url, options.ca, cert, _secret(options.token_file)))
    if options.step == "setup-database-tenant":
        cluster = Cluster(options.kubeconfig, options.kubectl)
        bootstrap.database_tenant(*tenant(cluster, options.namespace, options.plane, options.address))
    if options.step in ("setup-secret-engines", "all"):
        bootstrap.secret_engines()
    if options.step in ("setup-auth", "all"):
        if bool(options.kubernetes_ca) != bool(options.reviewer_token_file):
            raise BootstrapError("--kubernetes-ca and --reviewer-token-file are given together or not at all")
        ca = Path(options.kubernetes_ca).read_text() if options.kubernetes_ca else None
        jwt = _secret(options.reviewer_token_file) if options.reviewer_token_file else None
        reviewer = Reviewer(options.kubernetes_host, ca, jwt)
        bootstrap.auth(reviewer, options.operator_service_account, options.operator_namespace)
    if options.step in ("setup-policies", "all"):
        bootstrap.policies()


def _secret(file: str) -> str:
    text = (sys.stdin.read() if file == "-" else Path(file).read_text()).strip()
    if not text:
        raise BootstrapError(f"{'standard input' if file == '-' else file} is empty, expected a token")
    return text


def main() -> int:
    """Says what went wrong in one sentence."""
    try:
        run(parser().parse_args())
    except (BootstrapError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
