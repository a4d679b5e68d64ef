"""Tables: a topic that is compacted by key, written and read by one client, and what must hold of it.

Owns        what is sent with which key, what must be there of each key, tombstones
Leaves      requests to `clients`; compaction to the agents

A record may be gone only because of a later one with its key that is there, or was until its own turn came. A tombstone
may be gone when it is as old as `delete.retention.ms`; before that, every reader finds it or a later record. The newest
acknowledged record of a key, or a later one, is found by every scan that begins after its acknowledgement.
"""

from dataclasses import replace
from typing import NamedTuple

from streamhouse.broker.broker import Broker
from streamhouse.errors import StreamhouseError, TopicExists
from streamhouse.format.records import Record, build_batch, read_records
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import TopicPartition

from .clients import Client, simply
from .network import Begin, Finish, Lost
from .recorder import batches_of
from .world import World

PARTITION = TopicPartition("table", 0)
RETENTION_MS = 2000
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(RETENTION_MS),
    "message.timestamp.after.max.ms": str(10**12),
}
LIMIT_BYTES = 1 << 20
IDENTITY = "id"


class _Sent(NamedTuple):
    key: bytes
    value: bytes | None
    sent_ms: int


class Table(Client):
    def __init__(self, world: World) -> None:
        super().__init__(world, "table")
        self._keys = self.chance.choice((4, 40))
        self._sent: dict[bytes, _Sent] = {}
        self._stands: dict[int, bytes] = {}
        """What was acknowledged or read at each offset."""
        self._newest: dict[bytes, int] = {}
        """Of each key the last offset that was acknowledged."""
        self.superseded = 0
        """Offsets that the last scan found nothing at any more."""

    async def run(self) -> None:
        await self._create()
        while not self.world.is_quiet:
            await self.pause(0.05)
            try:
                await (self._scan() if self.chance.random() < 0.25 else self._write())
            except (StreamhouseError, Lost):
                continue
        await self.check()

    async def check(self) -> None:
        """Read all of it, as often as it takes."""
        while True:
            try:
                return await self._scan()
            except (StreamhouseError, Lost):
                await self.pause(0.05)

    async def _create(self) -> None:
        while True:
            try:
                create = simply(lambda broker: broker.create_topic(PARTITION.topic, partitions=1, overrides=CONFIG))
                await self.call(create)
            except TopicExists:
                return
            except (StreamhouseError, Lost):
                await self.pause(0.05)

    # --- writing

    async def _write(self) -> None:
        names = [self._name() for _ in range(self.chance.choice((1, 2, 4)))]
        now_ms = self.world.clock.now_ms()
        records = [
            Record(
                timestamp_ms=now_ms, key=self._sent[name].key, value=self._sent[name].value, headers=((IDENTITY, name),)
            )
            for name in names
        ]
        data = bytes(build_batch(records, codec=self.chance.choice((0, 3))))
        await self.call(self._appending(data, names), at=PARTITION)

    def _name(self) -> bytes:
        """A new record's identity."""
        name = b"table.%d" % len(self._sent)
        value = None if self.chance.random() < 0.2 else name + b"x" * self.chance.randrange(60)
        key = b"key-%d" % self.chance.randrange(self._keys)
        self._sent[name] = _Sent(key, value, self.world.clock.span_ms())
        return name

    def _appending(self, data: bytes, names: list[bytes]) -> Begin[None]:
        async def begin(broker: Broker) -> Finish[None]:
            placed = await broker.append(PARTITION, memoryview(bytearray(data)), None)

            async def finish() -> None:
                await broker.acknowledge(placed)
                for offset, name in enumerate(names, placed.base_offset):
                    self._stand(offset, name)
                    key = self._sent[name].key
                    self._newest[key] = max(offset, self._newest.get(key, -1))

            return finish

        return begin

    def _stand(self, offset: int, name: bytes) -> None:
        if (other := self._stands.setdefault(offset, name)) != name:
            self.history.violated(f"an offset has two records; {PARTITION} {offset} {other!r} {name!r}")

    # --- reading

    async def _scan(self) -> None:
        """From the start to the end. What an agent tells that may lead no more is checked, but may be old."""
        needed, since_ms = dict(self._newest), self.world.clock.span_ms()
        result: dict[bytes, int] = {}
        offsets: set[int] = set()
        offset, is_end, is_newest = 0, False, False
        while not is_end:
            got, is_newest = await self.call(simply(lambda broker, at=offset: self._fetch(broker, at)), at=PARTITION)  # type: ignore[misc]
            if got.error is not None:
                self.failed(PARTITION, got.error)
                raise got.error
            for header, data in batches_of(got.records):
                for record in read_records(data, limit_bytes=LIMIT_BYTES):
                    if record.offset >= offset and record.key is not None:
                        self._read(record)
                        offsets.add(record.offset)
                        result[record.key] = record.offset
                offset = header.base_offset + header.last_offset_delta + 1
            is_end = offset >= got.high_watermark
        if is_newest:
            self._judge(needed, result, since_ms)
            self.superseded = len(self._stands.keys() - offsets)

    async def _fetch(self, broker: Broker, offset: int) -> tuple[FetchResult, bool]:
        led = self.opened(broker, PARTITION)
        requests = [PartitionFetch(PARTITION, offset, self.chance.choice((1, 500, 5_000)))]
        (got,) = await broker.fetch(requests, max_bytes=100_000, min_bytes=0, max_wait_s=0)
        return replace(got, records=tuple(map(bytes, got.records))), self.speaks(broker, PARTITION, led)

    def _read(self, record: Record) -> None:
        name = dict(record.headers).get(IDENTITY) or b""
        sent = self._sent.get(name)
        if sent is None or (sent.key, sent.value) != (record.key, record.value):
            self.history.violated(f"a record was read that was never sent; {PARTITION} {record}")
            return
        self._stand(record.offset, name)

    def _judge(self, needed: dict[bytes, int], found: dict[bytes, int], since_ms: int) -> None:
        """What `found` has of each key is what was `needed` when the scan began, or later."""
        now_ms = self.world.clock.span_ms()
        for key, offset in needed.items():
            if (at := found.get(key, -1)) >= offset:
                continue
            last = self._sent[self._stands[offset]]
            if last.value is not None or now_ms - last.sent_ms < RETENTION_MS:
                self.history.violated(
                    f"the last record of a key is gone; {PARTITION} {key!r} {offset} {last} found={at}"
                )
            elif at >= 0 and now_ms - since_ms < RETENTION_MS:
                self.history.violated(f"a deleted key is back; {PARTITION} {key!r} {offset} {last} found={at}")
