"""The connection to Temporal, for the worker and the watcher alike.

A server that is not there yet is waited for, with a line that says so; a server that is there and cannot be used (no
such namespace, no search attributes, refused credentials) is an error with the command that helps.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest, ListSearchAttributesResponse
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, TLSConfig
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode

from worker.settings import ConnectionSettings
from worker.tracing import Tracing
from workflows.scaffold.search import ALL as SEARCH

_log = logging.getLogger(__name__)

_LONGEST_PAUSE = 10.0
_REFUSED = ("Unauthenticated", "PermissionDenied", "permission denied")
_NOT_OFFERED = frozenset({RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED})


class TemporalUnusable(Exception):
    """Temporal answers, but cannot serve us as it is; the text says what to do."""


async def connect(
    settings: ConnectionSettings, *, identity: str, runtime: Runtime | None = None, wait: bool = True
) -> Client:
    """A client of a server that answered and has our namespace.

    wait  for the server, for as long as it takes; else one that does not answer cannot be used
    """
    tls = await asyncio.to_thread(_tls, settings)
    pause = 1.0
    while True:
        try:
            client = await Client.connect(
                settings.temporal_address,
                namespace=settings.temporal_namespace,
                api_key=await asyncio.to_thread(settings.api_key),
                tls=tls,
                data_converter=pydantic_data_converter,
                interceptors=[Tracing()],
                connect_timeout=timedelta(seconds=5),
                identity=identity,
                runtime=runtime,
            )
            await _check_namespace(client, settings)
            return client
        except (RuntimeError, RPCError) as error:
            if any(word in str(error) for word in _REFUSED):
                raise TemporalUnusable(
                    f"Temporal at {settings.temporal_address} refuses our credentials: check C5C3_TEMPORAL_API_KEY"
                    " or C5C3_TEMPORAL_TLS_CERT and C5C3_TEMPORAL_TLS_KEY"
                ) from None
            if not wait:
                raise TemporalUnusable(
                    f"Temporal at {settings.temporal_address} does not answer ({_short(error)}): is that its address?"
                ) from None
            _log.warning(
                "waiting for Temporal at %s, next look in %g s: %s", settings.temporal_address, pause, _short(error)
            )
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


async def check_search_attributes(client: Client) -> None:
    """Raises TemporalUnusable with the exact command when a search attribute is missing or of another type."""
    answer = await _listed(client)
    if answer is None:
        return
    there = {**answer.system_attributes, **answer.custom_attributes}
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    where = f"--address {client.service_client.config.target_host} --namespace {client.namespace}"
    if other := [key.name for key in SEARCH if there.get(key.name, keyword) != keyword]:
        raise TemporalUnusable(
            f"the search attributes {', '.join(other)} of Temporal namespace {client.namespace} are not of type"
            f" Keyword: use another namespace, or remove them with `temporal operator search-attribute remove {where} "
            + " ".join(f"--name {name}" for name in other)
            + "` and start again"
        )
    if missing := [key.name for key in SEARCH if key.name not in there]:
        raise TemporalUnusable(
            f"Temporal namespace {client.namespace} lacks search attributes: run `temporal operator search-attribute"
            f" create {where} " + " ".join(f"--name {name} --type Keyword" for name in missing) + "` and start again"
        )


async def _listed(client: Client) -> ListSearchAttributesResponse | None:
    """The search attributes, or None where the server does not tell. A namespace made just now takes some seconds."""
    for again in range(20, -1, -1):
        try:
            return await client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace=client.namespace), retry=True, timeout=timedelta(seconds=10)
            )
        except RPCError as error:
            if error.status in _NOT_OFFERED:
                _log.warning("the search attributes could not be checked: %s", error.message)
                return None
            if error.status != RPCStatusCode.NOT_FOUND or not again:
                raise
        await asyncio.sleep(1)
    return None


async def _check_namespace(client: Client, settings: ConnectionSettings) -> None:
    try:
        await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace), timeout=timedelta(seconds=10)
        )
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise TemporalUnusable(
                f"Temporal at {settings.temporal_address} has no namespace {client.namespace!r}: set"
                " C5C3_TEMPORAL_NAMESPACE to one it has, or run `temporal operator namespace create"
                f" --address {settings.temporal_address} --namespace {client.namespace}`"
            ) from None
        if error.status not in _NOT_OFFERED:
            raise


def _tls(settings: ConnectionSettings) -> TLSConfig | bool:
    """TLS as the settings say; certificates or an API key mean that it is wanted."""
    ca, cert, key = (
        path.read_bytes() if path else None
        for path in (settings.temporal_tls_ca, settings.temporal_tls_cert, settings.temporal_tls_key)
    )
    if ca or cert:
        return TLSConfig(server_root_ca_cert=ca, client_cert=cert, client_private_key=key)
    return settings.temporal_tls or settings.api_key() is not None


def _short(error: Exception) -> str:
    """The last, most telling part of the SDK's nested connection errors."""
    return str(error).replace("\n", " ")[-300:]
