"""What agents say of a pipeline right before a commit: only its owner's runner of now commits."""

from typing import Any

import msgspec
import pytest

from streamhouse.client.http import HttpResponse
from streamhouse.errors import AccessDenied, PipelineMoved
from streamhouse.spark.agents.client import AgentClient
from streamhouse.spark.agents.pipeline_owner import OwnerCheck

CHECK = OwnerCheck(agents="127.0.0.1:1", pipeline="totals", query_id="q", epoch=3)


def answering(patch: pytest.MonkeyPatch, status: int, body: object = None) -> None:
    async def send(self: AgentClient, method: str, path: str, **more: Any) -> HttpResponse:
        assert (method, path) == ("GET", "/v1/pipelines/totals")
        return HttpResponse(status=status, content=msgspec.json.encode(body))

    patch.setattr(AgentClient, "send", send)


@pytest.mark.parametrize("owner", [{"epoch": 3, "supervisor": "s"}, None])
def test_the_owner_commits(monkeypatch: pytest.MonkeyPatch, owner: object) -> None:
    answering(monkeypatch, 200, {"query_id": "q", "owner": owner})
    CHECK()


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (404, {}, "it was dropped"),
        (200, {"query_id": "another", "owner": None}, "it started over"),
        (200, {"query_id": "q", "owner": {"epoch": 4}}, "its owner has epoch 4"),
    ],
)
def test_who_is_no_owner_commits_nothing(monkeypatch: pytest.MonkeyPatch, status: int, body: object, why: str) -> None:
    answering(monkeypatch, status, body)
    with pytest.raises(PipelineMoved, match=why):
        CHECK()


def test_a_pipeline_that_agents_do_not_show_to_its_owner_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where owners log in, a pipeline that is gone can't be told from one of somebody else."""

    async def denied(self: AgentClient, method: str, path: str, **more: Any) -> HttpResponse:
        raise AccessDenied("User:alice", operation="describe", resource_type="pipeline", name="totals")

    monkeypatch.setattr(AgentClient, "send", denied)
    with pytest.raises(PipelineMoved, match="it was dropped, or has another owner now"):
        CHECK()
