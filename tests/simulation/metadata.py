"""SimMetadata: one database that outlives agents, and the door through which one agent reaches it in any weather.

Owns        what a fault of the metadata store looks like from outside; the database between two lives of an agent
Leaves      the transactions to the product's SQLite store, when faults happen to `weather`

The database is SQLite in memory. Each life of an agent gets a store of its own on the same connection, as each process
would open the same file. A transaction runs inline, so a killed agent has done all of it or nothing.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Final, NamedTuple, TypeVar, cast

from streamhouse.clock import Clock
from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.model.cluster import Change, ChangeKind
from streamhouse.model.names import PartitionId, TopicId
from streamhouse.model.transaction import ProducerIdentity
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.engine import Listeners
from streamhouse.stores.metadata.sqlite.database import SqliteSettings
from streamhouse.stores.metadata.sqlite.store import SqliteMetadataStore

from .loop import SimLoop
from .weather import Weather

T = TypeVar("T")

CALL_S = 0.0005
LATE_S = 0.5
LOCKED_MOST_S = 1.0
LOCK_WAIT_S = 1.0
LATE_NEWS = 0.2
"""Share of the news that come later than others."""

ALONE: Final = SqliteSettings(group_calls=1)
"""As with PostgreSQL, each write has a transaction of its own; of several agents none waits in another's group."""

OUTLIVE: Final = frozenset(
    {
        *("commit_groups", "renew_session", "commit_segments", "advance_log_start", "mark_cleaned"),
        *("expire_offsets", "forget_commits"),
    }
)
"""Calls that may happen seconds after they were given up, even after the death of whoever made them, as in a remote
database, with others in between: their fences are checked in the same transaction."""
READS: Final = frozenset(
    {
        *(
            "membership",
            "departures",
            "partitions",
            "now_ms",
            "due_transactions",
            "identity",
            "groups_to_review",
            "runs_of",
            "runs",
        ),
        *(
            "committed_offsets",
            "topics",
            "objects_pending_deletion",
            "known_among",
            "known_objects",
            "sizes",
            "cleaned",
        ),
        *("broker_settings", "aborted", "load_groups", "newest_objects", "last_runs", "runs_before", "run_at_time"),
        *(
            "find_transaction",
            "transaction_of",
            "transactions",
            "held_by",
            "cluster_id",
            "schema_version",
            "last_commit",
        ),
        *("pending_offsets", "find_commit", "sessions_among", "latest_run", "epoch_end", "stored_objects"),
        *("ranges_of_object", "abandoned_ranges", "abandoned_sessions"),
    }
)
"""Calls that change nothing: late or not is the same. All others that are late have taken their locks before they were
given up, and whoever wants to change something waits for them."""


class TransactionRow(NamedTuple):
    producer: ProducerIdentity
    state: str
    number: int


