"""StoreIdentity: object store and metadata store identify each other; a foreign or older one is rejected.

Data path   none: at the start of every session, now and then while it lasts, and before objects are swept
Owns        the objects `cluster/id` and `generations/…`, when a generation begins, the error texts
Leaves      the comparison to `model.cluster_identity`, rows to the metadata store, ending a session to `agent_session`

A generation is begun in the database first and then written to the object store, so that a crash in between leaves the
object store behind, never ahead. Generation objects are written create-only: of two databases that begin the same one,
the second is rejected.

A write-ahead log deletes flushed records only after a generation was begun behind their rows. So for an older copy of
the database either the log still has everything that the copy lacks, or the copy is rejected, however young it is.
"""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from streamhouse.broker.catalog.topic_name_objects import write_topic_names
from streamhouse.broker.dependencies import Dependencies
from streamhouse.clock import Ids, limited
from streamhouse.errors import Misconfigured, SessionLost, Unavailable
from streamhouse.format.object_keys import (
    CLUSTER_KEY,
    GENERATIONS_PREFIX,
    SEGMENTS_PREFIX,
    WAL_PREFIX,
    generation_key,
    parse_generation_key,
    parse_segment_key,
    parse_wal_key,
)
from streamhouse.model.cluster_identity import BucketIdentity, DatabaseIdentity, Pairing, check_pairing
from streamhouse.model.names import SessionId
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.objects.base import ObjectExists, ObjectMeta, ObjectMissing, ObjectStore

log: Final = logging.getLogger(__name__)

MAX_BODY: Final = 1024
KEPT: Final = 8
"""With a generation, the one that is this much older is deleted, so that the newest is never deleted."""
SAMPLE: Final = 1000
"""Objects that are checked when stores without an identity are paired."""
LEASES_TOGETHER_S: Final = 1.0
"""Minimum time between two generations that are begun for new leases."""
COMMAND: Final = "streamhouse recover"


class WatchedSession(Protocol):
    """The session that lasts while the identity is watched; `AgentSession` is one."""

    @property
    def stored_wal_start(self) -> int:
        """From where on recovery would read its log, as the database knows by now."""
        ...

    @property
    def new_leases(self) -> asyncio.Event:
        """Set when partitions were leased to it: a database from before that would not look for them in its log."""
        ...

    def delete_wal_below(self, sequence: int) -> None: ...


class _Uncovered(NamedTuple):
    wal_start: int
    begun: int
    since: float


class CoveredWalStart:
    """Below where a session's log may be deleted: an older database that would read it from there is refused."""

    def __init__(self) -> None:
        self._covered = 0
        self._uncovered: _Uncovered | None = None

    def __repr__(self) -> str:
        return f"<CoveredWalStart {self._covered} next={self._uncovered}>"

    @property
    def uncovered_since(self) -> float | None:
        """Since when a part of the log waits for the next generation."""
        return self._uncovered.since if self._uncovered is not None else None

    def update(self, wal_start: int, database: DatabaseIdentity, *, now: float) -> int | None:
        """`wal_start` was in the database before `database` was read. Returns the covered start when it has moved."""
        new_start = None
        if self._uncovered is not None and database.stored > self._uncovered.begun:
            new_start = self._covered = self._uncovered.wal_start
            self._uncovered = None
        if self._uncovered is None and wal_start > self._covered:
            self._uncovered = _Uncovered(wal_start, database.begun, now)
        return new_start


