"""Health page: the states of all agents of this machine, for load balancers and people.

`/health/live` is 200 as long as the process manager runs, `/health/ready` only while every agent is ready, else 503;
both have all agents as JSON. There is no login, and nothing in it is secret: numbers, addresses and states.

Any client that reaches the page may open connections. Each is a thread and a descriptor of the process that has to
start agents again, so one lasts `REQUEST_TIMEOUT_S` at most, and beyond `MAX_CONNECTIONS` a new one ends the oldest.
"""

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal

from streamhouse.clock import SystemClock
from streamhouse.config import Address
from streamhouse.errors import Misconfigured

log = logging.getLogger(__name__)

State = Literal["starting", "ready", "not ready", "restarting", "given up"]
REQUEST_TIMEOUT_S: Final = 5.0
MAX_CONNECTIONS: Final = 32
MAX_THREADS: Final = 2 * MAX_CONNECTIONS
"""Connections whose threads have not ended yet, also those that were ended; beyond, new ones are closed at once."""
PATHS: Final = ("/health/live", "/health/ready")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHealth:
    number: int
    kafka: str
    http: str
    state: State
    restarts: int


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MAX_THREADS
    clock = SystemClock()

    def __init__(self, address: Address, handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock = threading.Lock()
        self._began_at: dict[Any, float] = {}
        """When the open connections began, the oldest first."""
        self._threads_left = MAX_THREADS
        super().__init__((address.host, address.port), handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            if self._threads_left == 0:
                return False
            self._threads_left -= 1
            if len(self._began_at) >= MAX_CONNECTIONS:
                self._end_oldest()
            self._began_at[request] = self.clock.monotonic()
        return True

    def process_request(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(request)  # its thread didn't start
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def service_actions(self) -> None:
        """End connections whose time is over; called twice a second, and after each new one."""
        with self._lock:
            overdue = self.clock.monotonic() - REQUEST_TIMEOUT_S
            while self._began_at and next(iter(self._began_at.values())) <= overdue:
                self._end_oldest()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request for the health page failed", exc_info=True)

    def _end_oldest(self) -> None:
        oldest: socket.socket = next(iter(self._began_at))
        del self._began_at[oldest]
        with suppress(OSError):  # it has ended by itself
            oldest.shutdown(socket.SHUT_RDWR)

    def _forget(self, request: Any) -> None:
        with self._lock:
            self._began_at.pop(request, None)
            self._threads_left += 1


@contextmanager
def health_page(address: Address, states: Callable[[], Sequence[AgentHealth]]) -> Iterator[Address]:
    """Serve the page in a thread as long as the block runs; gives the address it has got."""

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            status, body = respond(self.path, states())
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: load balancers send a request every second."""

    try:
        server = _Server(address, Handler)
    except OSError as error:
        raise Misconfigured(f"the health page can't listen on {address}: {error.strerror}; choose --health") from None
    thread = threading.Thread(target=server.serve_forever, name="health-page", daemon=True)
    thread.start()
    try:
        yield Address(address.host, server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def respond(path: str, states: Sequence[AgentHealth]) -> tuple[HTTPStatus, bytes]:
    """The status and the body for a path."""
    path = path.partition("?")[0]
    if path not in PATHS:
        return HTTPStatus.NOT_FOUND, b'{"error": "try /health/live or /health/ready"}\n'
    is_ready = bool(states) and all(each.state == "ready" for each in states)
    body = json.dumps({"ready": is_ready, "agents": [asdict(each) for each in states]}).encode() + b"\n"
    is_fine = is_ready or path == "/health/live"
    return HTTPStatus.OK if is_fine else HTTPStatus.SERVICE_UNAVAILABLE, body
