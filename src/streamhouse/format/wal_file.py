"""WAL file: entries of whole batches after a header that is written twice. Described in `docs/formats/wal.md`.

Data path   log -> **encode_entry** -> wal files ; after a crash: wal files -> **scan** -> log
Owns        the layout, both directions; the extent of damage; the summary of `wal inspect`
Leaves      writing, syncing and removing files to `broker.wal`, which entries are valid to the broker

Invariant   an entry is valid at one position only: it contains the file's random mark and its own position, covered by
            its CRC. So when the entry around it is damaged, neither an entry in a record's value is treated as one, nor
            a copy of this file in a record, nor what a recycled file contained before.
"""

import struct
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from crc32c import crc32c

from streamhouse.errors import CorruptObject, Misconfigured
from streamhouse.format.batch import KEEP_GIL, Buffer
from streamhouse.format.encryption import (
    SALT_BYTES,
    TAG_BYTES,
    EntryCipher,
    KeyEnvelope,
    decode_envelope,
    encode_envelope,
)
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId

VERSION: Final = 2
"""The version of files with encrypted batches; others have version 1."""
MARK_BYTES: Final = 8
MAX_SESSION_BYTES: Final = 255
MAX_BATCH_BYTES: Final = 2**32 - 1

FILE_MAGIC: Final = b"SHOUSWAL"
# Each copy of the file header has its own page, so that one bad sector can't destroy both.
_COPY_BYTES: Final = 4096
FILE_HEADER_BYTES: Final = 2 * _COPY_BYTES
_FILE_PREFIX: Final = struct.Struct(f">8sHI{MARK_BYTES}sQB")
_CRC_IN_FILE_PREFIX: Final = 10

# mark, CRC | length, position, topic, partition, epoch, base, end
_ENTRY: Final = struct.Struct(f">{MARK_BYTES}sIIQ16sIQQQ")
_LEAD: Final = struct.Struct(f">{MARK_BYTES}sI")
_BODY: Final = struct.Struct(">IQ16sIQQQ")
ENTRY_HEADER_BYTES: Final = _ENTRY.size

# Checksum of the envelope in a header of version 2.
_LENGTH: Final = struct.Struct(">H")
_CRC: Final = struct.Struct(">I")

# End of a recycled file: mark, position | CRC
_END: Final = struct.Struct(f">{MARK_BYTES}sQ")
END_BYTES: Final = _END.size + _CRC.size

_SEARCH_BYTES: Final = 1024 * 1024
_ZEROS: Final = bytes(_SEARCH_BYTES)


class WalEntry(NamedTuple):
    """One batch. A tuple, because one is made for every append."""

    partition: PartitionId
    epoch: Epoch
    base: int
    end: int
    batch: Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHeader:
    session: SessionId
    sequence: int
    mark: bytes
    version: int = 1
    salt: bytes = b""
    envelope: KeyEnvelope | None = None
    """The envelope of the data key; None: batches are not encrypted."""


@dataclass(frozen=True, slots=True)
class ScannedEntry:
    position: int
    entry: WalEntry


@dataclass(frozen=True, slots=True)
class CorruptRange:
    """Bytes [position, position + length) without a valid entry; if it is the tail, none follows."""

    position: int
    length: int
    tail: bool


def encode_file_header(header: FileHeader) -> bytes:
    """The first `FILE_HEADER_BYTES` of a file."""
    session = header.session.encode()
    if len(session) > MAX_SESSION_BYTES or len(header.mark) != MARK_BYTES:
        raise ValueError(f"wal file header does not fit; session={header.session} mark_bytes={len(header.mark)}")
    fields = (header.mark, header.sequence, len(session))
    blank = _FILE_PREFIX.pack(FILE_MAGIC, header.version, 0, *fields) + session
    copy = _FILE_PREFIX.pack(FILE_MAGIC, header.version, crc32c(blank), *fields) + session
    if header.envelope is not None:
        copy += _encode_key(header.salt, header.envelope)
    return copy.ljust(_COPY_BYTES, b"\0") * 2


def decode_file_header(data: memoryview) -> FileHeader | None:
    """The header from an intact copy, or None; raises `Misconfigured` for a later version."""
    for start in (0, _COPY_BYTES):
        header = _decode_copy(data[start : start + _COPY_BYTES])
        if header is not None:
            return header
    return None


