"""Logs of plain records and of transactions that commit, abort or stay open: drawn by hypothesis, and as bytes."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from streamhouse.format.batch import Buffer, read_header
from streamhouse.format.records import Record, build_batch, read_records
from streamhouse.model.transaction import AbortedTransaction
from tests.format.kafka_cleaner import Entry, Item

LIMIT = 1 << 20
NOW_MS = 1_700_000_000_000
KEYS = [b"a", b"b", b"c", b"d"]


@dataclass
class Written:
    """A log as it was written."""

    log: list[Buffer] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    under_way: dict[int, int] = field(default_factory=dict)
    """First offset of the open transaction of each producer."""
    end: int = 0

    @property
    def stable_end(self) -> int:
        return min(self.under_way.values(), default=self.end)

    def plain(self, *records: tuple[bytes | None, bytes | None]) -> None:
        self._append(_records(records))

    def send(self, producer: int, *records: tuple[bytes | None, bytes | None]) -> None:
        self.under_way.setdefault(producer, self.end)
        self._append(_records(records), producer_id=producer, is_transactional=True, base_sequence=0)

    def finish(self, producer: int, *, commit: bool) -> None:
        """End the producer's transaction, if it has one here."""
        first = self.under_way.pop(producer, None)
        if first is None:
            return
        if not commit:
            self.aborted.append(AbortedTransaction(producer, first, self.end))
        key, value = struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 0)
        marker = [Record(key=key, value=value, timestamp_ms=NOW_MS)]
        self._append(marker, producer_id=producer, is_transactional=True, is_control=True)

    def _append(self, records: Sequence[Record], **settings: int | bool) -> None:
        given = {"producer_epoch": 0} | settings if "producer_id" in settings else settings
        self.log.append(build_batch(records, base_offset=self.end, leader_epoch=3, **given))  # type: ignore[arg-type]
        self.end += len(records)


def _records(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> list[Record]:
    return [Record(key=key, value=value, timestamp_ms=NOW_MS) for key, value in pairs]


def entries(log: Iterable[Buffer]) -> list[Entry]:
    return [entry(batch) for batch in log]


def entry(batch: Buffer) -> Entry:
    header = read_header(batch)
    records = read_records(batch, limit_bytes=LIMIT) if header.record_count else []
    items = tuple(Item(each.offset, each.key, each.value) for each in records)
    return Entry(
        base=header.base_offset,
        end=header.end,
        items=() if header.is_control else items,
        producer=header.producer_id,
        is_transactional=header.is_transactional,
        marker=struct.unpack(">hh", items[0].key or b"")[1] == 1 if header.is_control else None,
        horizon_ms=header.base_timestamp_ms if header.has_delete_horizon and records else None,
    )


PAIRS = st.lists(st.tuples(st.sampled_from([*KEYS, None]), st.sampled_from([b"v", b"w", None])), min_size=1, max_size=3)
PRODUCERS = st.sampled_from([1, 2, 3])
STEPS = st.one_of(
    st.tuples(st.just("plain"), PAIRS),
    st.tuples(st.just("send"), PRODUCERS, PAIRS),
    st.tuples(st.just("commit"), PRODUCERS),
    st.tuples(st.just("abort"), PRODUCERS),
)


def write(to: Written, steps: Iterable[tuple[object, ...]]) -> None:
    for kind, *rest in steps:
        match kind, rest:
            case "plain", [pairs]:
                to.plain(*pairs)  # type: ignore[misc]
            case "send", [producer, pairs]:
                to.send(producer, *pairs)  # type: ignore[arg-type, misc]
            case _, [producer]:
                to.finish(producer, commit=kind == "commit")  # type: ignore[arg-type]
