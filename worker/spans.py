"""Spans on their way to a collector, over OTLP. One that is not there costs a line in the log, not one per batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

_log = logging.getLogger(__name__)
_SECONDS = 3


class _Why(logging.Filter):
    """Why the exporter failed first. It says so of each attempt and of each batch, so none of it is a line."""

    words = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self.words = self.words or record.getMessage()
        return False


_why = _Why()


class Spans(SpanExporter):
    """Says once that the collector takes none, and once that it does again. What was not taken is lost."""

    def __init__(self, endpoint: str) -> None:
        self._url = traces_url(endpoint)
        self._exporter = OTLPSpanExporter(endpoint=self._url, timeout=_SECONDS)
        self._lost = 0
        logging.getLogger(OTLPSpanExporter.__module__).addFilter(_why)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        _why.words = ""
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            if not self._lost:
                what = "the collector at %s takes no traces, they are lost until it does: %.300s"
                _log.warning(what, self._url, _why.words)
            self._lost += len(spans)
        elif self._lost:
            _log.warning("the collector at %s takes traces again; %d spans were lost", self._url, self._lost)
            self._lost = 0
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def traces_url(endpoint: str) -> str:
    """A bare collector address gets the standard path; one with a path is taken as it is."""
    base = endpoint.rstrip("/")
    return base if base.count("/") > 2 else base + "/v1/traces"