class StoreIdentity:
    """The store identity of one agent. `known` is the highest generation that it has begun or seen."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._metadata, self._objects, self._ids = dependencies.metadata, dependencies.objects, dependencies.ids
        self._clock, self._settings = dependencies.clock, dependencies.settings
        self._newest_object: Sequence[str] = ()
        self.cluster_id = ""
        self.known = 0

    def __repr__(self) -> str:
        return f"<StoreIdentity {self.cluster_id} generation={self.known}>"

    async def check(self) -> None:
        """Raise `Misconfigured` unless the stores belong together, or are paired for the first time."""
        before, bucket, after = await read_both(self._metadata, self._objects)
        pairing = check_pairing(before, bucket, after)
        if pairing is Pairing.NEW:
            self.cluster_id = await write_identities(self._metadata, self._objects, self._ids)
            return
        if pairing is not Pairing.SAME:
            raise Misconfigured(mismatch_error(pairing, bucket, after))
        self._require_known(after)
        assert after.cluster_id is not None
        self.cluster_id, self.known = after.cluster_id, max(self.known, bucket.newest)

    async def begin(self, session_id: SessionId) -> None:
        """Begin a generation; raise `Misconfigured` when another database has begun it."""
        generation = await self._metadata.begin_generation()
        await write_generation(self._objects, generation, f"{self.cluster_id} {session_id}")
        await self._metadata.store_generation(generation)
        self.known = max(self.known, generation)
        await write_topic_names(self._metadata, self._objects)
        if generation > KEPT:
            await self._objects.delete(generation_key(generation - KEPT))

    async def watch(
        self, session_id: SessionId, session: WatchedSession, *, is_its_turn: Callable[[], bool]
    ) -> SessionLost:
        """Check periodically that the database is the same, begin a generation if objects were registered since the
        last one, and delete what it covers of the session's log; returns why the session must end."""
        generation_s = self._settings.cluster.generation_s
        begun_at = self._clock.monotonic()
        covered = CoveredWalStart()
        while True:
            await self._rest(session)
            try:
                wal_start = session.stored_wal_start
                database = await self.require_same_database(session_id)
                now = self._clock.monotonic()
                if (start := covered.update(wal_start, database, now=now)) is not None:
                    session.delete_wal_below(start)
                waits_since = covered.uncovered_since
                if session.new_leases.is_set():
                    await self._begin_for_leases(session_id, session)
                elif now - begun_at >= generation_s and is_its_turn():
                    await self._begin_where_changed(session_id)
                    begun_at = self._clock.monotonic()
                elif waits_since is not None and now - waits_since >= 2 * generation_s:
                    await self.begin(session_id)  # nothing was registered since, so nobody else will
            except Unavailable as error:
                log.warning("the stores' identity can't be checked now", extra={"why": str(error)})
            except SessionLost as error:
                return error
            except Misconfigured as error:
                return SessionLost(session_id, why=str(error))

    async def _rest(self, session: WatchedSession) -> None:
        """Wait until the next check is due or partitions were leased; at least a second, so that many leases share a
        generation."""
        renew_s = self._settings.lease.renew_s
        await self._clock.sleep(min(LEASES_TOGETHER_S, renew_s))
        with suppress(TimeoutError):
            rest_s = max(renew_s - LEASES_TOGETHER_S, 0.0)
            await limited(session.new_leases.wait(), seconds=rest_s, clock=self._clock)

    async def _begin_for_leases(self, session_id: SessionId, session: WatchedSession) -> None:
        session.new_leases.clear()
        try:
            await self.begin(session_id)
        except Unavailable:
            session.new_leases.set()
            raise

    async def cover(self, session_id: SessionId) -> None:
        """Begin a generation after everything that is registered, so that a log may be deleted: an older database would
        lack records, and is rejected from now on."""
        await self._begin_where_changed(session_id)

    async def _begin_where_changed(self, session_id: SessionId) -> None:
        newest = [each.key for each in await self._metadata.newest_objects(limit=1)]
        if newest != self._newest_object:
            await self.begin(session_id)
            self._newest_object = newest

    async def require_same_database(self, session_id: SessionId) -> DatabaseIdentity:
        """Raise `SessionLost` if the database was replaced, as by a restore while agents run: this session must not
        write to it."""
        database = await self._metadata.identity()
        try:
            self._require_known(database)
        except Misconfigured as error:
            raise SessionLost(session_id, why=str(error)) from error
        return database

    def _require_known(self, database: DatabaseIdentity) -> None:
        bucket = BucketIdentity(cluster_id=self.cluster_id, newest=self.known)
        if self.cluster_id and database.cluster_id != self.cluster_id:
            pairing = Pairing.EMPTY_DATABASE if database.cluster_id is None else Pairing.FOREIGN
            raise Misconfigured(mismatch_error(pairing, bucket, database))
        if database.begun < self.known:
            raise Misconfigured(mismatch_error(Pairing.OLDER_DATABASE, bucket, database))


async def read_both(
    metadata: MetadataStore, objects: ObjectStore
) -> tuple[DatabaseIdentity, BucketIdentity, DatabaseIdentity]:
    """Read the database, the object store, and the database again, in this order."""
    before = await metadata.identity()
    bucket = await read_bucket(objects)
    return before, bucket, await metadata.identity()


async def read_bucket(objects: ObjectStore) -> BucketIdentity:
    numbers = [parse_generation_key(meta.key) async for meta in objects.list(GENERATIONS_PREFIX)]
    return BucketIdentity(
        cluster_id=await _cluster_id_of(objects), newest=max((each for each in numbers if each is not None), default=0)
    )


async def write_generation(objects: ObjectStore, generation: int, body: str) -> None:
    """Create the generation's object; raise `Misconfigured` if another database has."""
    key = generation_key(generation)
    try:
        await objects.put_new(key, [body.encode()])
    except ObjectExists:
        other = await objects.get_range(key, 0, MAX_BODY)
        if other != body.encode():  # otherwise it is our own, and the response was lost
            raise Misconfigured(
                f"another database has begun this generation in the object store; generation={generation} "
                f"by={other.decode(errors='replace')!r} why=the database was restored or copied, and the object store "
                f"went on without it do=start with the newer database, or see what this one lacks with: {COMMAND}"
            ) from None


