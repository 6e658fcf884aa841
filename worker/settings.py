"""The settings of the programs, from the environment: `C5C3_` and the field's name in capitals.

Whatever is wrong with them ends as sentences that name the variable and say what it is for, no secret among them.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    DirectoryPath,
    Field,
    FilePath,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from worker.encryption import NONE, active_key, read_keys

PREFIX = "C5C3_"
_NOT_OURS = "C5C3_STACK_"  # the local stack's own settings, set beside ours on a developer's machine

LONGEST_STEP_SECONDS = 25
"""The longest start-to-close time of a step: a shutdown that waits less cuts steps short."""


class BadSettings(Exception):
    """The environment does not say how to run; one sentence a line."""


def _host_port(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535 or "/" in host:
        raise ValueError("it is HOST:PORT, as in localhost:7233")
    return value


def _http_url(value: str) -> str:
    if urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname:
        raise ValueError("it is an http:// or https:// address, as in http://collector:4318")
    return value


Address = Annotated[str, AfterValidator(_host_port)]


class ConnectionSettings(BaseSettings):
    """What the worker and the watcher share: the Temporal server, telemetry, the management cluster."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
        populate_by_name=True,
    )

    temporal_address: Address = Field("localhost:7233", description="the Temporal frontend, HOST:PORT")
    temporal_namespace: str = Field("default", description="the Temporal namespace, which must exist")
    task_queue: str = Field("c5c3-orders", description="the task queue that the workers poll and the watcher starts on")
    temporal_tls: bool = Field(False, description="whether to speak TLS; certificates or an API key imply it")
    temporal_tls_ca: FilePath | None = Field(None, description="a PEM file with the authority of the server")
    temporal_tls_cert: FilePath | None = Field(None, description="a PEM file with our client certificate")
    temporal_tls_key: FilePath | None = Field(None, description="a PEM file with the client certificate's key")
    temporal_tls_server_name: str | None = Field(
        None, description="the name in the server's certificate, where it is not the address's"
    )
    temporal_api_key: SecretStr | None = Field(None, description="the API key of a server that asks for one")
    temporal_api_key_file: FilePath | None = Field(None, description="a file that holds the API key")
    payload_keys_dir: DirectoryPath | None = Field(
        None,
        description="a folder with the keys that encrypt what Temporal keeps, a file each; without it none do",
    )
    payload_key: str | None = Field(
        None, description=f"the file name of the key for new payloads, where there are several; or {NONE}"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="the least severe log line")
    otlp_endpoint: Annotated[str, AfterValidator(_http_url)] | None = Field(
        None, description="the OTLP/HTTP collector that traces go to; without it none are sent"
    )
    http_address: Address = Field(":8080", description="where /healthz, /readyz and /metrics listen, [HOST]:PORT")
    kubeconfig: FilePath | None = Field(
        None, description="a kubeconfig of the management cluster; without it the pod's ServiceAccount is used"
    )
    clusters_namespace: str = Field("c5c3-clusters", description="the namespace of the Secrets that register clusters")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.temporal_tls_cert is None) != (self.temporal_tls_key is None):
            raise ValueError("C5C3_TEMPORAL_TLS_CERT and C5C3_TEMPORAL_TLS_KEY belong together: set both or neither")
        if self.temporal_api_key and self.temporal_api_key_file:
            raise ValueError("C5C3_TEMPORAL_API_KEY and C5C3_TEMPORAL_API_KEY_FILE say the same thing: set one of them")
        if self.payload_keys_dir:
            active_key(read_keys(self.payload_keys_dir), self.payload_key, self.payload_keys_dir)
        elif self.payload_key:
            raise ValueError("C5C3_PAYLOAD_KEY names a key of C5C3_PAYLOAD_KEYS_DIR, which is not set: set it")
        return self

    @property
    def http_bind(self) -> tuple[str | None, int]:
        """Host (None for every interface) and port of `http_address`."""
        host, _, port = self.http_address.rpartition(":")
        return host.strip("[]") or None, int(port)

    def api_key(self) -> str | None:
        """The API key, from the environment or its file."""
        if self.temporal_api_key_file:
            return self.temporal_api_key_file.read_text().strip()
        return self.temporal_api_key.get_secret_value() if self.temporal_api_key else None


