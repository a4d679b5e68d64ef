"""The health page of several agents."""

import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from streamhouse.config import Address
from streamhouse.config.listener_spec import ListenerProtocol
from streamhouse.errors import Misconfigured
from streamhouse.process_manager.health_page import AgentHealth, State, answer, health_page
from streamhouse.process_manager.manager import is_ready
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
    assert answer("/health/ready?verbose", [agent(1), agent(2, state)])[0] == 503


def test_a_port_in_use_is_named() -> None:
    with (
        health_page(Address("127.0.0.1", 0), list) as address,
        pytest.raises(Misconfigured, match=f"{address}.*--health"),
        health_page(address, list),
    ):
        pass


@pytest.mark.parametrize(("status", "is_said_to_be"), [(200, True), (503, False), (401, True), (403, True)])
def test_an_agent_is_ready_when_it_says_so_or_does_not_tell_us(status: int, is_said_to_be: bool) -> None:
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