def _decode_copy(copy: memoryview) -> FileHeader | None:
    if len(copy) < _FILE_PREFIX.size:
        return None
    magic, version, crc, mark, sequence, length = _FILE_PREFIX.unpack_from(copy)
    whole = bytearray(copy[: _FILE_PREFIX.size + length])
    whole[_CRC_IN_FILE_PREFIX : _CRC_IN_FILE_PREFIX + 4] = bytes(4)
    if magic != FILE_MAGIC or crc != crc32c(whole):
        return None
    if version > VERSION:
        # Not treated as damage, because a damaged file may be deleted, and this one is valid for a later release.
        raise Misconfigured(f"wal file is of a later format; version={version} known={VERSION} do=upgrade streamhouse")
    session = SessionId(bytes(whole[_FILE_PREFIX.size :]).decode(errors="replace"))
    header = FileHeader(session=session, sequence=sequence, mark=mark, version=version)
    return header if version == 1 else _with_key(header, copy[_FILE_PREFIX.size + length :])


def _encode_key(salt: bytes, envelope: KeyEnvelope) -> bytes:
    """The part after the session in a header of version 2. It has its own checksum, so that earlier releases reject the
    version instead of treating the header as damaged."""
    encoded = encode_envelope(envelope)
    body = salt + _LENGTH.pack(len(encoded)) + encoded
    return body + _CRC.pack(crc32c(body))


def _with_key(header: FileHeader, data: memoryview) -> FileHeader | None:
    if len(data) < SALT_BYTES + _LENGTH.size:
        return None
    end = SALT_BYTES + _LENGTH.size + int(_LENGTH.unpack_from(data, SALT_BYTES)[0])
    envelope = decode_envelope(data[SALT_BYTES + _LENGTH.size : end])
    if envelope is None or end + _CRC.size > len(data) or _CRC.unpack_from(data, end)[0] != crc32c(data[:end]):
        return None
    return replace(header, salt=bytes(data[:SALT_BYTES]), envelope=envelope)


def encode_entry(
    entry: WalEntry, *, mark: bytes, position: int, cipher: EntryCipher | None = None
) -> tuple[bytes, Buffer]:
    """Encode an entry for a position in a file, as header and batch; without `cipher` the batch is not copied."""
    (topic_id, number), epoch, base, end, batch = entry
    length = len(batch) if cipher is None else len(batch) + TAG_BYTES
    body = _BODY.pack(length, position, topic_id.bytes, number, epoch, base, end)
    if cipher is not None:
        batch = cipher.encrypt(batch, position=position, about=body)
    return _LEAD.pack(mark, crc32c(batch, crc32c(body), gil_release_mode=KEEP_GIL)) + body, batch


def encode_end(*, mark: bytes, position: int) -> bytes:
    """The end of a recycled file: what follows is of its earlier use."""
    end = _END.pack(mark, position)
    return end + _CRC.pack(crc32c(end))


def scan(
    data: memoryview, header: FileHeader | None = None, cipher: EntryCipher | None = None
) -> Iterator[ScannedEntry | CorruptRange]:
    """Scan a file in order of position: valid entries, and damaged ranges between or after them.

    After damage, the next entry is found by searching for the mark; a length is only used if its CRC is right. Zeros up
    to the end are preallocated space, and what follows the end of a recycled file is of its earlier use: neither is
    damage. Batches are views of `data`. `header` saves reading it again. Without `cipher`, encrypted batches stay
    encrypted.
    """
    header = header or decode_file_header(data)
    if header is None:
        if not _is_blank(data, 0):
            yield CorruptRange(0, len(data), tail=True)
        return
    for item in scan_entries(data, start=FILE_HEADER_BYTES, mark=header.mark):
        if not (isinstance(item, CorruptRange) and item.tail and _is_end(data, item.position, header.mark)):
            yield item if cipher is None or isinstance(item, CorruptRange) else _decrypt(data, item, cipher)


