"""Services: which method of streamhouse.v1 is answered by whom.

Owns        the table from names in streamhouse.proto to methods
Leaves      everything else to them
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from streamhouse.broker.broker import Broker
from streamhouse.clock import Clock
from streamhouse.config import Address

from .admin_cluster import ClusterAdmin
from .admin_groups import GroupAdmin
from .admin_topics import TopicAdmin
from .calls import Calls
from .consuming import Consuming
from .generated import streamhouse_pb2 as pb
from .produce_streams import batches_stream, records_stream
from .producing import Producing
from .reading import Reading

RECORDS: Final = pb.DESCRIPTOR.services_by_name["RecordsService"].full_name
ADMIN: Final = pb.DESCRIPTOR.services_by_name["AdminService"].full_name


def services_of(
    calls: Calls, broker: Broker, *, clock: Clock, cluster_id: str, address: Address
) -> Mapping[str, Mapping[str, Any]]:
    """Service -> method -> handler for grpc."""
    return {
        RECORDS: records_service(calls, broker, clock),
        ADMIN: admin_service(calls, broker, cluster_id=cluster_id, address=address),
    }


def records_service(calls: Calls, broker: Broker, clock: Clock) -> Mapping[str, Any]:
    unary, stream = calls.unary, calls.stream
    producing, reading = Producing(calls, broker), Reading(calls.settings, broker)
    consuming = Consuming(reading, clock)
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


def admin_service(calls: Calls, broker: Broker, *, cluster_id: str, address: Address) -> Mapping[str, Any]:
    unary, limit = calls.unary, calls.settings.max_positions
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
