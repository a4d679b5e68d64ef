"""The HTTP client: shapes, and errors in the agent's words."""

import httpx
import pytest

from streamhouse.client.http import Http
from streamhouse.client.pipelines import Sql
from streamhouse.client.schemas import Schemas
from streamhouse.errors import Rejected, Unavailable
from tests.contracts.clocks import ManualClock

ONE = {
    "topic": "a",
    "partition": 0,
    "base": 0,
    "end": 5,
    "records": 5,
    "bytes": 100,
    "max_timestamp_ms": 7,
    "object": "segments/x",
    "something_new": True,
}


def http_of(response: httpx.Response) -> Http:
    return Http("127.0.0.1:1", transport=httpx.MockTransport(lambda request: response))


async def test_segments_are_sorted_and_new_fields_are_ignored() -> None:
    async with http_of(httpx.Response(200, json={"segments": [{**ONE, "base": 5}, ONE]})) as http:
        assert [segment.base for segment in await http.segments()] == [0, 5]


async def test_segments_are_gathered_from_pages_up_to_the_limit() -> None:
    requests: list[dict[str, str]] = []

    def respond(request: httpx.Request) -> httpx.Response:
        requests.append(dict(request.url.params))
        base = int(request.url.params.get("cursor", "0"))
        page = [{**ONE, "base": base}, {**ONE, "base": base + 1}]
        return httpx.Response(200, json={"segments": page, "cursor": str(base + 2) if base < 6 else None})

    async with Http("127.0.0.1:1", transport=httpx.MockTransport(respond)) as http:
        assert [segment.base for segment in await http.segments("a")] == list(range(8))
        assert [segment.base for segment in await http.segments("a", limit=3)] == [0, 1, 2]
    assert requests[-2:] == [{"topic": "a", "limit": "3"}, {"topic": "a", "limit": "1", "cursor": "2"}]


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (
            httpx.Response(404, json={"title": "UnknownTopic", "detail": "unknown topic; name=a"}),
            "unknown topic; name=a",
        ),
        (httpx.Response(404, text="Not Found"), "not found"),
        (httpx.Response(500, json=[]), "internal server error"),
        (httpx.Response(200, text="<html>"), "unexpected response; url=http://127.0.0.1:1/v1/segments"),
        (httpx.Response(200, json={"segments": [{}]}), "unexpected response; url=http://127.0.0.1:1/v1/segments"),
    ],
)
async def test_a_refusal_is_shown_in_the_agents_words(response: httpx.Response, said: str) -> None:
    async with http_of(response) as http:
        with pytest.raises(Rejected, match=said):
            await http.segments("a")


async def test_nobody_listening_is_said_with_the_address() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    async with Http("127.0.0.1:1", transport=httpx.MockTransport(refuse)) as http:
        with pytest.raises(Unavailable, match=r"no agent answers on http://127\.0\.0\.1:1"):
            await http.segments()


async def test_nobody_listening_is_said_in_words_for_every_command() -> None:
    """Some take the address with --http, some with --agents, and a program with neither."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    said = (
        "no agent answers on http://127.0.0.1:1; start one with: streamhouse up, or give the address of one that runs"
    )
    async with Http("127.0.0.1:1", transport=httpx.MockTransport(refuse)) as http:
        with pytest.raises(Unavailable) as raised:
            await http.segments()
        with pytest.raises(Unavailable) as streamed:
            async with http.lines("/v1/sql", {}):
                pass
    assert (str(raised.value), str(streamed.value)) == (said, said)


async def test_a_port_that_speaks_something_else_is_distinguished_from_no_listener() -> None:
    """Kafka's port ends a connection on which HTTP comes; an agent that goes away does it, too, but had answered."""
    is_agent = True

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.host == "agent" and is_agent:
            return httpx.Response(200, json={"segments": []})
        raise httpx.RemoteProtocolError("disconnected", request=request)

    async with Http("other:9092", transport=httpx.MockTransport(respond)) as http:
        with pytest.raises(
            Unavailable, match="what listens on http://other:9092 doesn't speak HTTP: is it a Kafka port"
        ):
            await http.segments()
    async with Http("agent:8080", transport=httpx.MockTransport(respond)) as http:
        await http.segments()
        is_agent = False
        with pytest.raises(Unavailable, match="start one with"):
            await http.segments()


