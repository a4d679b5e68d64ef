"""A trap on the way to an agent's HTTP port: when certain words come by, something happens before they go on."""

import socket
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tests.support.agent import free_port


class Trap:
    """Passes bytes on, from a port of its own to another one on loopback.

    It is set for words of a request; `on_answer` springs it when the answer comes back, otherwise before the request
    goes on. It springs once.
    """

    def __init__(self, target_port: int) -> None:
        self._target = target_port
        self._lock = threading.Lock()
        self._words = b""
        self._on_answer = False
        self._act: Callable[[], None] | None = None
        self.sprung = 0
        trap = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                trap._pass_on(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Connections end here as they like: who is killed says no goodbye."""

        self.port = free_port()
        self._server = Server(("127.0.0.1", self.port), Handler)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def set(self, words: bytes, act: Callable[[], None], *, on_answer: bool) -> None:
        with self._lock:
            self._words, self._act, self._on_answer = words, act, on_answer

    def _spring(self) -> None:
        with self._lock:
            act, self._act = self._act, None
        if act is not None:
            self.sprung += 1  # before: whoever waits for what it does looks here next
            act()

    def _pass_on(self, client: socket.socket) -> None:
        seen = threading.Event()
        with socket.create_connection(("127.0.0.1", self._target)) as agent:
            back = threading.Thread(target=self._answers, args=(agent, client, seen), daemon=True)
            back.start()
            with suppress(OSError):
                while data := client.recv(65536):
                    if self._act is not None and self._words in data:
                        if self._on_answer:
                            seen.set()
                        else:
                            self._spring()
                    agent.sendall(data)
            with suppress(OSError):
                agent.shutdown(socket.SHUT_RDWR)
            back.join()

    def _answers(self, agent: socket.socket, client: socket.socket, seen: threading.Event) -> None:
        with suppress(OSError):
            while data := agent.recv(65536):
                if seen.is_set():
                    self._spring()
                client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
