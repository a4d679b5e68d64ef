"""Window: what all partitions received in a short while, on its way to become one object.

Data path   append -> **window** (encoded as it comes) -> upload
Owns        the object's bytes and their place in it; the future that its appends share
Leaves      when it is sent to `objects`, sending to `object_upload`

Small batches are copied once, here, a piece at a time, so that the cost is spread over the appends and the store is
handed few large pieces instead of thousands of small ones; large batches are never copied.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from streamhouse.broker.wal.commits import GroupCommit
from streamhouse.format.batch import Buffer
from streamhouse.format.wal import ENTRY_HEADER_BYTES, WalEntry, encode_entry
from streamhouse.format.wal_object import COPY_BYTES, ObjectHeader, encode_header
from streamhouse.model.names import SessionId

COPIED_BELOW_BYTES: Final = 64 * 1024
PIECE_BYTES: Final = 256 * 1024
"""Small ones are joined when they are so much together. Not a growing buffer: that would copy them again and again."""
FRAME_BYTES: Final = 2 * COPY_BYTES


class Window:
    """Appends that become durable, and are acknowledged, together."""

    __slots__ = (
        "_mark",
        "_pieces",
        "_session",
        "_small",
        "_small_bytes",
        "batch_bytes",
        "commit",
        "entries",
        "is_over",
        "sequence",
        "size_bytes",
    )

    def __init__(
        self,
        session: SessionId,
        sequence: int,
        *,
        mark: bytes,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._session = session
        self._mark = mark
        self.sequence = sequence
        self.commit = GroupCommit(loop=loop)
        self.entries = 0
        self.batch_bytes = 0
        self.size_bytes = FRAME_BYTES
        """Of the whole object."""
        self.is_over = False
        """Whether its time is over: it goes as soon as a PUT may begin."""
        self._pieces: list[Buffer] = []
        self._small: list[Buffer] = []
        """Headers and small batches that are not part of a piece yet."""
        self._small_bytes = 0

    def __repr__(self) -> str:
        state = "durable" if self.commit.done() else "over" if self.is_over else "open"
        return f"<Window {self.sequence} {state} entries={self.entries} bytes={self.size_bytes}>"

    @property
    def append_bytes(self) -> int:
        """Bytes of the entries alone: what the appends brought."""
        return self.size_bytes - FRAME_BYTES

    def add(self, entries: Iterable[WalEntry]) -> None:
        position = self.size_bytes - COPY_BYTES
        for entry in entries:
            header, batch = encode_entry(entry, mark=self._mark, position=position)
            self._small.append(header)
            length = len(batch)
            if length < COPIED_BELOW_BYTES:
                self._small.append(batch)
                self._small_bytes += length
                if self._small_bytes >= PIECE_BYTES:
                    self._join()
            else:
                self._join()
                self._pieces.append(batch)
            position += ENTRY_HEADER_BYTES + length
            self.batch_bytes += length
            self.entries += 1
        self.size_bytes = position + COPY_BYTES

    def _join(self) -> None:
        self._pieces.append(b"".join(self._small))
        self._small.clear()
        self._small_bytes = 0

    def body(self, *, durable_below: int) -> Sequence[Buffer]:
        """The whole object; nothing may be added any more. It says that all below `durable_below` are durable."""
        header = encode_header(
            ObjectHeader(
                session=self._session,
                sequence=self.sequence,
                mark=self._mark,
                entries=self.entries,
                size_bytes=self.size_bytes,
                durable_below=durable_below,
            )
        )
        self._join()
        return (header, *self._pieces, header)

    def let_go(self) -> None:
        """The bytes are durable: no second copy of them is kept while earlier windows are still on their way."""
        self._pieces.clear()
