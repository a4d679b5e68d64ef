"""Library: schemas by id, parsed once, in memory.

Data path   readers by schema id, and batches that are checked -> **library** -> cache -> metadata store
Owns        that a schema is read and parsed once however many want it; that what is known is served while the store is
            away; parsing and comparing large texts beside the event loop
Leaves      freshness to `cache`, languages to `schemas`
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from streamhouse.broker.doors import Doors
from streamhouse.broker.schemas.cache import FreshCache
from streamhouse.broker.schemas.references import Resolved, resolve
from streamhouse.broker.schemas.rules import clashes
from streamhouse.errors import InvalidSchema, Unavailable, UnknownSchema
from streamhouse.model.schema import Level, Reference, StoredSchema, Subject
from streamhouse.schemas.base import Incompatibility, ParsedSchema, References
from streamhouse.schemas.languages import parse_schema

T = TypeVar("T")


@dataclass(slots=True)
class Known:
    """A schema in memory; parsed when the first one needs it so."""

    stored: StoredSchema
    parsed: ParsedSchema | None = None


class Library:
    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._settings = settings = doors.settings.schemas
        self.schemas: FreshCache[tuple[str, int], Known] = FreshCache(
            doors.clock,
            entries=settings.cache_entries,
            ttl_s=settings.cache_ttl_s,
            max_bytes=settings.cache_bytes,
            weigh=lambda known: len(known.stored.text),
        )
        self.members: FreshCache[tuple[Subject, int], bool] = FreshCache(
            doors.clock, entries=settings.cache_entries, ttl_s=settings.cache_ttl_s, max_bytes=settings.cache_bytes
        )
        self._flights: dict[object, asyncio.Future[Any]] = {}

    def __repr__(self) -> str:
        return f"<Library schemas={self.schemas!r} members={self.members!r}>"

    def outdate(self) -> None:
        self.schemas.outdate()
        self.members.outdate()

    # --- by id

    async def stored(self, context: str, schema_id: int) -> StoredSchema:
        return (await self._known(context, schema_id)).stored

    async def parsed(self, context: str, schema_id: int) -> ParsedSchema:
        known = await self._known(context, schema_id)
        if known.parsed is None:
            known.parsed = await self._once(("parse", context, schema_id), lambda: self._parse_known(known.stored))
        return known.parsed

    async def _known(self, context: str, schema_id: int) -> Known:
        key = (context, schema_id)
        known = self.schemas.fresh(key) or await self._once(key, lambda: self._read(context, schema_id))
        if known is None:
            raise UnknownSchema(schema_id=schema_id)
        return known

    async def _read(self, context: str, schema_id: int) -> Known | None:
        key, asked = (context, schema_id), self.schemas.ask()
        old = self.schemas.old(key)
        try:
            stored = await self._doors.metadata.schema_of_id(context, schema_id)
        except Unavailable:
            if old is None:
                raise
            return old
        if stored is None:
            self.schemas.drop(key)
            return None
        known = old if old is not None and old.stored == stored else Known(stored)
        self.schemas.put(key, known, asked)
        return known

    async def _parse_known(self, stored: StoredSchema) -> ParsedSchema:
        resolved = await self.resolve(Subject(stored.context, ""), stored.references, live=False)
        return await self.parse(stored.type, stored.text, resolved.texts)

    async def last_id(self, context: str) -> int | None:
        """The last id that was given, 0 when none was; None while the store is away."""
        try:
            return (await self._doors.metadata.schema_contexts()).get(context, 0)
        except Unavailable:
            return None

    # --- which subjects have it

    def surely_known(self, context: str, schema_id: int) -> bool:
        """Whether memory says that there is such a schema; no means that the store must be asked."""
        return self.schemas.fresh((context, schema_id)) is not None

    def surely_belongs(self, subject: Subject, schema_id: int) -> bool:
        return self.members.fresh((subject, schema_id)) is not None

    async def is_known(self, context: str, schema_id: int) -> bool:
        """Whether the store says so; memory where it is away."""
        return await self._once((context, schema_id), lambda: self._read(context, schema_id)) is not None

    async def belongs(self, subject: Subject, schema_id: int) -> bool:
        """Whether a version of the subject that is not deleted has this id: the same."""
        return await self._once((subject, schema_id), lambda: self._read_membership(subject, schema_id))

    async def _read_membership(self, subject: Subject, schema_id: int) -> bool:
        key, asked = (subject, schema_id), self.members.ask()
        try:
            versions = await self._doors.metadata.versions_of_schema(subject.context, schema_id)
        except Unavailable:
            if self.members.old(key) is None:
                raise
            return True
        if any(each.subject == subject and not each.deleted for each in versions):
            self.members.put(key, True, asked)
            return True
        self.members.drop(key)
        return False

    # --- texts

    async def resolve(self, subject: Subject, references: Sequence[Reference], *, live: bool) -> Resolved:
        limit = self._settings.max_references
        return await resolve(self._doors.metadata, subject, references, limit=limit, live=live)

    async def parse(self, kind: str, text: str, texts: References) -> ParsedSchema:
        size = len(text) + sum(map(len, texts.values()))
        if size > self._settings.max_schema_bytes:
            limit = self._settings.max_schema_bytes
            raise InvalidSchema(f"the schema is too large; size={size} limit={limit} setting=schemas.max_schema_bytes")
        return await self._beside(size, lambda: parse_schema(kind, text, texts))

    async def clashes(self, newer: ParsedSchema, older: ParsedSchema, level: Level) -> list[Incompatibility]:
        return await self._beside(len(newer.text) + len(older.text), lambda: clashes(newer, older, level))

    async def _beside(self, size: int, work: Callable[[], T]) -> T:
        """Small texts at once, large ones in a thread."""
        if size <= self._settings.inline_bytes:
            return work()
        return await asyncio.get_running_loop().run_in_executor(None, work)

    async def _once(self, key: object, make: Callable[[], Awaitable[T]]) -> T:
        """All who want the same wait for one reading; one who leaves doesn't take it down."""
        flight: asyncio.Future[T] | None = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = asyncio.ensure_future(make())
            flight.add_done_callback(lambda done: self._landed(key, done))
        return await asyncio.shield(flight)

    def _landed(self, key: object, flight: "asyncio.Future[Any]") -> None:
        del self._flights[key]
        if not flight.cancelled():
            flight.exception()  # looked at, so that a failure whose waiters all left isn't reported as forgotten
