"""gRPC server: grpc.aio on the agent's event loop, and the table of methods of streamhouse.v1."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import grpc
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.clock import Clock
from streamhouse.config import Address, GrpcSettings
from streamhouse.config.listener_spec import ListenerSpec
from streamhouse.errors import Misconfigured
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import LOGGED_IN, Needs, Right, all_of, lists, need, needs
from streamhouse.wire.authentication import CLIENT_ID, Authenticator, Origin
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.grpc import standard_services as health
from streamhouse.wire.grpc import standard_services as reflection
from streamhouse.wire.grpc.admin import ClusterAdmin, GroupAdmin, TopicAdmin
from streamhouse.wire.grpc.calls import CallRunner, client_of, host_of, metadata_value
from streamhouse.wire.grpc.connection_quotas import ConnectionQuotas
from streamhouse.wire.grpc.consume_stream import ConsumeService
from streamhouse.wire.grpc.fetch import FetchService
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.metrics import GrpcMetrics
from streamhouse.wire.grpc.produce import ProduceService
from streamhouse.wire.grpc.produce_stream import batches_stream, records_stream
from streamhouse.wire.grpc.tenants import TENANT
from streamhouse.wire.grpc.tls import certificate_of, check_tls, server_credentials
from streamhouse.wire.listener import UserOf, bind, no_user
from streamhouse.wire.tls import ServerTls

log = logging.getLogger(__name__)


CREATION: Final = "create, on topic or cluster, for a topic that isn't there"
SETTINGS: Final = "settings are shown with describe-configs"
READS: Final = needs(Operation.READ, ResourceType.TOPIC)
ALTER_TOPIC: Final = all_of(
    need((Operation.DESCRIBE, ResourceType.TOPIC, "name")),
    need((Operation.ALTER, ResourceType.TOPIC), when="for more partitions"),
    need((Operation.ALTER_CONFIGS, ResourceType.TOPIC), when="for settings"),
)
GROUP_LAG: Final = all_of(
    need((Operation.DESCRIBE, ResourceType.GROUP, "group_id")),
    lists=(Right(Operation.DESCRIBE, ResourceType.TOPIC),),
)
RESET_GROUP: Final = all_of(
    need((Operation.READ, ResourceType.GROUP, "group_id")), need((Operation.READ, ResourceType.TOPIC))
)
PRODUCER_ID: Final = all_of(
    need((Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER), (Operation.WRITE, ResourceType.TOPIC)),
    about="any topic will do",
)

NEEDS: Final[Mapping[str, Needs]] = {
    "Produce": needs(Operation.WRITE, ResourceType.TOPIC, "topic", about=CREATION),
    "ProduceBatches": needs(Operation.WRITE, ResourceType.TOPIC, "topic", about=CREATION),
    "ProduceStream": needs(Operation.WRITE, ResourceType.TOPIC, about=CREATION),
    "ProduceBatchesStream": needs(Operation.WRITE, ResourceType.TOPIC, about=CREATION),
    "Fetch": READS,
    "FetchBatches": READS,
    "Consume": READS,
    "ConsumeBatches": READS,
    "CreateTopic": all_of(need((Operation.CREATE, ResourceType.TOPIC), (Operation.CREATE, ResourceType.CLUSTER))),
    "ListTopics": lists(Operation.DESCRIBE, ResourceType.TOPIC, about=SETTINGS),
    "DescribeTopic": needs(Operation.DESCRIBE, ResourceType.TOPIC, "name", about=SETTINGS),
    "AlterTopic": ALTER_TOPIC,
    "DeleteTopic": needs(Operation.DELETE, ResourceType.TOPIC, "name"),
    "ListPartitions": lists(Operation.DESCRIBE, ResourceType.TOPIC),
    "ListOffsets": needs(Operation.DESCRIBE, ResourceType.TOPIC),
    "ListGroups": lists(Operation.DESCRIBE, ResourceType.GROUP, about="all of them with describe on the cluster"),
    "DescribeGroup": needs(Operation.DESCRIBE, ResourceType.GROUP, "group_id"),
    "GetGroupLag": GROUP_LAG,
    "ResetGroup": RESET_GROUP,
    "DeleteGroup": needs(Operation.DELETE, ResourceType.GROUP, "group_id"),
    "ListAgents": needs(Operation.DESCRIBE, ResourceType.CLUSTER),
    "GetCluster": LOGGED_IN,
    "AllocateProducerId": PRODUCER_ID,
}
"""The rights that each method needs. Health and reflection are open to everybody: there is no data in them."""

RECORDS: Final = pb.DESCRIPTOR.services_by_name["RecordsService"].full_name
ADMIN: Final = pb.DESCRIPTOR.services_by_name["AdminService"].full_name


def services_of(
    calls: CallRunner, broker: Broker, *, clock: Clock, cluster_id: str, address: Address
) -> Mapping[str, Mapping[str, Any]]:
    """Service -> method -> handler for grpc."""
    return {
        RECORDS: records_service(calls, broker, clock),
        ADMIN: admin_service(calls, broker, cluster_id=cluster_id, address=address),
    }


def _declared(handler: Callable[..., Any], name: str, request_type: Any, method: Any) -> Any:
    return handler(name, request_type, method, NEEDS[name])


def records_service(calls: CallRunner, broker: Broker, clock: Clock) -> Mapping[str, Any]:
    unary, stream = partial(_declared, calls.unary), partial(_declared, calls.stream)
    producing, reading = ProduceService(calls, broker), FetchService(calls.settings, broker)
    consuming = ConsumeService(reading, clock)
    limit = calls.settings.stream_inflight
    return {
        "Produce": unary("Produce", pb.ProduceRequest, producing.produce),
        "ProduceBatches": unary("ProduceBatches", pb.ProduceBatchesRequest, producing.produce_batches),
        "ProduceStream": stream(
            "ProduceStream", pb.ProduceStreamRequest, partial(records_stream, producing, limit=limit)
        ),
        "ProduceBatchesStream": stream(
            "ProduceBatchesStream", pb.ProduceBatchesStreamRequest, partial(batches_stream, producing, limit=limit)
        ),
        "Fetch": unary("Fetch", pb.FetchRequest, reading.fetch),
        "FetchBatches": unary("FetchBatches", pb.FetchBatchesRequest, reading.fetch_batches),
        "Consume": stream("Consume", pb.ConsumeRequest, consuming.consume),
        "ConsumeBatches": stream("ConsumeBatches", pb.ConsumeBatchesRequest, consuming.consume_batches),
    }


def admin_service(calls: CallRunner, broker: Broker, *, cluster_id: str, address: Address) -> Mapping[str, Any]:
    unary, limit = partial(_declared, calls.unary), calls.settings.max_positions
    topics, groups = TopicAdmin(broker, limit=limit), GroupAdmin(broker, limit=limit)
    cluster = ClusterAdmin(broker, cluster_id=cluster_id, address=address)
    return {
        "CreateTopic": unary("CreateTopic", pb.CreateTopicRequest, topics.create),
        "ListTopics": unary("ListTopics", pb.ListTopicsRequest, topics.list_all),
        "DescribeTopic": unary("DescribeTopic", pb.DescribeTopicRequest, topics.describe),
        "AlterTopic": unary("AlterTopic", pb.AlterTopicRequest, topics.alter),
        "DeleteTopic": unary("DeleteTopic", pb.DeleteTopicRequest, topics.delete),
        "ListPartitions": unary("ListPartitions", pb.ListPartitionsRequest, topics.partitions),
        "ListOffsets": unary("ListOffsets", pb.ListOffsetsRequest, topics.offsets),
        "ListGroups": unary("ListGroups", pb.ListGroupsRequest, groups.list_all),
        "DescribeGroup": unary("DescribeGroup", pb.DescribeGroupRequest, groups.describe),
        "GetGroupLag": unary("GetGroupLag", pb.GetGroupLagRequest, groups.lag),
        "ResetGroup": unary("ResetGroup", pb.ResetGroupRequest, groups.reset),
        "DeleteGroup": unary("DeleteGroup", pb.DeleteGroupRequest, groups.delete),
        "ListAgents": unary("ListAgents", pb.ListAgentsRequest, cluster.agents),
        "GetCluster": unary("GetCluster", pb.GetClusterRequest, cluster.cluster),
        "AllocateProducerId": unary("AllocateProducerId", pb.AllocateProducerIdRequest, cluster.allocate_producer_id),
    }


STOP_TIMEOUT_S: Final = 2.0
"""How long a stop waits for calls in flight; streams are ended at once."""

MAX_PING_STRIKES: Final = 2
MAX_METADATA_BYTES: Final = 16 * 1024


class _Listening(NamedTuple):
    """A listener, with a server of its own: grpc's calls don't say through which they came."""

    spec: ListenerSpec
    server: Any
    address: Address


class GrpcServer:
    """Serves gRPC on addresses that it is bound to from construction on. Limits hold for each listener."""

    def __init__(self, settings: GrpcSettings, listeners: Sequence[ListenerSpec], tls: ServerTls | None = None) -> None:
        self._settings = settings
        self._tls = tls
        self._listening = [self._listen(each) for each in listeners]
        self.address = self._listening[0].address
        self._calls: list[CallRunner] = []

    def __repr__(self) -> str:
        return f"<GrpcServer {', '.join(str(each.address) for each in self._listening)} {self._calls!r}>"

    def _listen(self, spec: ListenerSpec) -> _Listening:
        credentials = None
        if self._tls is not None and spec.protocol.has_tls:
            check_tls(self._tls.files, spec)
            credentials = server_credentials(self._tls)
        server = grpc.aio.server(options=options(self._settings), maximum_concurrent_rpcs=self._settings.max_requests)
        return _Listening(spec, server, _bind(server, spec.bind, credentials))

    async def start(
        self,
        broker: Broker,
        *,
        clock: Clock,
        registry: CollectorRegistry,
        cluster_id: str,
        advertised: Address | None = None,
    ) -> None:
        """Serve calls; `advertised` is the address for clients, if it isn't the listener's own."""
        authenticator = Authenticator(
            broker.security, delay_s=broker.settings.security.failed_login_delay_s, clock=clock
        )
        metrics = GrpcMetrics(registry)
        connections = ConnectionQuotas(broker.security.quotas, clock, remembered=self._settings.rate_clients)
        for spec, server, _ in self._listening:
            user_of = self._tls.user_of if self._tls is not None and spec.protocol.has_tls else no_user
            log_in = partial(_log_in, authenticator, connections, spec, user_of)
            calls = CallRunner(self._settings, metrics, clock, log_in, tracer=broker.tracer)
            self._calls.append(calls)
            services = services_of(
                calls, broker, clock=clock, cluster_id=cluster_id, address=advertised or self.address
            )
            names = [*services, health.SERVICE]
            watched = health.Health(broker.not_ready, services=names, clock=clock)
            server.add_generic_rpc_handlers(
                [
                    *(grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items()),
                    watched.handlers(calls),
                    *reflection.handlers(names),
                ]
            )
            await server.start()

    async def stop(self) -> None:
        """Take no more calls, end streams, and finish calls in flight for `STOP_TIMEOUT_S`. May be called twice."""
        for calls in self._calls:
            calls.stop()
        await asyncio.gather(*(each.server.stop(STOP_TIMEOUT_S) for each in self._listening))


def options(settings: GrpcSettings) -> list[tuple[str, Any]]:
    """The limits, by grpc's names."""

    def ms(seconds: float) -> int:
        return max(1, round(seconds * 1000))

    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.max_concurrent_streams", settings.max_streams),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.server_handshake_timeout_ms", ms(settings.handshake_timeout_s)),
        ("grpc.max_connection_idle_ms", ms(settings.idle_timeout_s)),
        ("grpc.keepalive_time_ms", ms(settings.keepalive_s)),
        ("grpc.keepalive_timeout_ms", ms(settings.keepalive_timeout_s)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", ms(settings.min_ping_interval_s)),
        ("grpc.http2.max_ping_strikes", MAX_PING_STRIKES),
    ]