def _decrypt(data: memoryview, item: ScannedEntry, cipher: EntryCipher) -> ScannedEntry | CorruptRange:
    """Decrypt the batch of an entry. An entry that was changed together with its checksum doesn't authenticate, and is
    damage."""
    position, entry = item.position, item.entry
    about = bytes(data[position + _LEAD.size : position + ENTRY_HEADER_BYTES])
    try:
        batch = cipher.decrypt(entry.batch, position=position, about=about)
    except CorruptObject:
        return CorruptRange(position, ENTRY_HEADER_BYTES + len(entry.batch), tail=False)
    return ScannedEntry(position, entry._replace(batch=batch))


def scan_entries(data: memoryview, *, start: int, mark: bytes) -> Iterator[ScannedEntry | CorruptRange]:
    """Scan from `start` on; zeros up to the end are damage here, like all other bytes that are not a valid entry."""
    position = start
    while position < len(data):
        entry = _entry_at(data, position, mark)
        if entry is not None:
            yield ScannedEntry(position, entry)
            position += ENTRY_HEADER_BYTES + len(entry.batch)
            continue
        resumed = _next_entry(data, position + 1, mark)
        if resumed is None:
            yield CorruptRange(position, len(data) - position, tail=True)
            return
        yield CorruptRange(position, resumed - position, tail=False)
        position = resumed


def _entry_at(data: memoryview, position: int, mark: bytes) -> WalEntry | None:
    """The entry at this position; None if it is not valid."""
    start = position + ENTRY_HEADER_BYTES
    if start > len(data):
        return None
    entry_mark, crc, length, written_at, topic, number, epoch, base, end = _ENTRY.unpack_from(data, position)
    if entry_mark != mark or written_at != position or start + length > len(data):
        return None
    if crc32c(data[position + _LEAD.size : start + length]) != crc:
        return None
    partition = PartitionId(TopicId(uuid.UUID(bytes=topic)), number)
    return WalEntry(partition, Epoch(epoch), base, end, data[start : start + length])


def _next_entry(data: memoryview, start: int, mark: bytes) -> int | None:
    """Position of the first valid entry at or after `start`."""
    for window in range(start, len(data), _SEARCH_BYTES):
        # Windows overlap by the mark's length, so that a mark across their border is found.
        piece = bytes(data[window : window + _SEARCH_BYTES + MARK_BYTES - 1])
        at = piece.find(mark)
        while at >= 0:
            if _entry_at(data, window + at, mark) is not None:
                return window + at
            at = piece.find(mark, at + 1)
    return None


def _is_end(data: memoryview, position: int, mark: bytes) -> bool:
    """Whether the file ends here, given that no entry follows."""
    end = data[position : position + END_BYTES]
    return bytes(end) == encode_end(mark=mark, position=position) or _is_blank(data, position)


def _is_blank(data: memoryview, start: int) -> bool:
    pieces = (bytes(data[at : at + _SEARCH_BYTES]) for at in range(start, len(data), _SEARCH_BYTES))
    return all(piece == _ZEROS[: len(piece)] for piece in pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    """One partition's part of a file: number of entries, lowest base, highest end and highest epoch."""

    entries: int
    batch_bytes: int
    base: int
    end: int
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """The summary of a file; `header` is None if neither copy is readable."""

    header: FileHeader | None
    size_bytes: int
    entries: int
    damage: tuple[CorruptRange, ...]
    partitions: Mapping[PartitionId, PartitionSummary]


def summarize(data: Buffer) -> FileSummary:
    """The summary that `streamhouse wal inspect` shows."""
    view = memoryview(data)
    header = decode_file_header(view)
    damage: list[CorruptRange] = []
    partitions: dict[PartitionId, PartitionSummary] = {}
    for item in scan(view, header):
        if isinstance(item, CorruptRange):
            damage.append(item)
        else:
            partitions[item.entry.partition] = _add(partitions.get(item.entry.partition), item.entry)
    return FileSummary(
        header=header,
        size_bytes=len(view),
        entries=sum(summary.entries for summary in partitions.values()),
        damage=tuple(damage),
        partitions=partitions,
    )


def _add(summary: PartitionSummary | None, entry: WalEntry) -> PartitionSummary:
    return PartitionSummary(
        entries=(summary.entries if summary else 0) + 1,
        batch_bytes=(summary.batch_bytes if summary else 0) + len(entry.batch),
        base=min(summary.base, entry.base) if summary else entry.base,
        end=max(summary.end, entry.end) if summary else entry.end,
        epoch=max(summary.epoch, entry.epoch) if summary else entry.epoch,
    )
