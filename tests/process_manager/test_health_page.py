"""The health page of several agents."""

import json
import socket
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from streamhouse.config import Address, Settings
from streamhouse.config.listener_spec import ListenerProtocol
from streamhouse.dev.processes import ChildProcess, Program, StopSignals
from streamhouse.errors import Misconfigured
from streamhouse.process_manager import health_page as health_pages
from streamhouse.process_manager.health_page import MAX_THREADS, AgentHealth, State, health_page, respond
from streamhouse.process_manager.manager import START_AGAIN_S, ManagerPlan, ProcessManager, is_ready
from streamhouse.process_manager.plan import AgentSlot


def agent(number: int, state: State = "ready") -> AgentHealth:
    return AgentHealth(
        number=number, kafka=f"127.0.0.1:{9091 + number}", http="127.0.0.1:8080", state=state, restarts=0
    )


def ask(address: Address, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_page_is_ready_only_while_every_agent_is() -> None:
    states = [agent(1), agent(2)]
    with health_page(Address("127.0.0.1", 0), lambda: states) as address:
        status, body = ask(address, "/health/ready")
        assert (status, body["ready"]) == (200, True)
        assert [each["number"] for each in body["agents"]] == [1, 2]
        states[1] = agent(2, "restarting")
        assert ask(address, "/health/ready")[0] == 503
        assert ask(address, "/health/live")[0] == 200
        assert ask(address, "/elsewhere")[0] == 404


@pytest.mark.parametrize("state", ["starting", "not ready", "restarting", "given up"])
def test_no_other_state_is_ready(state: State) -> None:
    assert respond("/health/ready?verbose", [agent(1), agent(2, state)])[0] == 503


def test_a_port_in_use_is_named() -> None:
    with (
        health_page(Address("127.0.0.1", 0), list) as address,
        pytest.raises(Misconfigured, match=f"{address}.*--health"),
        health_page(address, list),
    ):
        pass


@pytest.mark.parametrize(("status", "is_said_to_be"), [(200, True), (503, False), (401, True), (403, True)])
def test_an_agent_is_ready_when_it_says_so_or_does_not_respond(status: int, is_said_to_be: bool) -> None:
    class Agent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Agent) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert is_ready(slot(server.server_address[1])) == is_said_to_be
        thread.join()
        port = server.server_address[1]
    assert not is_ready(slot(port))


def slot(port: int) -> AgentSlot:
    address = Address("0.0.0.0", port)
    return AgentSlot(number=1, settings={}, kafka=address, http=address, http_protocol=ListenerProtocol.PLAINTEXT)


def test_what_answers_without_http_is_not_ready_and_ends_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def respond() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 2")

        thread = threading.Thread(target=respond)
        thread.start()
        assert not is_ready(slot(server.getsockname()[1]))
        thread.join()


def test_connections_without_a_request_take_few_threads_and_keep_nobody_from_asking() -> None:
    before = threading.active_count()
    with health_page(Address("127.0.0.1", 0), lambda: [agent(1)]) as address:
        silent = [socket.create_connection((address.host, address.port)) for _ in range(3 * MAX_THREADS)]
        try:
            assert ask(address, "/health/ready")[0] == 200
            assert threading.active_count() - before <= MAX_THREADS + 1
        finally:
            for each in silent:
                each.close()


def test_a_request_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_pages, "REQUEST_TIMEOUT_S", 0.3)
    with (
        health_page(Address("127.0.0.1", 0), list) as address,
        socket.create_connection((address.host, address.port)) as slow,
    ):
        slow.settimeout(0.1)
        for _ in range(200):  # a byte comes before each single wait is over
            try:
                slow.sendall(b"x")
                if not slow.recv(1):
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
    raise AssertionError("the connection was never closed")


def test_an_agent_that_the_system_does_not_start_is_tried_again() -> None:
    events: list[str] = []
    plan = ManagerPlan(settings=Settings(), agents=1, flags={}, config=None, environment={})
    manager = ProcessManager(plan, [slot(1)], stop_signals=StopSignals(), on_event=events.append)
    [managed] = manager._agents
    managed.child = ChildProcess(Program(name="agent 1", command=["/no/such/program"], log_path=None))
    managed.state, managed.start_at = "restarting", 100.0
    manager._care_for(managed, 100.0)
    assert (managed.state, managed.start_at) == ("restarting", 100.0 + START_AGAIN_S)
    assert "can't be started" in events[0]
