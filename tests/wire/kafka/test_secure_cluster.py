"""Agents of a cluster with logins and access control: they forward to each other, and nobody else does."""

from msgspec.structs import replace

from streamhouse.config import SecuritySettings
from streamhouse.model.record import Acks, NewRecord
from tests.wire.kafka.cluster import SETTINGS, a_cluster, receipts

PARTITIONS = 6
SECURE = replace(SETTINGS, security=SecuritySettings(authorization="acls"))


async def test_agents_log_in_at_each_other_and_forward() -> None:
    async with a_cluster(3, SECURE, secret="a secret of this cluster") as cluster:
        await cluster.topic("orders", PARTITIONS)
        for member in cluster.members:
            records = [NewRecord(b"v", partition=number) for number in range(PARTITIONS)]
            responses = await member.broker.records.publish("orders", records, acks=Acks.STORED, timeout_s=20)
            assert {each.partition for each in receipts(responses)} == set(range(PARTITIONS))
        logged_in = [each.caller.principal.kind for member in cluster.members for each in member.server.connections]
        assert logged_in
        assert set(logged_in) == {"Agent"}
