"""SchemaCache: schemas by id, read and parsed once.

Data path   readers by schema id, and batches that are validated -> **schema cache** -> metadata store
Owns        limits of entries and bytes, freshness; parsing and comparing large schemas in a thread
Leaves      changes that other agents announce to `registry`, the schema languages to `schemas`

Entries that are no longer fresh stay: they are served while the metadata store is unavailable, because the meaning of
an id changes only by deletion."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.schemas.references import ResolvedReferences, resolve
from streamhouse.broker.schemas.subject_config import incompatibilities
from streamhouse.clock import Clock
from streamhouse.errors import InvalidSchema, Unavailable, UnknownSchema
from streamhouse.model.schema import Level, Reference, StoredSchema, Subject
from streamhouse.schemas import parse_schema
from streamhouse.schemas.base import Incompatibility, ParsedSchema, References

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ReadStarted(NamedTuple):
    """When a read of the store started, by the clock and by the changes announced until then."""

    at: float
    changes: int


class _Entry(NamedTuple, Generic[V]):
    value: V
    started: ReadStarted
    weight: int


class TtlCache(Generic[K, V]):
    """An LRU cache limited by entries and bytes, with a TTL."""

    def __init__(
        self, clock: Clock, *, entries: int, ttl_s: float, max_bytes: int, weigh: Callable[[V], int] = lambda _: 0
    ) -> None:
        self._clock = clock
        self._limit = entries
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._weigh = weigh
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._changes = 0
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def __repr__(self) -> str:
        return f"<TtlCache entries={len(self._entries)} bytes={self.size_bytes} hits={self.hits} misses={self.misses}>"

    def __len__(self) -> int:
        return len(self._entries)

    def fresh(self, key: K) -> V | None:
        """The value if it is fresh; counts hits and misses."""
        entry = self._entries.get(key)
        if entry is None or not self._is_fresh(entry.started):
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return entry.value

    def _is_fresh(self, started: ReadStarted) -> bool:
        return started.changes == self._changes and self._clock.monotonic() - started.at < self._ttl_s

    def old(self, key: K) -> V | None:
        """The value, whatever its age."""
        entry = self._entries.get(key)
        return entry.value if entry is not None else None

    def start_read(self) -> ReadStarted:
        """Call before a value is read and pass the result to `put`: a change announced meanwhile makes the value
        stale."""
        return ReadStarted(self._clock.monotonic(), self._changes)

    def put(self, key: K, value: V, started: ReadStarted) -> None:
        self.drop(key)
        weight = self._weigh(value)
        self._entries[key] = _Entry(value, started, weight)
        self.size_bytes += weight
        while len(self._entries) > self._limit or (self.size_bytes > self._max_bytes and len(self._entries) > 1):
            self.drop(next(iter(self._entries)))
            self.evictions += 1

    def drop(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= entry.weight

    def expire_all(self) -> None:
        """Mark all entries as not fresh, after a possible deletion."""
        self._changes += 1


T = TypeVar("T")


@dataclass(slots=True)
class KnownSchema:
    """A cached schema; parsed on first use."""

    stored: StoredSchema
    parsed: ParsedSchema | None = None


class SchemaCache:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._settings = settings = dependencies.settings.schemas
        self.schemas: TtlCache[tuple[str, int], KnownSchema] = TtlCache(
            dependencies.clock,
            entries=settings.cache_entries,
            ttl_s=settings.cache_ttl_s,
            max_bytes=settings.cache_bytes,
            weigh=lambda known: len(known.stored.text),
        )
        self.members: TtlCache[tuple[Subject, int], bool] = TtlCache(
            dependencies.clock,
            entries=settings.cache_entries,
            ttl_s=settings.cache_ttl_s,
            max_bytes=settings.cache_bytes,
        )
        self._reads_in_flight: dict[object, asyncio.Future[Any]] = {}

    def __repr__(self) -> str:
        return f"<SchemaCache schemas={self.schemas!r} members={self.members!r}>"

    def expire_all(self) -> None:
        self.schemas.expire_all()
        self.members.expire_all()

    # --- by id

    async def stored(self, context: str, schema_id: int) -> StoredSchema:
        return (await self._known(context, schema_id)).stored

    async def parsed(self, context: str, schema_id: int) -> ParsedSchema:
        known = await self._known(context, schema_id)
        if known.parsed is None:
            known.parsed = await self._once(("parse", context, schema_id), lambda: self._parse_known(known.stored))
        return known.parsed

    async def _known(self, context: str, schema_id: int) -> KnownSchema:
        key = (context, schema_id)
        known = self.schemas.fresh(key) or await self._once(key, lambda: self._read(context, schema_id))
        if known is None:
            raise UnknownSchema(schema_id=schema_id)
        return known

    async def _read(self, context: str, schema_id: int) -> KnownSchema | None:
        key, started = (context, schema_id), self.schemas.start_read()
        old = self.schemas.old(key)
        try:
            stored = await self._dependencies.metadata.schema_of_id(context, schema_id)
        except Unavailable:
            if old is None:
                raise
            return old
        if stored is None:
            self.schemas.drop(key)
            return None
        known = old if old is not None and old.stored == stored else KnownSchema(stored)
        self.schemas.put(key, known, started)
        return known

    async def _parse_known(self, stored: StoredSchema) -> ParsedSchema:
        resolved = await self.resolve(Subject(stored.context, ""), stored.references, live=False)
        return await self.parse(stored.type, stored.text, resolved.texts)

    async def last_id(self, context: str) -> int | None:
        """The last assigned id, 0 if there is none; None while the store is unavailable."""
        try:
            return (await self._dependencies.metadata.schema_contexts()).get(context, 0)
        except Unavailable:
            return None

    # --- subjects of a schema

    def is_cached(self, context: str, schema_id: int) -> bool:
        """Whether the schema is cached; if not, the store must be read."""
        return self.schemas.fresh((context, schema_id)) is not None

    def is_membership_cached(self, subject: Subject, schema_id: int) -> bool:
        return self.members.fresh((subject, schema_id)) is not None

    async def is_known(self, context: str, schema_id: int) -> bool:
        """Whether the store has the schema; by the cache while the store is unavailable."""
        return await self._once((context, schema_id), lambda: self._read(context, schema_id)) is not None

    async def belongs(self, subject: Subject, schema_id: int) -> bool:
        """Whether a version of the subject that is not deleted has this id; by the cache while the store is
        unavailable."""
        return await self._once((subject, schema_id), lambda: self._read_membership(subject, schema_id))

    async def _read_membership(self, subject: Subject, schema_id: int) -> bool:
        key, started = (subject, schema_id), self.members.start_read()
        try:
            versions = await self._dependencies.metadata.versions_of_schema(subject.context, schema_id)
        except Unavailable:
            if self.members.old(key) is None:
                raise
            return True
        if any(each.subject == subject and not each.deleted for each in versions):
            self.members.put(key, True, started)
            return True
        self.members.drop(key)
        return False

    # --- texts

    async def resolve(self, subject: Subject, references: Sequence[Reference], *, live: bool) -> ResolvedReferences:
        limit = self._settings.max_references
        return await resolve(self._dependencies.metadata, subject, references, limit=limit, live=live)

    async def parse(self, kind: str, text: str, texts: References) -> ParsedSchema:
        size = len(text) + sum(map(len, texts.values()))
        if size > self._settings.max_schema_bytes:
            limit = self._settings.max_schema_bytes
            raise InvalidSchema(f"the schema is too large; size={size} limit={limit} setting=schemas.max_schema_bytes")
        return await self._in_thread_if_large(size, lambda: parse_schema(kind, text, texts))

    async def clashes(self, newer: ParsedSchema, older: ParsedSchema, level: Level) -> list[Incompatibility]:
        return await self._in_thread_if_large(
            len(newer.text) + len(older.text), lambda: incompatibilities(newer, older, level)
        )

    async def _in_thread_if_large(self, size: int, work: Callable[[], T]) -> T:
        """Process small texts at once, large ones in a thread."""
        if size <= self._settings.inline_bytes:
            return work()
        return await asyncio.get_running_loop().run_in_executor(None, work)

    async def _once(self, key: object, make: Callable[[], Awaitable[T]]) -> T:
        """Share one read among concurrent callers; cancelling one doesn't cancel the read."""
        flight: asyncio.Future[T] | None = self._reads_in_flight.get(key)
        if flight is None:
            flight = self._reads_in_flight[key] = asyncio.ensure_future(make())
            flight.add_done_callback(lambda done: self._read_done(key, done))
        return await asyncio.shield(flight)

    def _read_done(self, key: object, flight: "asyncio.Future[Any]") -> None:
        del self._reads_in_flight[key]
        if not flight.cancelled():
            flight.exception()  # retrieved, so that asyncio doesn't report an error without waiters
