"""Consumer: records of given partitions, from given offsets on.

One fetch per leader is in flight while the previous records are read. When an agent is gone, or no longer leads, the
consumer looks the leader up until there is one.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from aiokafka.protocol.fetch import FetchRequest

from streamhouse.client.addresses import Bootstrap, resolve_bootstrap
from streamhouse.client.credentials import NO_CREDENTIALS, Credentials
from streamhouse.client.fetch_response import Chunk, FetchedPartitions, read_fetch_response
from streamhouse.client.kafka_admin import Admin
from streamhouse.client.types import Record
from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import Retriable

FETCH_BYTES: Final = 16 * 1024 * 1024
PARTITION_FETCH_BYTES: Final = 4 * 1024 * 1024
WAIT_MS: Final = 500
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0

_READ_COMMITTED: Final = 1


class Consumer:
    """Starts at `starts`: partition to offset. Reads committed records only."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        topic: str,
        *,
        starts: Mapping[int, int],
        timeout_s: float = 30.0,
        credentials: Credentials = NO_CREDENTIALS,
        clock: Clock | None = None,
    ) -> None:
        self._given_bootstrap = bootstrap
        self._credentials = credentials
        self._topic = topic
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._positions = dict(starts)
        self._fetch_from = dict(starts)
        self._admin: Admin | None = None
        self._leaders: dict[int, int] = {}
        self._is_stale = False
        self._pause_s = FIRST_PAUSE_S
        self._in_flight: dict[int, asyncio.Task[FetchedPartitions]] = {}
        self._chunks: deque[Chunk] = deque()
        self._buffered_bytes = 0

    def __repr__(self) -> str:
        return (
            f"<Consumer {self._topic} {'open' if self._admin else 'closed'} buffered={self._buffered_bytes // 1024}KiB>"
        )

    async def __aenter__(self) -> Self:
        admin = Admin(
            await resolve_bootstrap(self._given_bootstrap),
            timeout_s=self._timeout_s,
            clock=self._clock,
            credentials=self._credentials,
            client_id="streamhouse-consumer",
        )
        await admin.__aenter__()
        try:
            self._admin = admin
            await self._refresh_leaders()
        except BaseException:
            self._admin = None
            await admin.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        in_flight, self._in_flight = self._in_flight, {}
        for fetch in in_flight.values():
            fetch.cancel()
        await asyncio.gather(*in_flight.values(), return_exceptions=True)
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.__aexit__(kind, error, trace)

    async def poll(self, *, max_records: int, timeout_s: float) -> list[Record]:
        """Return buffered records, or wait for some until the timeout; in order within each partition."""
        if not self._chunks:
            await self._wait(timeout_s)
        taken: list[Record] = []
        while self._chunks and len(taken) < max_records:
            chunk = self._chunks[0]
            taken += chunk.take(max_records - len(taken))
            self._positions[chunk.partition] = chunk.position
            if chunk.is_done:
                self._chunks.popleft()
                self._buffered_bytes -= chunk.size_bytes
        self._send_fetches()  # while the caller works
        return taken

    async def positions(self) -> dict[int, int]:
        """Per partition the offset of the next record that `poll` returns."""
        return dict(self._positions)

    async def _wait(self, timeout_s: float) -> None:
        """Wait for the response to a fetch, at most `timeout_s`."""
        deadline = self._clock.monotonic() + timeout_s
        while not self._chunks:
            if self._is_stale:
                await self._refresh_leaders()
            self._send_fetches()
            left_s = deadline - self._clock.monotonic()
            if left_s <= 0:
                return
            if not self._in_flight:  # no partition has a leader at the moment
                self._is_stale = True
                await self._clock.sleep(min(left_s, self._pause_s))
                continue
            done, _ = await asyncio.wait(self._in_flight.values(), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            self._receive(done)

    def _receive(self, done: "set[asyncio.Task[FetchedPartitions]]") -> None:
        self._in_flight = {leader: fetch for leader, fetch in self._in_flight.items() if fetch not in done}
        for fetch in done:
            fetched = fetch.result()
            self._is_stale = self._is_stale or fetched.error is not None
            for chunk in fetched.chunks:
                if chunk.fetch_offset != self._fetch_from[chunk.partition]:
                    continue  # another leader responded first: these records are buffered already
                self._chunks.append(chunk)
                self._buffered_bytes += chunk.size_bytes
                self._fetch_from[chunk.partition] = chunk.next_offset

    def _send_fetches(self) -> None:
        """Fetch from every leader without a fetch in flight, unless the buffer is full."""
        if self._buffered_bytes >= FETCH_BYTES or self._admin is None:
            return
        requests: dict[int, dict[int, int]] = {}
        for partition, offset in self._fetch_from.items():
            leader = self._leaders.get(partition, -1)
            if leader >= 0 and leader not in self._in_flight:
                requests.setdefault(leader, {})[partition] = offset
        for leader, offsets in requests.items():
            fetch = self._fetched(self._admin, leader, offsets)
            self._in_flight[leader] = asyncio.get_running_loop().create_task(
                fetch, name=f"fetch-{self._topic}-{leader}"
            )

    async def _fetched(self, admin: Admin, leader: int, offsets: dict[int, int]) -> FetchedPartitions:
        partitions = [(partition, offset, PARTITION_FETCH_BYTES) for partition, offset in offsets.items()]
        request = FetchRequest(WAIT_MS, 1, FETCH_BYTES, _READ_COMMITTED, [(self._topic, partitions)])
        try:
            fetched = read_fetch_response(
                await admin.send(request, subject=self._topic, node=leader), self._topic, offsets
            )
        except Retriable as error:
            fetched = FetchedPartitions(chunks=[], error=error)
        if fetched.error is None:
            self._pause_s = FIRST_PAUSE_S
        elif not fetched.chunks:
            await self._clock.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        return fetched

    async def _refresh_leaders(self) -> None:
        """Look the leaders up; keep those known if no agent responds. Raises `UnknownTopic` for a deleted topic."""
        assert self._admin is not None
        try:
            topic = await self._admin.topic(self._topic)
        except Retriable:
            if not self._leaders:
                raise
            return
        self._leaders = {partition.partition: partition.leader for partition in topic.partitions}
        self._is_stale = False
