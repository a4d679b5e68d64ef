"""Requests to a cluster in which an agent has just died: another one is used, and leaders are looked up again."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import NodeNotReadyError
from aiokafka.protocol.offset import OffsetRequest

from streamhouse.client.kafka_admin import Admin
from streamhouse.client.types import LATEST
from streamhouse.errors import Unavailable
from tests.contracts.clocks import ManualClock

NOT_LEADER = 6


class FakeCluster:
    """Agents 1 to 3 as aiokafka would show them; node 1 gets the first request."""

    def __init__(self, *, dead: set[int], leaders: list[int]) -> None:
        self.dead = dead
        self.leaders = leaders  # of the one partition; whoever asks learns the next one
        self.requests: list[int] = []
        self.cluster = SimpleNamespace(brokers=lambda: [SimpleNamespace(nodeId=node) for node in (1, 2, 3)])

    def get_random_node(self) -> int:
        return 1

    async def send(self, node: int, request: Any) -> Any:
        self.requests.append(node)
        if node in self.dead:
            raise NodeNotReadyError
        if isinstance(request, OffsetRequest):
            code = 0 if node == self.leaders[-1] else NOT_LEADER
            return SimpleNamespace(topics=[("orders", [(0, code, -1, 42)])])
        leader = self.leaders.pop(0) if len(self.leaders) > 1 else self.leaders[0]
        return SimpleNamespace(topics=[(0, "orders", False, [(0, 0, leader, 7)])], brokers=[])


def admin_of(cluster: FakeCluster) -> Admin:
    admin = Admin("127.0.0.1:1", clock=ManualClock(), timeout_s=2.0)
    admin._client = cluster
    return admin


async def test_an_agent_that_died_is_not_the_only_one_that_is_asked() -> None:
    cluster = FakeCluster(dead={1}, leaders=[2])
    assert (await admin_of(cluster).topic("orders")).name == "orders"
    assert cluster.requests[0] == 1
    assert len(cluster.requests) == 2


async def test_when_all_are_dead_nobody_is_asked_twice() -> None:
    cluster = FakeCluster(dead={1, 2, 3}, leaders=[2])
    with pytest.raises(Unavailable, match="no agent answers"):
        await admin_of(cluster).topic("orders")
    assert sorted(cluster.requests) == [1, 2, 3]


async def test_offsets_are_asked_of_whichever_agent_leads_after_the_leader_died() -> None:
    cluster = FakeCluster(dead={1}, leaders=[1, 1, 2, 3])
    admin = admin_of(cluster)
    assert await admin.offsets(await admin.topic("orders"), LATEST) == {0: 42}


async def test_a_leader_that_never_comes_is_not_waited_for_forever() -> None:
    cluster = FakeCluster(dead={1}, leaders=[1])
    admin = admin_of(cluster)
    with pytest.raises(Unavailable):
        await admin.offsets(await admin.topic("orders"), LATEST)
