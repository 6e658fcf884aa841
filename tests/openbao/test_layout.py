"""What OpenBao is told to hold, as data: names, grants and isolation, without a server."""

from __future__ import annotations

import re

import pytest

from deploy.openbao import layout
from deploy.openbao.__main__ import main, parser
from deploy.openbao.bootstrap import Connection, Reviewer

OWN = "{{identity.entity.aliases.auth_kubernetes_1.metadata.service_account_namespace}}"
TEXTS = layout.policy_texts("auth_kubernetes_1")


def grants(policy: str) -> dict[str, set[str]]:
    found = re.findall(r'path "([^"]+)" \{\s*capabilities = \[([^\]]*)\]\s*\}', TEXTS[policy])
    return {path: set(re.findall(r'"(\w+)"', words)) for path, words in found}


def test_every_role_has_its_policy_and_every_policy_its_role() -> None:
    used = {role.policy for role in layout.roles()}
    assert used | {"ci-cd-provisioner"} == set(TEXTS)


def test_the_accessor_is_filled_in_everywhere() -> None:
    assert not any(layout.ACCESSOR in text for text in TEXTS.values())
    with pytest.raises(ValueError, match="setup-auth"):
        layout.policy_texts("")


def test_the_operator_writes_roles_of_orders_revokes_them_and_nothing_else() -> None:
    assert grants("c5c3-operator") == {
        "database/mariadb/roles/order.*": {"create", "read", "update", "delete"},
        "sys/leases/revoke-prefix/database/mariadb/creds/order.*": {"update", "sudo"},
    }


def test_a_namespace_reads_credentials_of_its_own_orders_only() -> None:
    # The dot before the glob: "open" must not read what was ordered in "openstack".
    assert grants("order-db-dynamic") == {f"database/mariadb/creds/order.{OWN}.*": {"read"}}


@pytest.mark.parametrize("service", ["keystone", "glance", "placement", "barbican"])
def test_a_service_reads_its_own_role_without_a_wildcard(service: str) -> None:
    assert grants(f"{service}-db-dynamic") == {f"database/mariadb/creds/{service}-{OWN}": {"read"}}


def test_everything_a_tenant_may_touch_is_below_its_own_namespace() -> None:
    paths = grants("eso-tenant")
    assert all(f"/{OWN}/" in path for path in paths)
    assert not any("infrastructure" in path for path in paths)


def test_a_delivered_account_can_be_deleted_with_its_metadata() -> None:
    path = f"openstack/keystone/{OWN}/+/service-accounts/+"
    everything = {"create", "read", "update", "delete"}
    assert grants("eso-tenant")[f"kv-v2/data/{path}"] == everything
    assert grants("eso-tenant")[f"kv-v2/metadata/{path}"] == everything
    assert "delete" not in grants("eso-tenant")[f"kv-v2/metadata/openstack/keystone/{OWN}/+/admin/app-credential"]


def test_roles_bind_one_account_each_and_live_as_long_as_their_leases() -> None:
    roles = {role.name: role for role in layout.roles()}
    assert set(roles) == {
        "eso-management",
        "eso-tenant",
        "keystone-db",
        "glance-db",
        "placement-db",
        "barbican-db",
        "order-db",
        "c5c3-operator",
    }
    assert (roles["order-db"].account, roles["order-db"].namespace, roles["order-db"].ttl) == (
        "order-db-creds",
        "*",
        72 * layout.HOUR,
    )
    operator = roles["c5c3-operator"]
    assert (operator.account, operator.namespace, operator.max_ttl) == ("c5c3-operator", "c5c3-system", 900)


def test_the_operators_role_is_never_for_everybody() -> None:
    with pytest.raises(ValueError, match="never to"):
        layout.roles(operator_namespace="*")


def test_a_connection_serves_keystone_and_the_orders_of_its_plane() -> None:
    tenant = layout.Tenant("openstack", "identity", "maria.identity.svc:3306", "key_stone")
    body = tenant.connection("s3cret")
    assert tenant.name == "keystone-identity"
    assert body["allowed_roles"] == ["keystone-identity", "order.openstack.*"]
    assert body["connection_url"] == "{{username}}:{{password}}@tcp(maria.identity.svc:3306)/"
    assert body["verify_connection"] is False


def test_an_underscore_in_a_grant_is_no_wildcard() -> None:
    statements = layout.Tenant("openstack", "openstack", "x:1", "key_stone").role()["creation_statements"]
    assert statements[1] == "GRANT ALL PRIVILEGES ON `key\\_stone`.* TO '{{name}}'@'%';"


def test_outside_the_cluster_the_reviewer_is_named() -> None:
    assert Reviewer().body() == {"kubernetes_host": "https://kubernetes.default.svc"}
    assert Reviewer("https://there", "CA", "JWT").body()["disable_local_ca_jwt"] is True


def test_a_connection_prints_no_token() -> None:
    assert "hvs." not in repr(Connection("https://bao", "ca", ("crt", "key"), "hvs.secret"))


def test_the_command_line_takes_no_token() -> None:
    options = [action.dest for action in parser()._subparsers._group_actions[0].choices["all"]._actions]  # type: ignore[union-attr, index]
    assert "token" not in options
    assert {"url", "ca", "cert", "key", "token_file"} <= set(options)


def test_an_absent_file_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["x", "setup-policies", "--url=https://b", "--ca=/no", "--cert=/no", "--key=/no", "--token-file=/no/token"]
    monkeypatch.setattr("sys.argv", argv)
    assert main() == 1
    assert "/no/token" in capsys.readouterr().err


@pytest.mark.parametrize(("length", "long"), [(38, True), (39, False), (63, False)])
def test_a_tenants_certificate_has_a_name_that_cert_manager_takes(length: int, long: bool) -> None:
    namespace = "n" * length
    (certificate,) = [each for each in layout.tenant_store(namespace, "https://b") if each["kind"] == "Certificate"]
    name = certificate["spec"]["commonName"]
    assert name == f"eso-tenant-client-tls{f'.{namespace}.svc' if long else ''}"
    assert len(name) <= 64
