"""The server for assistants: the protocol's methods, its errors, and tools against a real agent."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamhouse.cli.commands.mcp import TOOLS, VERSIONS, McpServer, read_line
from streamhouse.client.http import Http, HttpResponse
from tests.cli.test_live import LIMIT_S, Agent, command, environment, start


class FakeHttp(Http):
    def __init__(self) -> None:
        super().__init__("127.0.0.1:1")
        self.sent: list[tuple[str, str, object]] = []

    async def send(self, method: str, path: str, **request: Any) -> HttpResponse:
        self.sent.append((method, path, request.get("params") or request.get("body")))
        return HttpResponse(404 if "gone" in path else 200, b'{"a": 1}')


async def ask(method: str, params: object = None, http: FakeHttp | None = None) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    response = await McpServer(http or FakeHttp()).answer(json.dumps(message))
    assert response is not None
    assert (response["jsonrpc"], response["id"]) == ("2.0", 7)
    return response


async def test_the_version_is_the_clients_where_it_is_known() -> None:
    for request, given in ((VERSIONS[2], VERSIONS[2]), ("1999-01-01", VERSIONS[0])):
        response = await ask("initialize", {"protocolVersion": request, "capabilities": {}})
        assert response["result"]["protocolVersion"] == given
        assert response["result"]["capabilities"] == {"tools": {"listChanged": False}}


async def test_every_tool_only_reads_and_says_what_it_needs() -> None:
    tools = (await ask("tools/list"))["result"]["tools"]
    assert [each["name"] for each in tools] == list(TOOLS)
    assert all(each["annotations"]["readOnlyHint"] for each in tools)
    assert {tool.path for tool in TOOLS.values() if tool.method == "POST"} == {"/v1/topics/{topic}/search", "/v1/sql"}


async def test_arguments_go_into_the_path_the_query_or_the_body() -> None:
    http = FakeHttp()
    await ask("tools/call", {"name": "read_records", "arguments": {"topic": "a/../b", "limit": 3}}, http)
    await ask("tools/call", {"name": "search_records", "arguments": {"topic": "t", "key": "k"}}, http)
    assert http.sent == [
        ("GET", "/v1/topics/a%2F..%2Fb/records", {"limit": "3"}),
        ("POST", "/v1/topics/t/search", {"key": "k"}),
    ]
    gone = await ask("tools/call", {"name": "group_lag", "arguments": {"group": "gone"}}, http)
    assert gone["result"]["isError"] is True


async def test_sql_of_an_assistant_is_read_only_whatever_its_arguments_say() -> None:
    http = FakeHttp()
    await ask("tools/call", {"name": "query_sql", "arguments": {"sql": "DROP TABLE t"}}, http)
    arguments = {"sql": "DROP TABLE t", "read_only": False}
    assert "error" in await ask("tools/call", {"name": "query_sql", "arguments": arguments}, http)
    assert http.sent == [("POST", "/v1/sql", {"sql": "DROP TABLE t", "read_only": True})]


async def test_topics_are_listed_with_their_sizes() -> None:
    http = FakeHttp()
    await ask("tools/call", {"name": "list_topics"}, http)
    assert http.sent == [("GET", "/v1/topics", {"sizes": "true"})]


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/delete", {}, -32601),
        ("tools/call", {"name": "drop_topic"}, -32602),
        ("tools/call", {"name": "describe_topic", "arguments": {}}, -32602),
        ("tools/call", {"name": "describe_topic", "arguments": {"topic": "t", "x": 1}}, -32602),
        ("tools/call", {"name": ["x"]}, -32602),
        ("tools/list", [1], -32602),
    ],
)
async def test_wrong_requests_get_their_codes(method: str, params: object, code: int) -> None:
    assert (await ask(method, params))["error"]["code"] == code


NO_REQUESTS = [
    *(b"{", b"[]", b"1", b'{"id": 1}', b"\xff", b"[" * 100_000),
    b'{"id": "\\ud800", "method": "ping"}',
    b'{"id": 1, "method": "tools/call", "params": {"name": "group_lag", "arguments": {"group": "\\udfff"}}}',
    b'{"id": [1], "method": "ping"}',
    b'{"id": NaN, "method": "ping"}',
    b'{"id": ' + b"1" * 5000 + b', "method": "ping"}',
]


@pytest.mark.parametrize("line", NO_REQUESTS)
async def test_what_is_no_request_is_answered_as_such(line: bytes) -> None:
    response = await McpServer(FakeHttp()).answer(line)
    assert response is not None
    assert response["error"]["code"] in (-32700, -32600)
    assert json.dumps(response, ensure_ascii=False).encode()


@pytest.mark.parametrize("size", [100, 101, 150, 1000])
async def test_of_a_line_that_is_too_long_nothing_is_taken_for_the_next_one(size: int) -> None:
    reader = asyncio.StreamReader(limit=100)
    reader.feed_data(b"first\n" + b"x" * size)
    assert await read_line(reader) == b"first\n"
    reading = asyncio.ensure_future(read_line(reader))
    await asyncio.sleep(0)
    reader.feed_data(b"y" * 30)
    await asyncio.sleep(0)
    reader.feed_data(b"z\nlast")
    reader.feed_eof()
    assert await reading is None
    assert [await read_line(reader), await read_line(reader)] == [b"last", b""]


async def test_a_notification_gets_no_response() -> None:
    assert await McpServer(FakeHttp()).answer('{"jsonrpc": "2.0", "method": "notifications/initialized"}') is None


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    started = start(tmp_path_factory.mktemp("mcp") / "data")
    yield started
    if started.process.poll() is None:
        started.stop()


def test_an_assistant_reads_a_real_agent(agent: Agent) -> None:
    unknown = {"name": "group_lag", "arguments": {"group": "x"}}
    lines: list[dict[str, object]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": VERSIONS[0]}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_topics"}},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "cluster_health"}},
        {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "list_subjects"}},
        {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": unknown},
    ]
    text = "".join(json.dumps(each) + "\n" for each in lines)
    ended = subprocess.run(
        command("mcp", "--agents", agent.http),
        input=text,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env=environment(),
    )
    responses = {each["id"]: each["result"] for each in map(json.loads, ended.stdout.splitlines())}
    assert sorted(responses) == [1, 2, 3, 4, 5]
    assert [responses[number]["isError"] for number in (2, 3, 4, 5)] == [False, False, False, True]
    assert "topics" in responses[2]["content"][0]["text"]


def test_requests_may_come_from_a_file(agent: Agent, tmp_path: Path) -> None:
    file = tmp_path / "requests"
    file.write_text('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    with file.open() as requests:
        ended = subprocess.run(
            command("mcp", "--agents", agent.http),
            stdin=requests,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
            env=environment(),
        )
    assert json.loads(ended.stdout) == {"jsonrpc": "2.0", "id": 1, "result": {}}
