"""The cluster over gRPC: who is in it, where agents are reached, and ids for producers."""

from streamhouse import __version__
from streamhouse.broker.broker import Broker
from streamhouse.broker.cluster.oversight import AgentStatus
from streamhouse.config import Address

from .calls import Call
from .generated import streamhouse_pb2 as pb


class ClusterAdmin:
    def __init__(self, broker: Broker, *, cluster_id: str, address: Address) -> None:
        self._broker = broker
        self._cluster_id = cluster_id
        self._address = address

    async def agents(self, request: pb.ListAgentsRequest, _: Call) -> pb.ListAgentsResponse:
        return pb.ListAgentsResponse(agents=map(self._message, await self._broker.oversight.agents()))

    async def cluster(self, request: pb.GetClusterRequest, _: Call) -> pb.GetClusterResponse:
        return pb.GetClusterResponse(
            cluster_id=self._cluster_id,
            version=__version__,
            agents=map(self._message, await self._broker.oversight.agents()),
            bootstrap_servers=",".join(str(each.kafka) for each in self._broker.agents()),
        )

    async def allocate_producer_id(
        self, request: pb.AllocateProducerIdRequest, _: Call
    ) -> pb.AllocateProducerIdResponse:
        return pb.AllocateProducerIdResponse(producer_id=await self._broker.allocate_producer_id(), producer_epoch=0)

    def _message(self, status: AgentStatus) -> pb.Agent:
        session = status.session
        return pb.Agent(
            node_id=session.node_id,
            session_id=session.session_id,
            kafka=str(session.kafka),
            http=str(session.http),
            grpc=str(self._address) if status.is_asked else "",  # sessions don't tell each other
            state=status.condition,
            started_at_ms=session.started_at_ms,
            partitions=status.partitions,
            asked=status.is_asked,
        )
