"""Announcing: agents are told of a worker only where they can reach it."""

import pytest

from streamhouse.spark.worker.discovery import reachable


@pytest.mark.parametrize(
    ("host", "agents", "can"),
    [
        ("127.0.0.1", "127.0.0.1:8080,localhost:8081", True),
        ("127.0.0.1", "127.0.0.1:8080,10.0.0.5:8080", False),
        ("10.0.0.9", "10.0.0.5:8080", True),
        ("::1", "agents.example:8080", False),
    ],
)
def test_agents_are_told_of_a_worker_that_they_can_reach(host: str, agents: str, can: bool) -> None:
    assert reachable(host, agents) is can
