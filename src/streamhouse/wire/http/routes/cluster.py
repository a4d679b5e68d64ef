"""Cluster: addresses of all agents, for clients that know one of them.

GET /v1/cluster    the cluster's id, its agents with the addresses of their ports, a bootstrap list for Kafka clients
"""

from typing import Any

import msgspec
from starlette.responses import Response

from streamhouse import __version__
from streamhouse.broker.broker import Broker
from streamhouse.model.cluster import Session
from streamhouse.model.needs import LOGGED_IN
from streamhouse.model.tenant import cluster_id_of
from streamhouse.wire.http.operations import Call, NoQuery, Operation, json_response


class ClusterAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent; `grpc` is null if it has no gRPC listener or its address is unknown."""

    node: int
    kafka: str
    http: str
    grpc: str | None
    draining: bool


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """`node` is the agent that responds; `bootstrap` is for Kafka clients: HOST:PORT, separated by commas."""

    cluster_id: str
    version: str
    node: int
    bootstrap: str
    agents: list[ClusterAgent]


def operations(broker: Broker, *, cluster_id: str, grpc: str | None) -> list[Operation[Any, Any]]:
    """`grpc` is this agent's gRPC address."""

    async def get_cluster(call: Call[NoQuery, None]) -> Response:
        own = broker.node_id
        agents = broker.agents()
        return json_response(
            ClusterView(
                cluster_id=cluster_id_of(call.caller.tenant, cluster_id) if call.caller.tenant else cluster_id,
                version=__version__,
                node=own,
                bootstrap=",".join(str(each.kafka) for each in agents),
                agents=[_agent(each, grpc if each.node_id == own else None) for each in agents],
            )
        )

    return [
        Operation(
            method="GET",
            path="/v1/cluster",
            handler=get_cluster,
            needs=LOGGED_IN,
            summary="The cluster: agents and their addresses",
            tag="agents",
            query=NoQuery,
            response=ClusterView,
        )
    ]


def _agent(session: Session, grpc: str | None) -> ClusterAgent:
    return ClusterAgent(
        node=session.node_id,
        kafka=str(session.kafka),
        http=str(session.http),
        grpc=grpc,
        draining=session.draining,
    )
