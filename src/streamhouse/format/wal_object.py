"""WAL object and seal: one window of a session's log as an object. Described in `docs/formats/wal-objects.md`.

Data path   wal window -> **encode** -> object store ; after a death: object store -> **read_object** -> log
Owns        the layout of both, both directions; distinguishing data, seals and other objects
Leaves      entries to `format.wal_file`, keys to `format.object_keys`, the effect of a seal to `broker.wal`

Invariants  an object is valid under its own key only: it contains session and sequence, covered by a CRC
            an object with data is longer than `SEAL_BYTES`, a seal never, so that a listing distinguishes them
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from streamhouse.errors import Misconfigured
from streamhouse.format.wal_file import MARK_BYTES, CorruptRange, ScannedEntry, WalEntry, scan_entries
from streamhouse.model.names import SessionId

VERSION: Final = 1
DATA_MAGIC: Final = b"SHOUSWOB"
SEAL_MAGIC: Final = b"SHOUSEAL"

COPY_BYTES: Final = 128
"""One copy of the header is before the entries and one after them."""
SEAL_BYTES: Final = 256

# magic, version, CRC | mark, sequence, entries, size of the object, length of the session id
_HEADER: Final = struct.Struct(f">8sHI{MARK_BYTES}sQIQB")
# magic, version, CRC | sequence, time, length of the session id, length of the sealer's name
_SEAL: Final = struct.Struct(">8sHIQQBB")
_CRC_AT: Final = 10
# The last bytes of a copy hold `durable_below` + 1; earlier releases filled them with zeros.
_DURABLE: Final = struct.Struct(">Q")
_DURABLE_AT: Final = COPY_BYTES - _DURABLE.size
MAX_SESSION_BYTES: Final = _DURABLE_AT - _HEADER.size


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectHeader:
    session: SessionId
    sequence: int
    mark: bytes
    entries: int
    size_bytes: int
    """The size of the whole object."""
    durable_below: int | None = None
    """All objects of the session with a lower number than this were durable when this one was sent; None in objects of
    releases that did not write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """The end of a session's log: a session that finds it at its next number must end."""

    session: SessionId
    sequence: int
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WalObject:
    """The entries of an object that belong to a session and sequence, and its damaged ranges by position."""

    items: Sequence[ScannedEntry | CorruptRange]
    durable_below: int | None = None
    """As in the header; None also if no header can be read."""

    @property
    def entries(self) -> Sequence[WalEntry]:
        return [item.entry for item in self.items if isinstance(item, ScannedEntry)]

    @property
    def damage(self) -> Sequence[CorruptRange]:
        return [item for item in self.items if isinstance(item, CorruptRange)]


def encode_header(header: ObjectHeader) -> bytes:
    """One copy of the header: `COPY_BYTES`."""
    session = header.session.encode()
    if len(session) > MAX_SESSION_BYTES or len(header.mark) != MARK_BYTES:
        raise ValueError(f"wal object header does not fit; session={header.session} mark_bytes={len(header.mark)}")
    fields = (header.mark, header.sequence, header.entries, header.size_bytes, len(session))
    blank = (_HEADER.pack(DATA_MAGIC, VERSION, 0, *fields) + session).ljust(_DURABLE_AT, b"\0")
    return _with_crc(blank + _DURABLE.pack(0 if header.durable_below is None else header.durable_below + 1))


def decode_header(copy: memoryview) -> ObjectHeader | None:
    """Decode a copy of the header; None if it is damaged; raises `Misconfigured` for a later version."""
    if len(copy) != COPY_BYTES or not _is_whole(copy, DATA_MAGIC):
        return None
    _, _, _, mark, sequence, entries, size_bytes, length = _HEADER.unpack_from(copy)
    session = SessionId(bytes(copy[_HEADER.size : _HEADER.size + length]).decode(errors="replace"))
    (durable,) = _DURABLE.unpack_from(copy, _DURABLE_AT)
    return ObjectHeader(
        session=session,
        sequence=sequence,
        mark=mark,
        entries=entries,
        size_bytes=size_bytes,
        durable_below=durable - 1 if durable else None,
    )


def read_object(data: memoryview, *, session: SessionId, sequence: int) -> WalObject:
    """Read the object of this session and sequence. An object of another session or sequence is damage as a whole."""
    header = find_header(data[:COPY_BYTES], data[-COPY_BYTES:], session=session, sequence=sequence)
    if header is None:
        return WalObject(items=(CorruptRange(0, len(data), tail=True),))
    items = list(scan_entries(data[: header.size_bytes - COPY_BYTES], start=COPY_BYTES, mark=header.mark))
    is_whole = all(isinstance(item, ScannedEntry) for item in items)
    if is_whole and len(items) != header.entries:  # cut between two entries
        items.append(CorruptRange(len(data), header.size_bytes - len(data), tail=True))
    return WalObject(items=items, durable_below=header.durable_below)


def find_header(first: memoryview, last: memoryview, *, session: SessionId, sequence: int) -> ObjectHeader | None:
    """The header from an intact copy; None if there is none, or if it belongs to another object."""
    header = decode_header(first) or decode_header(last)
    return header if header is not None and (header.session, header.sequence) == (session, sequence) else None


def encode_seal(seal: Seal) -> bytes:
    """A whole seal: `SEAL_BYTES`."""
    session, by = seal.session.encode(), seal.by.encode()[: SEAL_BYTES - _SEAL.size - COPY_BYTES]
    if len(session) > MAX_SESSION_BYTES:
        raise ValueError(f"seal does not fit; session={seal.session}")
    fields = (seal.sequence, seal.at_ms, len(session), len(by))
    return _with_crc((_SEAL.pack(SEAL_MAGIC, VERSION, 0, *fields) + session + by).ljust(SEAL_BYTES, b"\0"))


def decode_seal(data: memoryview, *, session: SessionId, sequence: int) -> Seal | None:
    """Decode the seal of this session and number; None for other bytes."""
    if len(data) != SEAL_BYTES or not _is_whole(data, SEAL_MAGIC):
        return None
    _, _, _, sealed_sequence, at_ms, length, by_length = _SEAL.unpack_from(data)
    start = _SEAL.size
    sealed = bytes(data[start : start + length]).decode(errors="replace")
    if (sealed, sealed_sequence) != (session, sequence):
        return None
    by = bytes(data[start + length : start + length + by_length]).decode(errors="replace")
    return Seal(session=session, sequence=sequence, by=by, at_ms=at_ms)


def _with_crc(blank: bytes) -> bytes:
    return blank[:_CRC_AT] + crc32c(blank).to_bytes(4, "big") + blank[_CRC_AT + 4 :]


def _is_whole(data: memoryview, magic: bytes) -> bool:
    if data[: len(magic)] != magic:
        return False
    blank = bytearray(data)
    blank[_CRC_AT : _CRC_AT + 4] = bytes(4)
    if crc32c(blank) != int.from_bytes(data[_CRC_AT : _CRC_AT + 4], "big"):
        return False
    version = int.from_bytes(data[len(magic) : len(magic) + 2], "big")
    if version > VERSION:
        # Not treated as damage, because a damaged object may be deleted, and this one is valid for a later release.
        raise Misconfigured(
            f"wal object is of a later format; version={version} known={VERSION} do=upgrade streamhouse"
        )
    return True
