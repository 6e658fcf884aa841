"""Every wrong setting is told in a sentence that names it and helps, and no secret is in one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from worker.settings import BadSettings, ConnectionSettings, WorkerSettings, load


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("C5C3_")]:
        monkeypatch.delenv(name)


def test_nothing_set_is_fine() -> None:
    settings = load(WorkerSettings)
    assert (settings.temporal_address, settings.temporal_namespace, settings.task_queue) == (
        "localhost:7233", "default", "c5c3-orders",
    )  # fmt: skip
    assert settings.otlp_endpoint is None
    assert settings.http_bind == (None, 8080)
    assert settings.api_key() is None


WRONG = [
    ({"C5C3_TEMPORAL_ADRESS": "t:7233"}, "C5C3_TEMPORAL_ADRESS is not a setting: did you mean C5C3_TEMPORAL_ADDRESS?"),
    ({"C5C3_XYZZY": "1"}, "C5C3_XYZZY is not a setting: there are C5C3_TEMPORAL_ADDRESS,"),
    (
        {"C5C3_TEMPORAL_ADDRESS": "https://t:7233"},
        "C5C3_TEMPORAL_ADDRESS 'https://t:7233' cannot be used (it is HOST:PORT, as in localhost:7233): it is the"
        " Temporal frontend, HOST:PORT.",
    ),
    ({"C5C3_HTTP_ADDRESS": "8080"}, "C5C3_HTTP_ADDRESS '8080' cannot be used (it is HOST:PORT"),
    ({"C5C3_HTTP_ADDRESS": ":99999"}, "C5C3_HTTP_ADDRESS ':99999' cannot be used (it is HOST:PORT"),
    (
        {"C5C3_MAX_CONCURRENT_ACTIVITIES": "many"},
        "C5C3_MAX_CONCURRENT_ACTIVITIES 'many' cannot be used (input should be a valid integer",
    ),
    ({"C5C3_MAX_CONCURRENT_ACTIVITIES": "0"}, "(input should be greater than or equal to 1): it is how many steps"),
    ({"C5C3_GRACEFUL_SHUTDOWN_SECONDS": "5"}, "C5C3_GRACEFUL_SHUTDOWN_SECONDS '5' cannot be used (input should be gr"),
    ({"C5C3_LOG_LEVEL": "loud"}, "(input should be 'debug', 'info', 'warning' or 'error'): it is the least severe"),
    ({"C5C3_OTLP_ENDPOINT": "collector:4318"}, "(it is an http:// or https:// address, as in http://collector:4318)"),
    ({"C5C3_KUBECONFIG": "/nowhere/kubeconfig"}, "C5C3_KUBECONFIG '/nowhere/kubeconfig' cannot be used (path does not"),
    ({"C5C3_TEMPORAL_TLS_CA": "/nowhere/ca"}, "C5C3_TEMPORAL_TLS_CA '/nowhere/ca' cannot be used (path does not point"),
    ({"C5C3_TEMPORAL_TLS": "perhaps"}, "C5C3_TEMPORAL_TLS 'perhaps' cannot be used (input should be a valid boolean"),
    ({"C5C3_TEMPORAL_TLS_CERT": __file__}, "C5C3_TEMPORAL_TLS_CERT and C5C3_TEMPORAL_TLS_KEY belong together"),
    ({"C5C3_BUILD_ID": "1"}, "C5C3_DEPLOYMENT_NAME and C5C3_BUILD_ID belong together: set both or neither."),
]


@pytest.mark.parametrize(("environment", "sentence"), WRONG)
def test_wrong_settings(environment: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadSettings) as error:
        load(WorkerSettings)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_all_that_is_wrong_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("C5C3_LOG_LEVEL", "loud")
    monkeypatch.setenv("C5C3_TASK_QEUE", "x")
    monkeypatch.setenv("C5C3_OTLP_ENDPOINT", "x")
    with pytest.raises(BadSettings) as error:
        load(ConnectionSettings)
    assert [line.split()[0] for line in str(error.value).splitlines()] == [
        "C5C3_TASK_QEUE", "C5C3_LOG_LEVEL", "C5C3_OTLP_ENDPOINT",
    ]  # fmt: skip


def test_the_local_stacks_settings_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("C5C3_STACK_HOME", "/somewhere")
    load(ConnectionSettings)


def test_an_empty_value_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("C5C3_KUBECONFIG", "")
    assert load(WorkerSettings).kubeconfig is None


def test_the_api_key_comes_from_a_file_and_is_in_no_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text("s3cret-in-file\n")
    monkeypatch.setenv("C5C3_TEMPORAL_API_KEY_FILE", str(file))
    assert load(ConnectionSettings).api_key() == "s3cret-in-file"
    monkeypatch.setenv("C5C3_TEMPORAL_API_KEY", "s3cret")
    with pytest.raises(BadSettings, match="set one of them") as error:
        load(ConnectionSettings)
    assert "s3cret" not in str(error.value)
    monkeypatch.delenv("C5C3_TEMPORAL_API_KEY_FILE")
    settings = load(ConnectionSettings)
    assert settings.api_key() == "s3cret"
    assert "s3cret" not in repr(settings)