async def _log_in(
    authenticator: Authenticator, connections: ConnectionQuotas, listener: ListenerSpec, user_of: UserOf, context: Any
) -> RequestAccess:
    """The rights of a call, by the credentials in its metadata."""
    metadata = [(key.lower(), str(value)) for key, value in context.invocation_metadata() or ()]
    host = host_of(client_of(context.peer()))
    await connections.wait_turn(context.peer(), host)
    access = await authenticator.log_in(
        [value for key, value in metadata if key == "authorization"],
        [value for key, value in metadata if key == "x-api-key"],
        Origin(
            listener=listener,
            host=host,
            certified=user_of(certificate_of(context)),
            client_id=metadata_value(context, CLIENT_ID),
        ),
    )
    TENANT.set(access.caller.tenant)
    return access


def _bind(server: Any, address: Address, credentials: Any) -> Address:
    """Bind the server to the address; raise `Misconfigured` if that fails.

    grpc opens its sockets itself and hides the cause of a failure, so the address is tried before.
    """
    bind(address, flag="--grpc").close()
    try:
        if credentials is not None:
            port = server.add_secure_port(str(address), credentials)
        else:
            port = server.add_insecure_port(str(address))
    except RuntimeError as error:
        raise Misconfigured(
            f"can't listen on {address}: {error}; choose another address with --grpc HOST:PORT"
        ) from None
    return Address(address.host, port)
