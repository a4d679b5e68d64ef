"""Exporter: sends ended spans to the collector, from a thread of its own.

A collector that is away or slow costs spans, never a request: the queue is bounded, and the thread waits alone.
"""

import http.client
import logging
import threading
import urllib.request
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from streamhouse.clock import Clock
from streamhouse.telemetry import RateLimitedLog
from streamhouse.tracing.otlp import encode_spans
from streamhouse.tracing.span import Attribute
from streamhouse.tracing.tracer import Tracer

log = logging.getLogger(__name__)

HEADERS_VARIABLE: Final = "OTEL_EXPORTER_OTLP_HEADERS"


def export_headers(environment: Mapping[str, str]) -> dict[str, str]:
    """Headers for the collector, such as a token, from OpenTelemetry's variable: `name=value,name=value`, with percent
    encoding."""
    pairs = (each.partition("=") for each in environment.get(HEADERS_VARIABLE, "").split(","))
    return {name.strip(): unquote(value.strip()) for name, equals, value in pairs if name.strip() and equals}


class SpanExporter:
    def __init__(
        self, tracer: Tracer, *, resource: Mapping[str, Attribute], headers: Mapping[str, str], clock: Clock
    ) -> None:
        self._tracer = tracer
        self._resource = resource
        self._headers = {"content-type": "application/json", "user-agent": "streamhouse", **headers}
        self._clock = clock
        self._stopping = threading.Event()
        self._failed = RateLimitedLog(log, "spans can't be exported")
        self._thread = threading.Thread(target=self._run, name="span-exporter", daemon=True)

    def __repr__(self) -> str:
        return f"<SpanExporter {self._tracer!r}>"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send what is queued and end; waits for one request at most. Call it from a thread."""
        self._stopping.set()
        self._thread.join(self._tracer.settings.timeout_s)

    def _run(self) -> None:
        while not self._stopping.wait(self._tracer.settings.interval_s):
            self.export()
        self.export()

    def export(self) -> None:
        """Send queued spans until there are none, or a request fails; what it carried is dropped."""
        settings = self._tracer.settings
        while spans := self._tracer.take(settings.batch_spans):
            try:
                self._send(encode_spans(spans, self._resource))
            except (OSError, ValueError, http.client.HTTPException) as error:  # refused, timed out, an error, no HTTP
                self._tracer.dropped += len(spans)
                self._failed.write(self._clock.monotonic(), endpoint=settings.endpoint, why=str(error))
                return
            self._tracer.exported += len(spans)

    def _send(self, body: bytes) -> None:
        settings = self._tracer.settings
        request = urllib.request.Request(settings.endpoint, data=body, headers=self._headers, method="POST")
        with urllib.request.urlopen(request, timeout=settings.timeout_s):
            pass  # what it says besides its status is of no use, however long it is
