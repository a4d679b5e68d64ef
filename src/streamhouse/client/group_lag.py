"""Group lag: how many records a group is behind, per partition.

As agents count it (`GET /v1/groups/{group}/lag`): all partitions of a topic count if the group has committed an offset
in one of them, or a member was assigned one. Where nothing was committed, the lag counts from the log start.
"""

from contextlib import suppress
from dataclasses import dataclass

from streamhouse.client.kafka_admin import Admin
from streamhouse.client.kafka_groups import Groups
from streamhouse.client.types import EARLIEST, LATEST, Group
from streamhouse.errors import UnknownTopic
from streamhouse.model.names import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """The committed offset of a group in a partition, None if there is none, and the ends of the log."""

    partition: TopicPartition
    committed: int | None
    start: int
    end: int
    member_id: str | None

    @property
    def lag(self) -> int:
        """Offsets that are still to be read: from the log's start where nothing was committed."""
        return max(self.end - (self.start if self.committed is None else self.committed), 0)


async def partition_lags(admin: Admin, groups: Groups, group: Group) -> list[PartitionLag]:
    """One for every partition that the group reads, by topic and number; topics that are gone are left out."""
    committed = await groups.committed(group.name)
    readers = {tp: member.member_id for member in group.members for tp in member.assigned}
    lags: list[PartitionLag] = []
    for name in sorted({tp.topic for tp in (*committed, *readers)}):
        with suppress(UnknownTopic):
            topic = await admin.topic(name)
            starts, ends = await admin.offsets(topic, EARLIEST), await admin.offsets(topic, LATEST)
            partitions = [TopicPartition(name, number) for number in sorted(ends)]
            lags += [
                PartitionLag(
                    partition=partition,
                    committed=committed.get(partition),
                    start=starts[partition.partition],
                    end=ends[partition.partition],
                    member_id=readers.get(partition),
                )
                for partition in partitions
            ]
    return lags
