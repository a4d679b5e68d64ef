"""Packing: the records of one call, sorted by partition and made into batches that their topic takes.

Data path   publishing -> **packing** -> letters
Owns        which partition a record goes to, where a batch is split, which record is refused for itself alone
Leaves      hashing keys to `format.partitioning`, sending to `delivery`
"""

from collections.abc import Sequence
from typing import Final

from streamhouse.broker.doors import Doors
from streamhouse.broker.records.here import Here
from streamhouse.broker.records.keys import Key
from streamhouse.broker.records.letters import RecordLetter, Refuse, encode
from streamhouse.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge, UnknownTopic
from streamhouse.format.compression import Codec
from streamhouse.format.partitioning import partition_for
from streamhouse.format.records import encode_batch
from streamhouse.model.names import TopicId, TopicPartition
from streamhouse.model.record import NewRecord
from streamhouse.model.topic import Topic, TopicConfig
from streamhouse.model.topic_settings import MAX_LONG

CONFIG_FRESH_S: Final = 1.0
MAX_CONFIGS: Final = 1000


def sort_records(topic: Topic, records: Sequence[NewRecord], *, sticky: int, refuse: Refuse) -> dict[int, list[int]]:
    """Positions of the records by partition, in their order; those that can't go anywhere are refused.

    Records without a key stay together, so that one call makes few batches.
    """
    partitions = topic.partitions
    sticky %= partitions
    found: dict[int, list[int]] = {}
    for position, (_, key, _, timestamp_ms, partition) in enumerate(records):
        if partition is None:
            partition = sticky if key is None else partition_for(key, partitions)
        elif not 0 <= partition < partitions:
            refuse(position, UnknownTopic(TopicPartition(topic.name, partition)))
            continue
        if timestamp_ms is not None and not 0 <= timestamp_ms <= MAX_LONG:
            refuse(position, InvalidTimestamp(f"timestamp is out of range; timestamp_ms={timestamp_ms}"))
            continue
        if (positions := found.get(partition)) is None:
            positions = found[partition] = []
        positions.append(position)
    return found


class TopicConfigs:
    """Settings of topics, parsed once in a while: the leader has the last word on them anyway."""

    def __init__(self, doors: Doors, here: Here) -> None:
        self._clock = doors.clock
        self._here = here
        self._known: dict[TopicId, tuple[float, Topic, TopicConfig]] = {}

    def of(self, topic: Topic) -> TopicConfig:
        now = self._clock.monotonic()
        at, same, config = self._known.get(topic.topic_id, (0.0, None, None))
        if config is None or same is not topic or now - at >= CONFIG_FRESH_S:
            if len(self._known) >= MAX_CONFIGS:
                self._known.clear()
            config = self._here.catalogue.config_of(topic)
            self._known[topic.topic_id] = now, topic, config
        return config


class Packing:
    """Of one call: its records, its key, and where refused ones are told."""

    def __init__(
        self,
        doors: Doors,
        records: Sequence[NewRecord],
        *,
        config: TopicConfig,
        key: Key | None,
        refuse: Refuse,
    ) -> None:
        self._compress_at_bytes = doors.settings.records.compress_at_bytes
        self._now_ms = doors.clock.now_ms()
        self._records = records
        self._config = config
        self._key = key
        self._refuse = refuse

    async def pack(self, name: TopicPartition, positions: Sequence[int]) -> list[RecordLetter]:
        """Batches, in order; what is too large is halved until it fits, or is one record that never will."""
        waiting, letters = [positions], list[RecordLetter]()
        while waiting:
            chosen = waiting.pop()
            records = self._records if len(chosen) == len(self._records) else [self._records[at] for at in chosen]
            size_bytes = sum([len(value or b"") + len(key or b"") for value, key, _, _, _ in records])
            codec = Codec.LZ4 if 0 < self._compress_at_bytes <= size_bytes else Codec.NONE
            try:
                made = await encode(records, codec=codec, now_ms=self._now_ms, size_bytes=size_bytes)
            except InvalidRecord as error:
                if kept := self._without(chosen, error):
                    waiting.append(kept)
                continue
            if len(made) <= self._config.max_message_bytes:
                identity = self._key.identity(len(letters)) if self._key is not None else None
                letters.append(
                    RecordLetter(
                        records,
                        chosen,
                        codec=codec,
                        now_ms=self._now_ms,
                        identity=identity,
                        refuse=self._refuse,
                        first=made,
                    )
                )
            elif len(chosen) > 1:
                middle = len(chosen) // 2
                waiting += [chosen[middle:], chosen[:middle]]
            else:
                limit_bytes = self._config.max_message_bytes
                self._refuse(chosen[0], RecordTooLarge(name, size_bytes=len(made), limit_bytes=limit_bytes))
        return letters

    def _without(self, chosen: Sequence[int], error: InvalidRecord) -> list[int]:
        """Those that a batch can hold. Each is tried for itself: found one by one, many would take for ever."""
        kept: list[int] = []
        for position in chosen:
            try:
                encode_batch([self._records[position]], codec=Codec.NONE, now_ms=self._now_ms)
            except InvalidRecord as own:
                self._refuse(position, own)
            else:
                kept.append(position)
        if len(kept) == len(chosen):  # each could be held, and all of them together can't
            for position in kept:
                self._refuse(position, error)
            return []
        return kept
