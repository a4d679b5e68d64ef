"""Producer ids: numbers that nobody ever had, for producers that ask.

Data path   wire, or a lane to another agent -> **producer ids** -> metadata store, once in a thousand
Owns        the block that is being handed out
Leaves      what an id means to `producers`
"""

import asyncio
from typing import Final

from streamhouse.broker.producers import KEYS_FROM
from streamhouse.errors import Internal
from streamhouse.stores.metadata.base import MetadataStore

PRODUCER_ID_BLOCK: Final = 1000


class ProducerIds:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._block = range(0)
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ProducerIds left={len(self._block)}>"

    async def take(self) -> int:
        async with self._lock:
            if not self._block:
                first = await self._metadata.allocate_producer_ids(PRODUCER_ID_BLOCK)
                if first + PRODUCER_ID_BLOCK > KEYS_FROM:
                    raise Internal(f"producer ids are used up; first={first} limit={KEYS_FROM}")
                self._block = range(first, first + PRODUCER_ID_BLOCK)
            taken, self._block = self._block[0], self._block[1:]
            return taken
