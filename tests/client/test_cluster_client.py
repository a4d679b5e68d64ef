"""ClusterClient: responses of several agents are combined, also if some don't respond."""

from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest

from streamhouse.client.cluster_client import ClusterClient
from streamhouse.client.http import Http
from streamhouse.client.types import AgentStatus, Examination, Finding, PartitionStatus
from streamhouse.errors import Unavailable

ADDRESSES = {1: "127.0.0.1:1001", 2: "127.0.0.1:1002", 3: "127.0.0.1:1003"}
REQUESTED = "front.example:80"


def an_agent(node: int, *, state: str = "live", is_responder: bool = False) -> AgentStatus:
    return AgentStatus(
        node=node,
        session=f"s-{node}",
        kafka=f"127.0.0.1:{node}",
        http=ADDRESSES[node],
        state=state,
        wal="object",
        started_at_ms=0,
        expires_in_ms=1000,
        partitions=1,
        shards=0,
        is_responder=is_responder,
    )


def a_partition(number: int, *, leader: int | None, epoch: int = 1, mark: int | None = None) -> PartitionStatus:
    return PartitionStatus(
        topic="orders",
        partition=number,
        leader=leader,
        owner=leader,
        pinned_to=None,
        epoch=epoch,
        lease_expires_in_ms=1000,
        log_start=0,
        flushed_end=0,
        high_watermark=mark,
        bytes=10,
        local=mark is not None,
    )


def an_examination(
    node: int, *, members: list[int] | None = None, version: str = "1", ttl_s: float = 30
) -> Examination:
    return Examination(
        node=node,
        version=version,
        lease_ttl_s=ttl_s,
        members=members or [1, 2, 3],
        own=[Finding(name="clock", verdict="ok", text="fine")],
        shared=[Finding(name="sessions", verdict="ok", text="fine")] if node == 1 else [],
    )


class Agents:
    """The response of each address for each path; None: it doesn't respond."""

    def __init__(self, responses: dict[str, dict[str, Any] | None]) -> None:
        self._answers = responses
        self.requests: list[str] = []

    def cluster_client(self) -> ClusterClient:
        return ClusterClient(
            REQUESTED, connect=lambda address: Http(address, transport=httpx.MockTransport(self._answer(address)))
        )

    def _answer(self, address: str) -> Callable[[httpx.Request], httpx.Response]:
        def respond(request: httpx.Request) -> httpx.Response:
            self.requests.append(
                f"{address}{request.url.path}{'?local' if request.url.params.get('local') == '1' else ''}"
            )
            result = self._answers.get(address)
            if result is None:
                raise httpx.ConnectError("refused", request=request)
            return httpx.Response(200, content=msgspec.json.encode(result[request.url.path]))

        return respond


def three(*, states: tuple[str, str, str] = ("live", "live", "live")) -> dict[str, Any]:
    return {"agents": [an_agent(n, state=state, is_responder=n == 1) for n, state in enumerate(states, 1)]}


async def test_high_watermarks_come_from_the_leaders() -> None:
    known = [a_partition(0, leader=1, mark=7), a_partition(1, leader=2), a_partition(2, leader=None)]
    agents = Agents(
        {
            REQUESTED: {"/v1/agents": three(), "/v1/partitions": {"partitions": known}},
            ADDRESSES[2]: {"/v1/partitions": {"partitions": [a_partition(1, leader=2, mark=9)]}},
        }
    )
    survey = await agents.cluster_client().partitions("orders")
    assert [each.high_watermark for each in survey.partitions] == [7, 9, None]
    assert survey.silent == []
    assert agents.requests[2:] == [f"{ADDRESSES[2]}/v1/partitions?local"]  # agent 3 leads nothing


async def test_a_partition_that_has_moved_since_is_served_by_its_new_leader() -> None:
    known = [a_partition(0, leader=2, epoch=5), a_partition(1, leader=3, epoch=5)]
    agents = Agents(
        {
            REQUESTED: {"/v1/agents": three(), "/v1/partitions": {"partitions": known}},
            ADDRESSES[2]: {"/v1/partitions": {"partitions": [a_partition(1, leader=2, epoch=4, mark=3)]}},
            ADDRESSES[3]: {"/v1/partitions": {"partitions": [a_partition(0, leader=3, epoch=6, mark=8)]}},
        }
    )
    first, second = (await agents.cluster_client().partitions()).partitions
    assert (first.leader, first.high_watermark) == (3, 8)
    assert (second.leader, second.high_watermark) == (3, None)  # what an earlier leader knows is old


async def test_an_agent_that_does_not_answer_is_reported_and_one_that_is_dead_not_asked() -> None:
    known = [a_partition(0, leader=2), a_partition(1, leader=3)]
    responses = {"/v1/agents": three(states=("live", "draining", "expired")), "/v1/partitions": {"partitions": known}}
    agents = Agents({REQUESTED: responses})
    survey = await agents.cluster_client().partitions()
    assert [agent.node for agent in survey.silent] == [2]
    assert [each.high_watermark for each in survey.partitions] == [None, None]
    assert not any(ADDRESSES[3] in request for request in agents.requests)


async def test_everybody_is_examined_and_agrees() -> None:
    responses: dict[str, dict[str, Any] | None] = {
        ADDRESSES[node]: {"/v1/doctor": an_examination(node)} for node in (2, 3)
    }
    agents = Agents({**responses, REQUESTED: {"/v1/agents": three(), "/v1/doctor": an_examination(1)}})
    checkup = await agents.cluster_client().examine()
    assert [(each.agent.node, each.examination is not None) for each in checkup.agents] == [
        (1, True),
        (2, True),
        (3, True),
    ]
    assert [(each.name, each.verdict) for each in checkup.shared] == [("sessions", "ok"), ("agreement", "ok")]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (an_examination(2, members=[2]), "differ in who is in the cluster"),
        (an_examination(2, version="2"), "differ in versions"),
        (an_examination(2, ttl_s=3, version="2"), "differ in versions, lease.ttl_s"),
        (None, "not answering over HTTP: 2"),
    ],
)
async def test_agents_that_differ_or_are_silent_are_a_warning(result: Examination | None, said: str) -> None:
    agents = Agents(
        {
            REQUESTED: {"/v1/agents": three(states=("live", "live", "expired")), "/v1/doctor": an_examination(1)},
            ADDRESSES[2]: None if result is None else {"/v1/doctor": result},
        }
    )
    (finding,) = [each for each in (await agents.cluster_client().examine()).shared if each.name == "agreement"]
    assert finding.verdict == "warning"
    assert said in finding.text


async def test_without_the_first_agent_there_is_no_response() -> None:
    with pytest.raises(Unavailable, match=r"no agent answers on http://front\.example:80"):
        await Agents({}).cluster_client().examine()
