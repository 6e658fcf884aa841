"""The client of OpenBao against a server that a test speaks for: what goes over the wire, what errors say, who we are.

The real OpenBao is asked in tests/e2e; here is what it would never answer.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from prometheus_client.parser import text_string_to_metric_families

from activities.dialled import tls
from activities.errors import OpenBaoError
from activities.openbao import OpenBao
from deploy.local.authority import authority
from tests.bao_by_hand import LOGIN, NAME, REVOKE_SELF, ROLE, TOKEN, Server, expired, serving
from tests.conftest import Told
from workflows.api.mariadbdatabase import Bao
from workflows.mariadbdatabase.schema import role

JWT = "eyJhbGciOi.the-jwt.signature"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as made:
        yield made


@pytest.fixture
def client(tmp_path: Path) -> OpenBao:
    file = tmp_path / "token"
    file.write_text(JWT + "\n")
    return OpenBao(file)


def soon(seconds: float = 20) -> float:
    return time.monotonic() + seconds


async def refusal(client: OpenBao, server: Server, **other: Any) -> OpenBaoError:
    """The error of reading a role."""
    with pytest.raises(OpenBaoError) as caught:
        async with client.session(other.get("bao", server.bao), other.get("pair", server.pair), other.get("until") or soon()) as session:  # noqa: E501  # fmt: skip
            await session.read_role(NAME)
    text = str(caught.value)
    assert JWT not in text
    assert TOKEN not in text
    return caught.value


async def test_requests_are_counted_by_method_and_answer(server: Server, client: OpenBao, told: Told) -> None:
    def counted() -> Counter[tuple[str, str]]:
        families = text_string_to_metric_families(told.text())
        samples = [each for family in families for each in family.samples]
        name = "c5c3_openbao_request_duration_seconds_count"
        return Counter({(s.labels["method"], s.labels["code"]): int(s.value) for s in samples if s.name == name})

    before = counted()
    server.says(f"GET {ROLE}", 503, {"errors": ["Vault is sealed"]})
    await refusal(client, server)
    await refusal(client, server, bao=Bao(server="https://127.0.0.1:9"))
    assert counted() - before == Counter(
        {("POST", "200"): 1, ("GET", "503"): 1, ("POST", "204"): 1, ("POST", "none"): 1}
    )


@pytest.mark.row("O04")
async def test_requests_are_part_of_the_steps_trace(server: Server, client: OpenBao, told: Told) -> None:
    with trace.get_tracer("test").start_as_current_span("step") as step:
        async with client.session(server.bao, server.pair, soon()) as session:
            await session.read_role(NAME)
    spans = [span for span in told.exporter.get_finished_spans() if span.name != "step"]
    assert [span.name for span in spans] == ["POST auth", "GET database", "POST auth"]
    assert all(span.parent == step.get_span_context() for span in spans)


async def test_a_session_logs_in_carries_its_token_and_gives_it_back(server: Server, client: OpenBao) -> None:
    wanted = role("a", "openstack")
    server.says(f"GET {ROLE}", 200, {"data": {**wanted, "default_ttl": 172800}})
    server.says(f"POST {ROLE}", 204, b"")
    async with client.session(server.bao, server.pair, soon()) as session:
        assert await session.read_role(NAME) == wanted
        await session.write_role(NAME, wanted)
    assert server.calls == [f"POST {LOGIN}", f"GET {ROLE}", f"POST {ROLE}", f"POST {REVOKE_SELF}"]
    login, read, write, _ = server.asked
    assert login.body == {"role": "c5c3-operator", "jwt": JWT}
    assert "X-Vault-Token" not in login.headers
    assert read.headers["X-Vault-Token"] == write.headers["X-Vault-Token"] == TOKEN
    assert read.headers["X-Vault-Request"] == "true"
    assert "X-Vault-Namespace" not in read.headers
    assert write.body == wanted


@pytest.mark.parametrize("mount", ["k", "k/", "/k"])
async def test_mount_and_namespace_are_the_stores(server: Server, client: OpenBao, mount: str) -> None:
    server.says("POST /v1/auth/k/login", 200, {"auth": {"client_token": TOKEN}})
    store = {"mount": mount, "namespace": "ns", "server": f"{server.bao.server}/"}
    async with client.session(server.bao.model_copy(update=store), server.pair, soon()):
        pass
    assert [one.headers["X-Vault-Namespace"] for one in server.asked] == ["ns", "ns"]


async def test_revocation_waits_and_absence_is_done(server: Server, client: OpenBao) -> None:
    async with client.session(server.bao, server.pair, soon()) as session:
        assert await session.read_role(NAME) is None
        await session.revoke(NAME)
        await session.delete_role(NAME)
    revoked = server.asked[2]
    assert (revoked.method, revoked.path) == ("POST", f"/v1/sys/leases/revoke-prefix/database/mariadb/creds/{NAME}")
    assert revoked.body == {"sync": True}


@pytest.mark.row("B02")
async def test_a_404_of_a_path_that_nobody_serves_is_an_error(server: Server, client: OpenBao) -> None:
    server.says(f"GET {ROLE}", 404, {"errors": ["no handler for route 'database/mariadb/roles/x'"]})
    error = await refusal(client, server)
    assert error.status == 404
    assert not error.passing
    assert "no handler for route" in str(error)


@pytest.mark.row("B02")
@pytest.mark.parametrize(
    ("status", "body", "words", "passing"),
    [
        (500, {"errors": ["one", "1 error occurred:\n\t* two\n"]}, "one; 1 error occurred: * two", True),
        (503, {"errors": ["Vault is sealed"]}, "Vault is sealed", True),
        (400, {"errors": ["no"]}, "no", False),
        (502, b"<html>bad gateway</html>", "<html>bad gateway</html>", True),
        (500, b"", "(an empty answer)", True),
        (429, {"errors": ["rate limit quota exceeded"]}, "rate limit quota exceeded", True),
        (472, {"errors": ["disaster recovery mode"]}, "disaster recovery mode", True),
        (473, b"", "(an empty answer)", True),
        (307, b"", "(an empty answer)", True),
    ],
)
async def test_an_error_says_status_method_path_and_what_openbao_said(
    server: Server, client: OpenBao, status: int, body: Any, words: str, passing: bool
) -> None:
    server.says(f"GET {ROLE}", status, body)
    error = await refusal(client, server)
    assert str(error) == f"OpenBao answered {status} to GET database/mariadb/roles/{NAME}: {words}"
    assert (error.status, error.passing) == (status, passing)
    assert server.calls[-1] == f"POST {REVOKE_SELF}", "the token is given back after a failure"


@pytest.mark.row("B01")
@pytest.mark.parametrize("status", [307, 308])
async def test_a_standby_sends_us_to_the_active_node_and_we_go(
    server: Server, client: OpenBao, tmp_path: Path, status: int
) -> None:
    """Once: with method, body and token, by the same authority and certificate, and never without TLS."""
    with serving(tmp_path) as active:  # of the same authority, which is in the folder
        server.says(f"POST {ROLE}", status, location=f"{active.bao.server}{ROLE}")
        active.says(f"POST {ROLE}", 204, b"")
        active.says(f"POST {REVOKE_SELF}", 204, b"")
        async with client.session(server.bao, server.pair, soon()) as session:
            await session.write_role(NAME, role("a", "openstack"))
        assert active.calls == [f"POST {ROLE}", f"POST {REVOKE_SELF}"], "and whoever answered is asked on"
        asked = active.asked[0]
        assert (asked.method, asked.body) == ("POST", role("a", "openstack"))
        assert asked.headers["X-Vault-Token"] == TOKEN
        active.says(f"GET {ROLE}", status, location=f"{server.bao.server}{ROLE}")
        server.says(f"GET {ROLE}", status, location=f"{active.bao.server}{ROLE}")
        error = await refusal(client, server)
        assert (error.status, error.passing) == (status, True)
        assert active.calls.count(f"GET {ROLE}") == 1
    for elsewhere in (f"http://127.0.0.1:{server.port}{ROLE}", "ftp://x", "https://[", "//", ""):
        server.says(f"GET {ROLE}", status, location=elsewhere)
        assert (await refusal(client, server)).passing
    other = authority(tmp_path / "other", "ca")
    with serving(tmp_path / "other") as stranger:
        assert stranger.ca == other
        server.says(f"GET {ROLE}", status, location=f"{stranger.bao.server}{ROLE}")
        assert "certificate verify failed" in str(await refusal(client, server))
        assert stranger.asked == []


@pytest.mark.row("B02")
@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_turn_a_write_into_a_read_is_not_followed(
    server: Server, client: OpenBao, status: int
) -> None:
    server.says(f"POST {ROLE}", status, location=f"{server.bao.server}{ROLE}")
    async with client.session(server.bao, server.pair, soon()) as session:
        with pytest.raises(OpenBaoError, match=f"answered {status} to POST"):
            await session.write_role(NAME, role("a", "openstack"))
    assert f"GET {ROLE}" not in server.calls


@pytest.mark.row("B02")
async def test_a_403_names_the_scripts_and_an_echo_of_ours_is_cut_out(server: Server, client: OpenBao) -> None:
    server.says(f"POST {LOGIN}", 403, {"errors": [f"permission denied for {JWT}"]})
    text = str(await refusal(client, server))
    for word in ("setup-auth.sh", "setup-policies.sh", "setup-database-tenant.sh", "403", "permission denied for …"):
        assert word in text
    assert server.calls == [f"POST {LOGIN}"], "there was no token to give back"
    server.says(f"POST {LOGIN}", 400, {"errors": ['invalid role name "c5c3-operator"']})
    assert "setup-auth.sh" in str(await refusal(client, server)), "so OpenBao says that the role is missing"
    server.says(f"POST {LOGIN}", 404, {"errors": ["no handler for route 'auth/kubernetes/management/login'"]})
    assert "setup-auth.sh" in str(await refusal(client, server)), "and so, that the mount is"
    server.says(f"POST {LOGIN}", 200, {"auth": {"client_token": TOKEN}})
    server.says(f"GET {ROLE}", 500, f"the token {TOKEN} is odd".encode())
    assert "the token … is odd" in str(await refusal(client, server))


@pytest.mark.row("B02")
@pytest.mark.parametrize("answer", [{"auth": {}}, {"auth": None}, {}, [], b"not json"])
async def test_a_login_without_a_token_is_an_error(server: Server, client: OpenBao, answer: Any) -> None:
    server.says(f"POST {LOGIN}", 200, answer)
    assert "without a token" in str(await refusal(client, server))


async def test_a_token_that_is_not_taken_back_is_only_logged(
    server: Server, client: OpenBao, caplog: pytest.LogCaptureFixture
) -> None:
    server.says(f"POST {REVOKE_SELF}", 500, {"errors": ["busy"]})
    async with client.session(server.bao, server.pair, soon()):
        pass
    assert "could not be revoked" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.row("B03")
@pytest.mark.parametrize("lacking", ["ca.crt", "tls.crt", "tls.key"])
async def test_all_three_parts_of_the_certificate_or_nothing(server: Server, client: OpenBao, lacking: str) -> None:
    for pair in ({k: v for k, v in server.pair.items() if k != lacking}, {**server.pair, lacking: b""}):
        assert lacking in str(await refusal(client, server, pair=pair))
    assert "cannot be used" in str(await refusal(client, server, pair={**server.pair, lacking: b"rubbish"}))
    assert server.asked == []


@pytest.mark.row("B03")
async def test_another_authority_is_not_trusted_and_plain_http_not_spoken(
    server: Server, client: OpenBao, tmp_path: Path
) -> None:
    other = authority(tmp_path / "other", "ca")
    error = await refusal(client, server, pair={**server.pair, "ca.crt": other.certificate.read_bytes()})
    assert "certificate verify failed" in str(error)
    assert "0x" not in str(error)
    with serving(tmp_path, "elsewhere.example.org") as other_host:
        error = await refusal(client, other_host)
        assert "certificate verify failed" in str(error)
        assert other_host.asked == []
    error = await refusal(client, server, bao=Bao(server=f"http://127.0.0.1:{server.port}"))
    assert "not https://" in str(error)
    assert server.asked == []


@pytest.mark.row("B03")
async def test_nobody_there_and_a_silent_server_are_errors_in_time(server: Server, client: OpenBao) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = Bao(server=f"https://127.0.0.1:{free.getsockname()[1]}")
    error = await refusal(client, server, bao=nobody)
    assert "Connection refused" in str(error)
    assert error.passing
    server.delay = 5
    began = time.monotonic()
    error = await refusal(client, server, until=soon(0.7))
    assert time.monotonic() - began < 3
    assert error.passing
    assert "gave no answer" in str(error)
    assert "no time left" in str(await refusal(client, server, until=soon(-1)))


@pytest.mark.row("B03")
async def test_an_answer_that_only_drips_is_given_up_in_time(server: Server, client: OpenBao) -> None:
    """Each byte comes soon enough for the socket; all of them do not."""
    server.says(f"POST {LOGIN}", 200, {"auth": {"client_token": TOKEN}})
    server.drip = 0.3
    began = time.monotonic()
    error = await refusal(client, server, until=soon(1))
    assert time.monotonic() - began < 3
    assert error.passing
    assert "gave no answer" in str(error)


@pytest.mark.row("B03")
async def test_a_certificate_that_has_expired_is_said_to_be(server: Server, client: OpenBao, tmp_path: Path) -> None:
    ended = expired(server.ca)
    error = await refusal(client, server, pair={**server.pair, "tls.crt": ended[0], "tls.key": ended[1]})
    assert "client certificate that has expired" in str(error) or "certificate expired" in str(error)
    assert error.passing, "cert-manager makes a new one, and each login reads it anew"
    assert server.asked == []


@pytest.mark.row("B03")
async def test_an_endless_answer_is_cut_off(server: Server, client: OpenBao) -> None:
    server.says(f"GET {ROLE}", 200, b"x" * (2 << 20))
    assert "longer than 1 MiB" in str(await refusal(client, server))


@pytest.mark.row("B03")
async def test_nothing_around_us_changes_who_we_are(
    server: Server, client: OpenBao, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Environment, home, proxies, certificate stores: each would either send us elsewhere or tell who we are."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".vault-token").write_text("s.of-the-home")
    (home / ".netrc").write_text("machine 127.0.0.1 login netrc password netrc\n")
    bad = str(tmp_path / "nothing-here")
    surroundings = {
        "HOME": str(home),
        "NETRC": str(home / ".netrc"),
        "SSLKEYLOGFILE": str(tmp_path / "keys"),
        **dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "all_proxy"), "http://127.0.0.1:1"),
        **dict.fromkeys(("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "VAULT_CACERT", "BAO_CACERT"), bad),
        **dict.fromkeys(("VAULT_ADDR", "BAO_ADDR"), "https://127.0.0.1:1"),
        **dict.fromkeys(("VAULT_TOKEN", "BAO_TOKEN"), "s.of-the-environment"),
        **dict.fromkeys(("VAULT_CLIENT_CERT", "VAULT_CLIENT_KEY", "VAULT_NAMESPACE", "VAULT_SKIP_VERIFY"), "1"),
    }
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    async with client.session(server.bao, server.pair, soon()) as session:
        assert await session.read_role(NAME) is None
    assert len(server.asked) == 3
    for one in server.asked:
        assert one.headers.get("X-Vault-Token", TOKEN) == TOKEN
        assert "Authorization" not in one.headers
        assert "X-Vault-Namespace" not in one.headers
    assert not (tmp_path / "keys").exists()


@pytest.mark.row("B03")
def test_the_key_is_a_file_without_a_name_and_only_while_it_is_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed at that moment leaves nothing: there was never a name to find it by."""
    seen: list[tuple[str, int, int]] = []
    real = ssl.SSLContext.load_cert_chain

    def watched(self: ssl.SSLContext, certfile: str, *rest: Any) -> None:
        found = os.stat(certfile)
        seen.append((os.readlink(certfile), found.st_nlink, found.st_uid))
        real(self, certfile, *rest)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    before = len(os.listdir("/proc/self/fd"))
    context = tls(server.pair)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    ((link, names, owner),) = seen
    assert link.startswith("/memfd:")
    assert names == 0
    assert owner == os.getuid()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(OpenBaoError):
        tls({**server.pair, "tls.key": b"rubbish"})
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.row("B02")
@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
async def test_a_token_that_cannot_be_read_is_an_error(server: Server, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "jwt"
    if content is not None:
        file.write_bytes(content)
    error = await refusal(OpenBao(file), server)
    assert str(file) in str(error)
    assert not error.passing
    assert server.asked == []


async def test_the_token_is_read_for_each_login(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "jwt"
    client = OpenBao(file)
    for each in ("one", "two"):
        file.write_text(each)
        async with client.session(server.bao, server.pair, soon()):
            pass
    assert [one.body["jwt"] for one in server.asked if one.path == LOGIN] == ["one", "two"]


@pytest.mark.parametrize("where", ["login", "read"])
async def test_a_cancelled_session_gives_its_token_back_all_the_same(
    server: Server, client: OpenBao, where: str
) -> None:
    server.delay = 0.4

    async def work() -> None:
        async with client.session(server.bao, server.pair, soon()) as session:
            await session.read_role(NAME)

    task = asyncio.create_task(work())
    await _until(lambda: len(server.asked) == (1 if where == "login" else 2))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await _until(lambda: server.calls[-1] == f"POST {REVOKE_SELF}")
    assert server.calls.count(f"POST {REVOKE_SELF}") == 1
    assert server.asked[-1].at - server.asked[-2].at >= server.delay, "not while a request that carries it goes on"


async def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