class WorkerSettings(ConnectionSettings):
    """What the worker alone needs."""

    operator_namespace: str = Field(
        "c5c3-system", description="the namespace that worker and watcher run in, with the watcher's Lease"
    )
    reference_namespace: str = Field(
        "c5c3-system", description="the namespace in which the reference operator would hold its Lease"
    )
    serve_beside_reference: bool = Field(
        False, description="whether to start although the reference operator runs, because it serves other kinds"
    )
    service_account_token_file: Path = Field(
        Path("/var/run/secrets/kubernetes.io/serviceaccount/token"),
        description="the file with the ServiceAccount token that logs in to OpenBao, read at each login",
    )
    # K-ORC does one thing after another, and so does this process: what more would begin now would only wait, and past
    # its deadline begin anew. In Temporal's queue it costs nothing, and control planes take turns there.
    max_concurrent_activities: int = Field(16, ge=1, le=10_000, description="how many steps run at once")
    max_concurrent_workflow_tasks: int = Field(50, ge=2, le=1000, description="how many orders are decided at once")
    max_cached_workflows: int = Field(1000, ge=0, le=100_000, description="how many orders are kept in memory")
    graceful_shutdown_seconds: int = Field(
        30, gt=LONGEST_STEP_SECONDS, le=600, description="how long running steps may take to finish at a shutdown"
    )
    # The worker controller of Temporal tells each pod the two by names of its own.
    deployment_name: str | None = Field(
        None,
        validation_alias=AliasChoices("C5C3_DEPLOYMENT_NAME", "TEMPORAL_DEPLOYMENT_NAME"),
        description="the Temporal worker deployment, to version the workers",
    )
    build_id: str | None = Field(
        None,
        validation_alias=AliasChoices("C5C3_BUILD_ID", "TEMPORAL_WORKER_BUILD_ID"),
        description="the version of this worker within its deployment",
    )

    @model_validator(mode="after")
    def _versioned(self) -> Self:
        if (self.deployment_name is None) != (self.build_id is None):
            raise ValueError("C5C3_DEPLOYMENT_NAME and C5C3_BUILD_ID belong together: set both or neither")
        return self


S = TypeVar("S", bound=BaseSettings)


def load(settings: type[S], **given: Any) -> S:
    """The settings as the environment has them. Raises BadSettings with everything that is wrong, a sentence a line.

    given  what was said beside the environment, and is above it
    """
    wrong = [_unknown(name, settings) for name in sorted(os.environ) if _is_unknown(name, settings)]
    try:
        loaded = settings(**given)
    except ValidationError as error:
        wrong += [
            _sentence(settings, dict(detail)) for detail in error.errors(include_url=False, include_context=False)
        ]
    if wrong:
        raise BadSettings("\n".join(wrong))
    return loaded


def _is_unknown(name: str, settings: type[BaseSettings]) -> bool:
    upper = name.upper()
    if not upper.startswith(PREFIX) or upper.startswith(_NOT_OURS):
        return False
    return upper.removeprefix(PREFIX).lower() not in settings.model_fields


def _unknown(name: str, settings: type[BaseSettings]) -> str:
    known = [PREFIX + field.upper() for field in settings.model_fields]
    near = difflib.get_close_matches(name.upper(), known, n=1)
    return f"{name} is not a setting: " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}.")


def _sentence(settings: type[BaseSettings], detail: dict[str, Any]) -> str:
    said = str(detail["msg"]).removeprefix("Value error, ")
    field = settings.model_fields.get(str(detail["loc"][0])) if detail["loc"] else None
    if field is None:
        return said + "."
    name = PREFIX + str(detail["loc"][0]).upper()
    if detail["type"] == "missing":
        return f"{name} is not set: it is {field.description}."
    value = "" if _secret(field) else f" {_shown(detail['input'])!r}"
    return f"{name}{value} cannot be used ({said[:1].lower()}{said[1:]}): it is {field.description}."


def _secret(field: FieldInfo) -> bool:
    return SecretStr in (field.annotation, *get_args(field.annotation))


def _shown(value: object) -> str:
    return str(value) if isinstance(value, Path) or len(str(value)) < 200 else str(value)[:200] + "…"
