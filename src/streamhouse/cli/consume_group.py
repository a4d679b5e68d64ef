"""Consume in a group: the records of a topic that are ours, each one committed once it was written out.

Owns        when reading in a group is over; that a commit follows the writing
Leaves      the flags to `consume`, lines to `records_out`, being a member to `client.group_consumer`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamhouse.cli.doors import Doors
from streamhouse.cli.records_out import Render, schema_reader, write_out
from streamhouse.cli.watch import POLL_S, Watch
from streamhouse.client.types import LATEST, Place

if TYPE_CHECKING:
    from streamhouse.client.group_consumer import GroupConsumer
    from streamhouse.client.kafka_admin import Admin

POLL_RECORDS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReader:
    """Reads up to the ends that partitions had at the start, or, following, until somebody stops it."""

    topic: str
    group: str
    from_beginning: bool
    follow: bool
    limit: int | None
    render: Render
    schema: str | None
    http: str

    async def read(self, doors: Doors, bootstrap: str) -> None:
        async with doors.admin(bootstrap) as admin, schema_reader(doors, self.http, self.schema) as reader:
            topic = await admin.topic(self.topic)
            ends = None if self.follow else await admin.offsets(topic, LATEST, committed=True)
            member = doors.group_consumer(
                bootstrap,
                self.topic,
                group=self.group,
                from_beginning=self.from_beginning or not self.follow,
                reader=reader,
            )
            async with member as consumer:
                await self._copy(consumer, admin, ends)

    async def _copy(self, consumer: "GroupConsumer", admin: "Admin", ends: Mapping[int, int] | None) -> None:
        left = self.limit
        watch = Watch(admin, patient=self.follow)
        while ends is None or not reached(await consumer.positions(), ends):
            most = POLL_RECORDS if left is None else min(POLL_RECORDS, left)
            records = await consumer.poll(max_records=most, timeout_s=POLL_S)
            write_out(records, self.render)
            await consumer.done(records)
            await watch.after(records)
            if left is not None:
                left -= len(records)
                if left <= 0:
                    return


def reached(positions: Mapping[Place, int] | None, ends: Mapping[int, int]) -> bool:
    """Whether nothing is left of what was there at the start, in the partitions that are ours."""
    return positions is not None and all(offset >= ends.get(place.partition, 0) for place, offset in positions.items())