async def write_identities(metadata: MetadataStore, objects: ObjectStore, ids: Ids) -> str:
    """Write the cluster id to both stores if their contents fit; returns it."""
    await _require_fitting(metadata, objects)
    cluster_id = await metadata.cluster_id(new_cluster_id(ids))
    await write_cluster_id(objects, cluster_id)
    return cluster_id


def new_cluster_id(ids: Ids) -> str:
    """16 bytes in 22 characters, the usual format of Kafka's cluster ids."""
    return base64.urlsafe_b64encode(ids.uuid().bytes).decode().rstrip("=")


async def write_cluster_id(objects: ObjectStore, cluster_id: str) -> None:
    try:
        await objects.put_new(CLUSTER_KEY, [cluster_id.encode()])
    except ObjectExists:
        bucket = BucketIdentity(cluster_id=await _cluster_id_of(objects), newest=0)
        if bucket.cluster_id != cluster_id:
            database = DatabaseIdentity(cluster_id=cluster_id, begun=0, stored=0)
            raise Misconfigured(mismatch_error(Pairing.FOREIGN, bucket, database)) from None


async def _require_fitting(metadata: MetadataStore, objects: ObjectStore) -> None:
    """Check stores of a release without identities: referenced objects must exist, and existing objects must have
    rows."""
    named = [each.key for each in await metadata.newest_objects(limit=10)]
    bucket, database = BucketIdentity(cluster_id=None, newest=0), await metadata.identity()
    if named:
        if not any([await _exists(objects, key) for key in named]):
            raise Misconfigured(mismatch_error(Pairing.EMPTY_BUCKET, bucket, database))
    elif keys := await _sample(objects):
        known = await metadata.known_among(keys)
        if not known and not await metadata.sessions_among(_sessions_of(keys)):
            raise Misconfigured(mismatch_error(Pairing.EMPTY_DATABASE, bucket, database))


async def _sample(objects: ObjectStore) -> list[str]:
    keys = [meta.key async for meta in _some(objects.list(SEGMENTS_PREFIX)) if parse_segment_key(meta.key)]
    return keys + [meta.key async for meta in _some(objects.list(WAL_PREFIX)) if parse_wal_key(meta.key)]


async def _some(listing: AsyncIterator[ObjectMeta]) -> AsyncIterator[ObjectMeta]:
    count = 0
    async for meta in listing:
        yield meta
        count += 1
        if count == SAMPLE:
            return


def _sessions_of(keys: Sequence[str]) -> list[SessionId]:
    names = [parse_segment_key(key) or parse_wal_key(key) for key in keys]
    return sorted({name.session_id for name in names if name is not None})


async def _exists(objects: ObjectStore, key: str) -> bool:
    try:
        await objects.head(key)
    except ObjectMissing:
        return False
    return True


async def _cluster_id_of(objects: ObjectStore) -> str | None:
    try:
        return (await objects.get_range(CLUSTER_KEY, 0, MAX_BODY)).decode(errors="replace")
    except ObjectMissing:
        return None


def mismatch_error(pairing: Pairing, bucket: BucketIdentity, database: DatabaseIdentity) -> str:
    """Why an agent can't start with these stores, and what to do."""
    facts = (
        f"database_cluster={database.cluster_id or 'none'} store_cluster={bucket.cluster_id or 'none'} "
        f"database_generation={database.begun} store_generation={bucket.newest}"
    )
    what, advice = _MISMATCH_TEXTS[pairing]
    return f"{what}; {facts} do={advice}"


_MISMATCH_TEXTS: Final = {
    Pairing.EMPTY_DATABASE: (
        "the metadata database is empty, and the object store holds records of a cluster",
        "restore the database from its backup, or check --metadata and --store; without a backup, "
        f"`{COMMAND}` shows what can be registered anew from the object store",
    ),
    Pairing.FOREIGN: (
        "the metadata database and the object store belong to different clusters",
        "check --metadata and --store; one object store prefix serves one database",
    ),
    Pairing.OLDER_DATABASE: (
        "the metadata database is older than the object store: it doesn't know what was written since",
        "start with the newest database; where it is lost, "
        f"`{COMMAND}` shows what the older one lacks and registers it",
    ),
    Pairing.EMPTY_BUCKET: (
        "the object store doesn't have the cluster id of the metadata database: it was emptied, or is another one",
        "check --store, or restore the objects; where they are lost for good, "
        f"`{COMMAND}` names what is missing and lets agents start",
    ),
    Pairing.OLDER_BUCKET: (
        "the object store is older than the metadata database: objects that the database knows may be missing",
        "start with the newest object store; where it is lost, "
        f"`{COMMAND}` names what is missing and lets agents start",
    ),
}