async def test_another_agent_is_asked_when_the_first_one_is_gone() -> None:
    gone: set[str] = set()
    requests: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        requests.append(f"{request.method} {request.url.host}")
        if request.url.host in gone:
            raise httpx.ConnectError("refused", request=request)
        agents = [{"kafka": f"{name}:9092", "http": f"{name}:8080"} for name in ("a", "b")]
        return httpx.Response(200, json={"agents": agents, "bootstrap": "a:9092,b:9092"})

    async with Http("a:8080", transport=httpx.MockTransport(respond)) as http:
        assert await http.bootstrap() == "a:9092,b:9092"
        gone.add("a")
        assert await http.bootstrap() == "a:9092,b:9092"
        assert requests == ["GET a", "GET a", "GET b"]
        requests.clear()
        await http.send("POST", "/subjects/s")
        assert requests == ["POST b"]  # who answered last is asked first


async def test_what_may_have_been_done_is_not_asked_of_another_agent() -> None:
    requests: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        requests.append(request.url.host)
        raise httpx.ReadError("reset", request=request)

    async with Http("a:8080,b:8080", transport=httpx.MockTransport(respond)) as http:
        with pytest.raises(Unavailable, match="the request may or may not have been executed"):
            await http.send("POST", "/subjects/s")
        assert requests == ["a"]
        with pytest.raises(Unavailable, match="no agent answers"):
            await http.send("GET", "/subjects")
        assert requests == ["a", "a", "b"]


async def test_an_agent_that_says_nothing_in_time_is_reported_by_what_happened() -> None:
    def silence(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("")

    async with Http("127.0.0.1:1", transport=httpx.MockTransport(silence)) as http:
        with pytest.raises(Unavailable, match="went away before it answered; why=ReadTimeout;"):
            await http.send("POST", "/v1/read-plans", body={})


# --- agents that have too much to do


class Busy:
    """Responds with 429 a number of times, then with 200."""

    def __init__(self, times: int, response: httpx.Response, *, retry_after: str | None = "3") -> None:
        self.requests = 0
        self._times, self._answer = times, response
        self._headers = {} if retry_after is None else {"retry-after": retry_after}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        if self.requests <= self._times:
            body = {"title": "TooManyRequests", "detail": "too many requests in a second"}
            return httpx.Response(429, json=body, headers=self._headers)
        return self._answer


SEGMENTS = httpx.Response(200, json={"segments": [ONE]})


@pytest.mark.parametrize(("retry_after", "pause_s"), [("3", 3.0), (None, 1.0), ("soon", 1.0), ("0", 0.1), ("-5", 1.0)])
async def test_a_busy_agent_is_tried_again_when_it_says(retry_after: str | None, pause_s: float) -> None:
    busy, clock = Busy(3, SEGMENTS, retry_after=retry_after), ManualClock()
    async with Http("127.0.0.1:1", transport=httpx.MockTransport(busy), clock=clock) as http:
        assert len(await http.segments()) == 1
    assert (clock.slept, busy.requests) == ([pause_s] * 3, 4)


async def test_a_busy_agent_is_given_up_when_the_time_is_over_and_may_be_asked_later() -> None:
    for ask in (
        lambda http: http.segments(),
        lambda http: http.drain(1),
        lambda http: http.transaction("t"),
        lambda http: Schemas(http).subjects(),
        lambda http: Sql(http).query("SELECT 1", timeout_s=1),
        lambda http: Sql(http).workers(),
    ):
        busy, clock = Busy(1000, SEGMENTS), ManualClock()
        async with Http("127.0.0.1:1", transport=httpx.MockTransport(busy), clock=clock) as http:
            with pytest.raises(Unavailable, match="too many requests"):
                await ask(http)
        assert set(clock.slept) == {3.0}
        assert sum(clock.slept) <= 30


async def test_a_stream_of_lines_is_requested_again_too() -> None:
    busy, clock = Busy(2, httpx.Response(200, text='{"n": 1}\n')), ManualClock()
    async with Http("127.0.0.1:1", transport=httpx.MockTransport(busy), clock=clock) as http:
        assert [row async for row in Sql(http).stream("SELECT 1")] == [{"n": 1}]
        assert clock.slept == [3.0, 3.0]
        busy.requests = -1000
        with pytest.raises(Unavailable, match="too many requests"):
            [row async for row in Sql(http).stream("SELECT 1")]
