"""Isolation: the batches that everybody may see, among those of transactions that were aborted and those of markers.

Data path   fetch, segment -> consecutive batches -> **committed_only** -> whoever reads committed records
Owns        which batches an aborted transaction made void; leaving them out, and control batches, without a copy
Leaves      which transactions were aborted to the partition's log and the metadata store, offsets that are not stable
            yet to whoever reads: nothing here tells an open transaction from a committed one
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from struct import Struct
from typing import Final, NamedTuple

from streamhouse.errors import CorruptBatch
from streamhouse.format.batch import HEADER_BYTES, Buffer, empty_batch
from streamhouse.model.transaction import AbortedTransaction

_GLANCE: Final = Struct(">qii5xhi16xq")  # base offset, length, epoch, attributes, last delta, producer id
_PREFIX_BYTES: Final = 12
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class Aborted:
    """Transactions of one partition that were aborted; asked batch by batch."""

    __slots__ = ("_by_producer", "_firsts_behind", "_lasts", "_transactions")

    def __init__(self, transactions: Iterable[AbortedTransaction] = ()) -> None:
        self._transactions = tuple(sorted(set(transactions), key=lambda each: (each.last_offset, each.first_offset)))
        self._lasts = [each.last_offset for each in self._transactions]
        # The lowest first offset from each one on.
        self._firsts_behind = list(accumulate((each.first_offset for each in reversed(self._transactions)), min))[::-1]
        by_producer: dict[int, list[AbortedTransaction]] = {}
        for each in self._transactions:
            by_producer.setdefault(each.producer_id, []).append(each)
        self._by_producer = {
            producer_id: _ranges(sorted(found, key=lambda each: each.first_offset))
            for producer_id, found in by_producer.items()
        }

    def __repr__(self) -> str:
        return f"<Aborted transactions={len(self._transactions)} producers={len(self._by_producer)}>"

    def __bool__(self) -> bool:
        return bool(self._transactions)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return iter(self._transactions)

    def voids(self, producer_id: int, offset: int) -> bool:
        """Whether a batch of a transaction that this producer wrote here is void."""
        found = self._by_producer.get(producer_id)
        if found is None:
            return False
        firsts, lasts = found
        at = bisect_right(firsts, offset)
        return at > 0 and offset <= lasts[at - 1]

    def within(self, start: int, end: int) -> tuple[AbortedTransaction, ...]:
        """Those that may make batches void which have offsets in [start, end)."""
        found: list[AbortedTransaction] = []
        for at in range(bisect_left(self._lasts, start), len(self._lasts)):
            if self._firsts_behind[at] >= end:
                break
            if self._transactions[at].first_offset < end:
                found.append(self._transactions[at])
        return tuple(found)


def _ranges(found: Sequence[AbortedTransaction]) -> tuple[list[int], list[int]]:
    """Where each begins, and how far those reach that begin there or before."""
    return [each.first_offset for each in found], list(accumulate((each.last_offset for each in found), max))


NONE_ABORTED: Final = Aborted()


def shifted(transactions: Iterable[AbortedTransaction], by: int) -> tuple[AbortedTransaction, ...]:
    """The same where offsets count from elsewhere."""
    return tuple(each._replace(first_offset=each[1] + by, last_offset=each[2] + by) for each in transactions)


def committed_only(pieces: Sequence[Buffer], aborted: Iterable[AbortedTransaction]) -> list[Buffer]:
    """What stays of consecutive batches, in stretches: all but control batches and those that are void."""
    void = aborted if isinstance(aborted, Aborted) else Aborted(aborted)
    kept: list[Buffer] = []
    for piece in pieces:
        kept += [stretch.data for stretch in _stretches(piece, void) if stretch.stays]
    return kept


def readable(pieces: Sequence[Buffer], aborted: Iterable[AbortedTransaction]) -> list[Buffer]:
    """As `committed_only`, for who goes on behind the last batch that it got: where the last ones don't stay, a batch
    without records takes it over their offsets."""
    void = aborted if isinstance(aborted, Aborted) else Aborted(aborted)
    kept: list[Buffer] = []
    last: _Stretch | None = None
    for piece in pieces:
        for last in _stretches(piece, void):
            if last.stays:
                kept.append(last.data)
    if last is not None and not last.stays:
        kept.append(empty_batch(last.base, last.end, leader_epoch=last.leader_epoch))
    return kept


class _Stretch(NamedTuple):
    """Neighbouring batches that all stay, or all don't: offsets [base, end)."""

    data: Buffer
    stays: bool
    base: int
    end: int
    leader_epoch: int


def _stretches(piece: Buffer, void: Aborted) -> Iterator[_Stretch]:
    """A piece as it is where all of it stays; views of it else."""
    size, position, begin = len(piece), 0, 0
    stays, base, end, epoch = True, 0, 0, -1
    while position < size:
        if size - position < HEADER_BYTES:
            raise CorruptBatch(f"batches end inside a header; position={position} size={size}")
        first, length, leader_epoch, attributes, last_delta, producer_id = _GLANCE.unpack_from(piece, position)
        batch_bytes = length + _PREFIX_BYTES
        if not HEADER_BYTES <= batch_bytes <= size - position:
            raise CorruptBatch(f"batches end inside a batch; position={position} declared={batch_bytes} size={size}")
        is_void = attributes & _CONTROL or (attributes & _TRANSACTIONAL and void.voids(producer_id, first))
        if position == begin or stays == bool(is_void):
            if position > begin:
                yield _Stretch(memoryview(piece)[begin:position], stays, base, end, epoch)
            begin, stays, base, epoch = position, not is_void, first, leader_epoch
        end = first + last_delta + 1
        position += batch_bytes
    if size:
        yield _Stretch(piece if begin == 0 else memoryview(piece)[begin:], stays, base, end, epoch)
