"""The connection to Temporal, for the worker, the watcher and whoever else reads what they wrote.

A server that is not there yet is waited for, with a line that says so; a server that is there and cannot be used (no
such namespace, no search attributes, refused credentials) is an error with the command that helps.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest, ListSearchAttributesResponse
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode

from worker import credentials
from worker.credentials import BadCredentials
from worker.encryption import NONE, Sealed
from worker.settings import ConnectionSettings
from worker.tracing import Tracing
from workflows.scaffold.search import ALL as SEARCH

_log = logging.getLogger(__name__)

_LONGEST_PAUSE = 10.0
_LOOK_SECONDS = 30.0
_NOT_OFFERED = frozenset({RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED})


class TemporalUnusable(Exception):
    """Temporal answers, but cannot serve us as it is; the text says what to do."""


def data_converter(settings: ConnectionSettings) -> DataConverter:
    """How arguments, results and failures are written and read: encrypted where there are keys for it."""
    if settings.payload_keys_dir is None:
        return pydantic_data_converter
    codec = Sealed(settings.payload_keys_dir, settings.payload_key)
    if settings.payload_key == NONE:
        return dataclasses.replace(pydantic_data_converter, payload_codec=codec)
    return dataclasses.replace(
        pydantic_data_converter,
        payload_codec=codec,
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


async def connect(
    settings: ConnectionSettings,
    *,
    identity: str,
    runtime: Runtime | None = None,
    wait: bool = True,
    converter: DataConverter | None = None,
) -> Client:
    """A client of a server that answered and has our namespace.

    wait       for the server, for as long as it takes; else one that does not answer cannot be used
    converter  of a client that this one takes over from; by default as the settings say
    """
    if converter is None:
        converter = await asyncio.to_thread(data_converter, settings)
    pause = 1.0
    while True:
        try:
            shown = await asyncio.to_thread(credentials.read, settings)
            client = await Client.connect(
                settings.temporal_address,
                namespace=settings.temporal_namespace,
                api_key=shown.api_key,
                tls=shown.tls,
                data_converter=converter,
                interceptors=[Tracing()],
                connect_timeout=timedelta(seconds=5),
                identity=identity,
                runtime=runtime,
            )
            await _check_namespace(client, settings)
            return client
        except BadCredentials as error:
            raise TemporalUnusable(str(error)) from None
        except (RuntimeError, RPCError) as error:
            if why := credentials.why_refused(error, settings):
                raise TemporalUnusable(why) from None
            if not wait:
                raise TemporalUnusable(
                    f"Temporal at {settings.temporal_address} does not answer{credentials.hint(error, shown)}"
                    f" ({_short(error)}): is that its address?"
                ) from None
            _log.warning(
                "waiting for Temporal at %s%s, next look in %g s: %s",
                settings.temporal_address,
                credentials.hint(error, shown),
                pause,
                _short(error),
            )
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


async def follow_credentials(settings: ConnectionSettings, client: Client, use: Callable[[Client], None]) -> None:
    """Shows Temporal what is rotated on disk: a new API key at the next request, new TLS files by a new connection.

    Whoever holds the client is given the new one by `use`. What cannot be used is said, and looked at again.
    """
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        held = client.service_client.config
        try:
            now = await asyncio.to_thread(credentials.read, settings)
            if now.tls != held.tls:
                # New TLS files choose no other payload key: what is in the folder of keys may be half-way through.
                client = await connect(
                    settings, identity=client.identity, runtime=held.runtime, converter=client.data_converter
                )
                use(client)
                _log.info("the TLS files have changed: connected to Temporal with the new ones")
            elif now.api_key != held.api_key:
                client.api_key = now.api_key
                _log.info("the API key has changed: Temporal is shown the new one")
        except (BadCredentials, TemporalUnusable) as error:
            _log.warning("what lets us in at Temporal has changed and cannot be used, the former stays: %s", error)
        except Exception as error:
            # Whatever it is, the next look may find it gone; without looks, a certificate would run out unseen.
            _log.warning("what lets us in at Temporal could not be looked at: %s", type(error).__name__)


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


@asynccontextmanager
async def beside(doing: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Does that beside the block, until the block ends."""
    task = asyncio.create_task(doing)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


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
        if error.status != RPCStatusCode.UNIMPLEMENTED:
            raise


def _short(error: Exception) -> str:
    """The last, most telling part of the SDK's nested connection errors."""
    return str(error).replace("\n", " ")[-300:]
