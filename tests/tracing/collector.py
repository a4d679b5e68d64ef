"""A collector of spans on loopback: OTLP/HTTP as a server would receive it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TIMEOUT_S = 30.0


class Collector:
    def __init__(self) -> None:
        self.endpoint = ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._arrived = threading.Condition()

    def received(self, headers: dict[str, str], body: bytes) -> None:
        with self._arrived:
            self.headers.append(headers)
            self.bodies.append(json.loads(body))
            self._arrived.notify_all()

    @property
    def spans(self) -> list[dict[str, Any]]:
        return [
            span
            for body in self.bodies
            for resource in body["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]

    def wait_for(self, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """The spans, as soon as this holds for them."""
        with self._arrived:
            done = self._arrived.wait_for(lambda: holds(self.spans), TIMEOUT_S)
            assert done, [span["name"] for span in self.spans]
            return self.spans


@contextmanager
def collecting(*, status: int = 200) -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.received({name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    collector.endpoint = f"http://127.0.0.1:{server.server_port}/v1/traces"
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
