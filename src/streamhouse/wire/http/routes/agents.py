"""Agents: who is in the cluster, and who should leave it.

GET    /v1/agents                 every agent whose session has not ended
POST   /v1/agents/{node}/drain    it hands everything over and takes nothing more; the body is `{}`
DELETE /v1/agents/{node}/drain    it takes its share again

Draining answers at once with the agents as they are then; it is done when the agent holds nothing any more.
"""

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamhouse.broker.broker import Broker
from streamhouse.broker.cluster.oversight import AgentStatus
from streamhouse.wire.http.exchange import json_answer, parse_number, read_body

MAX_NODE: Final = 2**31 - 1


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, as `streamhouse agents list` shows it. `state` is live, draining, expired or recovering."""

    node: int
    session: str
    kafka: str
    http: str
    state: str
    wal: str
    started_at_ms: int
    expires_in_ms: int
    partitions: int
    shards: int
    asked: bool


class Agents(msgspec.Struct, frozen=True, kw_only=True):
    agents: list[AgentView]


class Drain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a drain: nothing to say yet."""


def routes(broker: Broker) -> list[Route]:
    async def told() -> Response:
        return json_answer(Agents(agents=[_view(each) for each in await broker.oversight.agents()]))

    async def agents(_: Request) -> Response:
        return await told()

    async def drain(request: Request) -> Response:
        node = parse_number(request.path_params["node"], "node", low=0, high=MAX_NODE)
        draining = request.method == "POST"
        if draining:
            await read_body(request, Drain)
        await broker.oversight.drain(node, draining=draining)
        return await told()

    return [Route("/v1/agents", agents), Route("/v1/agents/{node}/drain", drain, methods=["POST", "DELETE"])]


def _view(status: AgentStatus) -> AgentView:
    session = status.session
    return AgentView(
        node=session.node_id,
        session=session.session_id,
        kafka=str(session.kafka),
        http=str(session.http),
        state=status.condition,
        wal=session.wal,
        started_at_ms=session.started_at_ms,
        expires_in_ms=status.expires_in_ms,
        partitions=status.partitions,
        shards=status.shards,
        asked=status.is_asked,
    )