class RowLocks:
    """Locks of transactions whose last step is late. They are coarser than a database's, so that calls wait which would
    not there."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._free_at = 0.0

    async def hold(self, seconds: float) -> None:
        self._free_at = max(self._free_at, self._loop.time()) + seconds
        await asyncio.sleep(self._free_at - self._loop.time())

    async def wait(self) -> None:
        """Until nobody holds locks; raises `Unavailable` when that takes too long."""
        until = self._loop.time() + LOCK_WAIT_S
        while (now := self._loop.time()) <= self._free_at:
            if now >= until:
                raise Unavailable("the metadata store waited for a lock for too long")
            await asyncio.sleep(min(self._free_at, until) - now + CALL_S)


class SimDatabase:
    """The durable rows, and a look at them from above."""

    def __init__(self, clock: Clock, loop: SimLoop) -> None:
        self.locks = RowLocks(loop)
        self._clock = clock
        self._listeners = Listeners()  # of all agents: what one commits is heard by all
        self._first = SqliteMetadataStore(":memory:", clock=clock, settings=ALONE, listeners=self._listeners)

    async def open(self) -> None:
        await self._first.open()
        self.connection.set_progress_handler(None, 0)  # it watches the deadline of one store; we have many
        self.connection.execute("CREATE TEMP TABLE dropped_groups (group_id TEXT)")
        self.connection.execute(
            "CREATE TEMP TRIGGER group_dropped AFTER DELETE ON main.consumer_groups"
            " BEGIN INSERT INTO dropped_groups VALUES (OLD.group_id); END"
        )

    @property
    def connection(self) -> sqlite3.Connection:
        connection = self._first._database._connection
        assert connection is not None
        return connection

    def store(self) -> SqliteMetadataStore:
        """The store of a new process."""
        store = SqliteMetadataStore(":memory:", clock=self._clock, settings=ALONE, listeners=self._listeners)
        store._database._connection = self.connection
        return store

    def topic_id(self, name: str) -> str | None:
        row = self.connection.execute("SELECT topic_id FROM topics WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def bounds(self, partition: PartitionId) -> tuple[int, int] | None:
        """Log start and flushed end; None when the partition is gone."""
        row = self.connection.execute(
            "SELECT log_start, flushed_end FROM partitions WHERE topic_id = ? AND partition = ?",
            (str(partition.topic_id), partition.partition),
        ).fetchone()
        return None if row is None else (int(row[0]), int(row[1]))

    def misfits(self) -> list[str]:
        """Runs that overlap their neighbours, have an older epoch or an earlier latest time than those before them, or
        come to other bytes than their partition says."""
        results: list[str] = []
        sizes: dict[tuple[str, int], int] = {}
        before: tuple[Any, ...] | None = None
        for row in self.connection.execute(
            "SELECT topic_id, partition, base_offset, end_offset, epoch, latest_so_far_ms, max_timestamp_ms, length"
            " FROM runs ORDER BY topic_id, partition, base_offset"
        ):
            name = (row[0], row[1])
            sizes[name] = sizes.get(name, 0) + row[7]
            if row[5] < row[6]:
                results.append(f"a run is later than the latest so far; {tuple(row)}")
            if (
                before is not None
                and before[:2] == name
                and (before[3] > row[2] or before[4] > row[4] or before[5] > row[5])
            ):
                results.append(f"runs don't fit together; {before} {tuple(row)}")
            before = tuple(row)
        for topic_id, partition, size in self.connection.execute(
            "SELECT topic_id, partition, size_bytes FROM partitions"
        ):
            if sizes.get((topic_id, partition), 0) != size:
                results.append(f"a partition has another size; {topic_id}-{partition} {size} {sizes}")
        return results

    def committed(self, group_id: str, partition: PartitionId) -> tuple[int, str] | None:
        """The offset that a group has committed, and the text with it."""
        row = self.connection.execute(
            "SELECT committed_offset, metadata FROM committed_offsets"
            " WHERE group_id = ? AND topic_id = ? AND partition = ?",
            (group_id, str(partition.topic_id), partition.partition),
        ).fetchone()
        return None if row is None else (int(row[0]), str(row[1]))

    def transaction(self, transactional_id: str) -> TransactionRow | None:
        row = self.connection.execute(
            "SELECT producer_id, producer_epoch, state, number FROM transactions WHERE transactional_id = ?",
            (transactional_id,),
        ).fetchone()
        if row is None:
            return None
        return TransactionRow(ProducerIdentity(int(row[0]), int(row[1])), str(row[2]), int(row[3]))

    def unended_transactions(self) -> list[str]:
        rows = self.connection.execute(
            "SELECT transactional_id FROM transactions WHERE due_at_ms IS NOT NULL ORDER BY transactional_id"
        )
        return [row[0] for row in rows]

    def topic_name(self, topic_id: TopicId) -> str | None:
        row = self.connection.execute("SELECT name FROM topics WHERE topic_id = ?", (str(topic_id),)).fetchone()
        return None if row is None else str(row[0])

    def drops(self, group_id: str) -> int:
        """How often a group was dropped."""
        row = self.connection.execute("SELECT count(*) FROM dropped_groups WHERE group_id = ?", (group_id,)).fetchone()
        return int(row[0])

    def is_published(self, key: str) -> bool:
        return self.connection.execute("SELECT 1 FROM segment_objects WHERE key = ?", (key,)).fetchone() is not None

    def keys(self, table: str) -> list[str]:
        return [row[0] for row in self.connection.execute(f"SELECT key FROM {table} ORDER BY key")]

    def session_state(self, session_id: str) -> str | None:
        row = self.connection.execute("SELECT state FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
        return None if row is None else str(row[0])

    def lease(self, partition: PartitionId) -> tuple[str | None, int] | None:
        """Who holds a partition, and under which epoch; None when the partition is gone."""
        row = self.connection.execute(
            "SELECT holder, epoch FROM partitions WHERE topic_id = ? AND partition = ?",
            (str(partition.topic_id), partition.partition),
        ).fetchone()
        return None if row is None else (row[0], int(row[1]))

    def reserved_until(self, partition: PartitionId) -> int:
        """Up to where a leader with a disk may give offsets away."""
        row = self.connection.execute(
            "SELECT reserved_until FROM partitions WHERE topic_id = ? AND partition = ?",
            (str(partition.topic_id), partition.partition),
        ).fetchone()
        return 0 if row is None else int(row[0])

    def prolong_sessions(self, by_ms: int) -> None:
        """After its clock was set: sessions last as long as before. Otherwise all of them would be over at once, while
        their agents, who know nothing of it, go by the monotonic clock."""
        self.connection.execute(
            "UPDATE sessions SET expires_at_ms = expires_at_ms + ? WHERE state <> 'ended'", (by_ms,)
        )

    def unended_sessions(self) -> list[str]:
        rows = self.connection.execute("SELECT session_id FROM sessions WHERE state <> 'ended' ORDER BY session_id")
        return [row[0] for row in rows]

    def holders(self) -> set[str]:
        """The sessions that hold a partition."""
        return {row[0] for row in self.connection.execute("SELECT holder FROM partitions WHERE holder IS NOT NULL")}

    def close(self) -> None:
        self.connection.close()


class MetadataDoor:
    """A `MetadataStore`, as one agent sees it: every call of the inner store, in any weather."""

    def __init__(
        self,
        loop: SimLoop,
        inner: SqliteMetadataStore,
        weather: Weather,
        locks: RowLocks,
        *,
        detached: bool = False,
        happened: Callable[[str], None] | None = None,
    ) -> None:
        """`detached`: calls arrive whatever becomes of the process that made them meanwhile. `happened` is told of each
        call that did what it should, before its answer is on its way."""
        self._loop = loop
        self._inner = inner
        self._weather = weather
        self._locks = locks
        self._detached = detached
        self._happened = happened
        self._failures = 0
        self._ears: list[tuple[Callable[[Change], None], Context]] = []

    @property
    def failures_in_a_row(self) -> int:
        return self._failures + self._inner.failures_in_a_row

    @property
    def is_listening(self) -> bool:
        return self._inner.is_listening and not self._weather.metadata.knows_deaf

    def subscribe(self, received: Callable[[Change], None]) -> Callable[[], None]:
        ear = (received, copy_context())
        self._ears.append(ear)

        def told(change: Change) -> None:
            if self._weather.chance.random() < self._weather.metadata.deaf:
                self._loop.note(f"not heard: {change.kind}")
            elif self._detached and self._weather.chance.random() < LATE_NEWS:
                self._loop.call_later(self._weather.chance.expovariate(1 / LATE_S), received, change)
            else:
                received(change)

        unsubscribe = self._inner.subscribe(told)

        def leave() -> None:
            self._ears.remove(ear)
            unsubscribe()

        return leave

    def hear_again(self) -> None:
        """The listening connection is made anew: anything may have been missed."""
        for received, context in self._ears:
            self._loop.call_soon(received, Change(ChangeKind.EVERYTHING), context=context.copy())

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._inner, name)
        return lambda *args, **named: self._call(name, lambda: method(*args, **named))

    async def _call(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        weather = self._weather.metadata
        await asyncio.sleep(self._weather.delay(weather, CALL_S))
        outcome = self._weather.outcome(weather)
        if outcome == "refused":
            raise self._failed(name, outcome)
        if outcome == "late" and name not in READS:
            self._loop.create_task(self._later(name, call), name=f"late {name}", context=Context())
            await asyncio.sleep(self._weather.delay(weather, CALL_S * 100))
            raise self._failed(name, outcome)
        result = await (self._carry(name, call) if self._detached else self._perform(name, call))
        if self._happened is not None:
            self._happened(name)
        if outcome in ("lost", "late"):
            await asyncio.sleep(self._weather.delay(weather, CALL_S * 100))
            raise self._failed(name, outcome)
        self._failures = 0
        return result

    async def _perform(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        if name not in READS:
            await self._locks.wait()
        return await call()

    async def _carry(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """In a task of the world outside: it happens though the caller is stopped, cancelled or dead."""
        answer: asyncio.Future[tuple[T | None, Exception | None]] = self._loop.create_future()

        async def act() -> None:
            await asyncio.sleep(self._weather.delay(self._weather.metadata, CALL_S))
            response: tuple[T | None, Exception | None]
            try:
                response = (await self._perform(name, call), None)
            except Exception as error:  # noqa: BLE001 - it travels to whoever asked
                response = (None, error)
            if not answer.done():
                answer.set_result(response)

        self._loop.create_task(act(), name="detached call", context=Context())
        result, error = await answer
        if error is not None:
            raise error
        return cast(T, result)

    async def _later(self, name: str, call: Callable[[], Awaitable[T]]) -> None:
        late_s = self._weather.delay(self._weather.metadata, LATE_S)
        await (asyncio.sleep(late_s) if name in OUTLIVE else self._locks.hold(min(late_s, LOCKED_MOST_S)))
        self._loop.note(f"metadata {name} happens late")
        with suppress(StreamhouseError):
            await call()

    def _failed(self, name: str, outcome: str) -> Unavailable:
        self._failures += 1
        self._loop.note(f"metadata {name} {outcome}")
        return Unavailable(f"metadata store did not answer; call={name} fate={outcome}")

    async def aclose(self) -> None:
        return


def as_store(door: MetadataDoor) -> MetadataStore:
    return cast(MetadataStore, door)
