"""Health page: the states of all agents of this machine, for load balancers and people.

`/health/live` is 200 as long as the process manager runs, `/health/ready` only while every agent is ready, else 503;
both have all agents as JSON. Nobody logs in, and nothing in it is secret: numbers, addresses and states.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Literal

from streamhouse.config import Address
from streamhouse.errors import Misconfigured

State = Literal["starting", "ready", "not ready", "restarting", "given up"]
REQUEST_TIMEOUT_S: Final = 5.0
PATHS: Final = ("/health/live", "/health/ready")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHealth:
    number: int
    kafka: str
    http: str
    state: State
    restarts: int


@contextmanager
def health_page(address: Address, states: Callable[[], Sequence[AgentHealth]]) -> Iterator[Address]:
    """Serve the page in a thread as long as the block runs; gives the address it has got."""

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            status, body = answer(self.path, states())
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            with suppress(OSError):  # the client has gone
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: load balancers ask every second."""

    try:
        server = ThreadingHTTPServer((address.host, address.port), Handler)
    except OSError as error:
        raise Misconfigured(f"the health page can't listen on {address}: {error.strerror}; choose --health") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="health-page", daemon=True)
    thread.start()
    try:
        yield Address(address.host, server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(path: str, states: Sequence[AgentHealth]) -> tuple[HTTPStatus, bytes]:
    """The status and the body for a path."""
    path = path.partition("?")[0]
    if path not in PATHS:
        return HTTPStatus.NOT_FOUND, b'{"error": "try /health/live or /health/ready"}\n'
    is_ready = bool(states) and all(each.state == "ready" for each in states)
    body = json.dumps({"ready": is_ready, "agents": [asdict(each) for each in states]}).encode() + b"\n"
    is_fine = is_ready or path == "/health/live"
    return HTTPStatus.OK if is_fine else HTTPStatus.SERVICE_UNAVAILABLE, body
