"""Agents: the members of the cluster, and draining them.

GET    /v1/agents                 every agent whose session has not ended
POST   /v1/agents/{node}/drain    hand over all partitions and take no new ones; the body is `{}`
DELETE /v1/agents/{node}/drain    take partitions again

Draining returns at once with the current agents; it is complete when the agent leads no partitions.
"""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from streamhouse.broker.admin.cluster_admin import AgentStatus
from streamhouse.broker.broker import Broker
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.http.operations import MAX_BODY_BYTES, Call, NoQuery, Operation, json_response

TAG: Final = "agents"


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """An agent. `state` is live, draining, expired or recovering; `asked` is true for the agent that responds; `zone`
    is empty if the agent has none."""

    node: int
    session: str
    kafka: str
    http: str
    state: str
    wal: str
    zone: str
    started_at_ms: int
    expires_in_ms: int
    partitions: int
    shards: int
    asked: bool


class Agents(msgspec.Struct, frozen=True, kw_only=True):
    agents: list[AgentView]


class Drain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a drain request; it has no fields."""


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def respond() -> Response:
        return json_response(Agents(agents=[_view(each) for each in await broker.cluster_admin.agents()]))

    async def list_agents(_: Call[NoQuery, None]) -> Response:
        return await respond()

    async def drain_agent(call: Call[NoQuery, Drain]) -> Response:
        await broker.cluster_admin.drain(call.path["node"], draining=True)
        return await respond()

    async def undrain_agent(call: Call[NoQuery, None]) -> Response:
        await broker.cluster_admin.drain(call.path["node"], draining=False)
        return await respond()

    drain = "/v1/agents/{node}/drain"
    return [
        Operation(
            method="GET",
            path="/v1/agents",
            handler=list_agents,
            needs=needs(AclOperation.DESCRIBE, ResourceType.CLUSTER),
            summary="List agents whose sessions have not ended",
            tag=TAG,
            query=NoQuery,
            response=Agents,
        ),
        Operation(
            method="POST",
            path=drain,
            handler=drain_agent,
            needs=needs(AclOperation.ALTER, ResourceType.CLUSTER),
            summary="Drain an agent: it transfers its leases and takes no new ones",
            about="Returns at once; draining is complete when the agent holds no leases.",
            tag=TAG,
            query=NoQuery,
            body=Drain,
            max_body_bytes=MAX_BODY_BYTES,
            response=Agents,
            problems=(404,),
        ),
        Operation(
            method="DELETE",
            path=drain,
            handler=undrain_agent,
            needs=needs(AclOperation.ALTER, ResourceType.CLUSTER),
            summary="Undo the draining of an agent",
            tag=TAG,
            query=NoQuery,
            response=Agents,
            problems=(404,),
        ),
    ]


def _view(status: AgentStatus) -> AgentView:
    session = status.session
    return AgentView(
        node=session.node_id,
        session=session.session_id,
        kafka=str(session.kafka),
        http=str(session.http),
        state=status.condition,
        wal=session.wal,
        zone=session.zone,
        started_at_ms=session.started_at_ms,
        expires_in_ms=status.expires_in_ms,
        partitions=status.partitions,
        shards=status.shards,
        asked=status.is_responder,
    )
