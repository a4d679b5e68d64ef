"""RetentionManager: moves log starts, and deletes unreferenced objects after a grace time.

Data path   none: works on flushed records
Owns        when retention is applied, when objects are deleted, the search for orphans and leftovers of ended sessions
Leaves      the policy to `model.log_cleanup`, marking objects for deletion to the metadata store

The order of a deletion: the row is marked in a transaction -> grace time -> object deleted -> row removed. An
unreferenced object is deleted only if it is old, its session is known and has ended, and no row, live or marked,
references it in one snapshot taken after the object was listed and its session was seen as ended. Objects of unknown
sessions are never deleted: they belong to another or a newer database.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Final, NamedTuple

from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.cluster.store_identity import StoreIdentity
from streamhouse.broker.dependencies import Dependencies
from streamhouse.errors import SessionLost, StreamhouseError, Unavailable
from streamhouse.format.object_keys import (
    PLACED_PREFIX,
    SEGMENTS_PREFIX,
    TOPICS_PREFIX,
    WAL_PREFIX,
    parse_external_segment_key,
    parse_segment_key,
    parse_topic_key,
    parse_wal_key,
)
from streamhouse.model.cluster import PartitionState
from streamhouse.model.log_cleanup import is_past, is_undated, retention_step
from streamhouse.model.names import PartitionId, SessionId, TopicId
from streamhouse.model.segment import Run
from streamhouse.model.topic import TopicConfig

log = logging.getLogger(__name__)

PAGE: Final = 1000
PARTITIONS_PER_READ: Final = 100
"""Partitions whose runs are read together."""
SESSIONS_KEPT: Final = 2
"""How long rows of ended sessions are kept, as a multiple of the retention of their leftovers."""


class DueForRetention(NamedTuple):
    """A partition that may have expired records, with its runs from the log start on."""

    partition: PartitionId
    config: TopicConfig
    log_start: int
    size_bytes: int


class RetentionManager:
    def __init__(
        self,
        dependencies: Dependencies,
        *,
        configs: Callable[[], Awaitable[Mapping[TopicId, TopicConfig]]],
        on_log_starts_changed: Callable[[Mapping[PartitionId, int]], None],
        cluster: Cluster,
        identity: StoreIdentity,
    ) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.retention
        self._configs = configs
        self._moved = on_log_starts_changed
        self._cluster = cluster
        self._identity = identity
        self._written: dict[str, int] = {}
        """Creation times of objects, cached for one application of retention."""
        self.deleted_objects = 0
        self.deleted_orphans = 0

    def __repr__(self) -> str:
        return f"<RetentionManager deleted={self.deleted_objects} orphans={self.deleted_orphans}>"

    async def run(self) -> None:
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._every(self._settings.check_s, self.apply), name="retention")
            loops.create_task(self._every(self._settings.check_s, self._chore(self.delete_pending)), name="deletion")
            loops.create_task(
                self._every(self._settings.sweep_s, self._chore(self.delete_orphans)), name="orphan-sweep"
            )
            loops.create_task(self._every(self._settings.sweep_s, self._chore(self.sweep_logs)), name="log-sweep")

    async def _every(self, seconds: float, work: Callable[[], Awaitable[object]]) -> None:
        while True:
            await self._dependencies.clock.sleep(self._dependencies.ids.jitter(seconds))
            try:
                await work()
            except StreamhouseError as error:
                log.warning("maintenance failed, will retry", extra={"why": str(error)})

    def _chore(self, work: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
        """Run a task that one agent of the cluster does; if two do it concurrently, they only waste requests."""

        async def in_turn() -> object:
            return await work() if self._cluster.owns_task("collection") else None

        return in_turn

    async def apply(self) -> int:
        """Move log starts according to retention, step by step; returns the number of moved ones."""
        self._written.clear()
        configs = await self._configs()
        led = [
            state for state in await self._dependencies.metadata.partitions(list(configs)) if self._cluster.leads(state)
        ]
        # The leader before this one may have moved some last.
        self._moved({state.partition: state.log_start for state in led})
        states = [state for state in led if state.log_start < state.flushed_end]
        oldest = await self._oldest(states)
        await self._advance(
            {each.partition: each.log_start for each in states if _has_leftovers(each, oldest.get(each.partition))}
        )
        on_log_starts_changed: set[PartitionId] = set()
        now_ms = await self._dependencies.agreed_now_ms()
        due = await self._due(states, oldest, configs, now_ms)
        for first in range(0, len(due), PARTITIONS_PER_READ):
            some: Sequence[DueForRetention] = due[first : first + PARTITIONS_PER_READ]
            while some:
                starts, some = await self._next_starts(some, now_ms)
                await self._advance(starts)
                on_log_starts_changed |= starts.keys()
        return len(on_log_starts_changed)

    async def _advance(self, starts: Mapping[PartitionId, int]) -> None:
        if not starts:
            return
        more = await self._dependencies.metadata.advance_log_start(starts)
        self._moved(starts)
        while more:
            more = await self._dependencies.metadata.advance_log_start(starts)

    async def _due(
        self,
        states: Sequence[PartitionState],
        oldest: Mapping[PartitionId, Run],
        configs: Mapping[TopicId, TopicConfig],
        now_ms: int,
    ) -> list[DueForRetention]:
        """The partitions that may have expired records; found with few queries, because nearly none has."""
        limited = [topic_id for topic_id, config in configs.items() if config.deletes and config.retention_bytes >= 0]
        # Read last: rows below a log start that has just moved would count, so those partitions wait for the next
        # check.
        sizes = await self._dependencies.metadata.sizes(limited) if limited else {}
        due: list[DueForRetention] = []
        for state in states:
            run, config = oldest.get(state.partition), configs[state.partition.topic_id]
            if run is None or not config.deletes or _has_leftovers(state, run):
                continue
            size = sizes.get(state.partition, 0)
            if is_past(run, config, now_ms=now_ms) or 0 <= config.retention_bytes < size:
                due.append(DueForRetention(state.partition, config, state.log_start, size))
        return due

    async def _next_starts(
        self, some: Sequence[DueForRetention], now_ms: int
    ) -> tuple[dict[PartitionId, int], list[DueForRetention]]:
        """The new log starts according to one page of runs, and the partitions that need the next page."""
        limit = max(1, PAGE // len(some))
        runs = await self._dependencies.metadata.runs_of({due.partition: due.log_start for due in some}, limit=limit)
        pages = {partition: list(page) for partition, page in groupby(runs, key=lambda run: run.partition)}
        starts: dict[PartitionId, int] = {}
        more: list[DueForRetention] = []
        for due in some:
            page = await self._dated(pages.get(due.partition, []), due.config, now_ms)
            step = retention_step(page, due.config, log_start=due.log_start, now_ms=now_ms, size_bytes=due.size_bytes)
            if step.start > due.log_start:
                starts[due.partition] = step.start
            if len(page) == limit and step.start == page[-1].end:
                more.append(due._replace(log_start=step.start, size_bytes=step.size_bytes))
        return starts, more

    async def _dated(self, page: Sequence[Run], config: TopicConfig, now_ms: int) -> Sequence[Run]:
        """Give runs without record timestamps the creation time of their object, as Kafka uses the file's time. Only up
        to the first run that is too young to expire."""
        dated: list[Run] = []
        for run in page:
            known = run
            if is_undated(run) and config.retention_ms >= 0:
                known = replace(run, max_timestamp_ms=await self._written_at(run, now_ms))
            if not is_past(known, config, now_ms=now_ms):
                break
            dated.append(known)
        return [*dated, *page[len(dated) :]]

    async def _written_at(self, run: Run, now_ms: int) -> int:
        """The creation time of a run's object, read once for all partitions; while it is unknown, the run counts as
        new."""
        key = run.object_key
        if key not in self._written:
            try:
                self._written[key] = (await self._dependencies.objects.head(key)).modified_at_ms
            except StreamhouseError as error:
                log.warning("age of a run is unknown, so it is kept", extra={"run": str(run), "why": str(error)})
                self._written[key] = now_ms
        return self._written[key]

    async def _oldest(self, states: Sequence[PartitionState]) -> dict[PartitionId, Run]:
        oldest: dict[PartitionId, Run] = {}
        for start in range(0, len(states), PAGE):
            offsets = {state.partition: 0 for state in states[start : start + PAGE]}
            oldest |= {run.partition: run for run in await self._dependencies.metadata.runs_of(offsets, limit=1)}
        return oldest

    async def delete_pending(self) -> int:
        """Delete marked objects after their grace time; returns the number of deleted ones."""
        grace_ms = round(self._settings.grace_s * 1000)
        gone = 0
        while pending_deletions := await self._dependencies.metadata.objects_pending_deletion(
            grace_ms=grace_ms, limit=PAGE
        ):
            deleted = [item.key for item in pending_deletions if await self._delete(item.key)]
            await self._dependencies.metadata.forget_objects(deleted)
            gone += len(deleted)
            self.deleted_objects += len(deleted)
            if len(deleted) < len(pending_deletions):
                break  # the others are left for the next call
        return gone

    async def _delete(self, key: str) -> bool:
        """Delete an object; False if it can't be deleted now, which doesn't affect the others."""
        try:
            await self._dependencies.objects.delete(key)
        except Unavailable as error:
            log.warning("object can't be deleted now", extra={"key": key, "why": str(error)})
            return False
        return True

    async def delete_orphans(self) -> int:
        """Delete unreferenced objects, left by a crash between PUT and registration; returns the number of deleted
        ones."""
        await self._identity.check()
        before_ms = await self._dependencies.agreed_now_ms() - round(self._settings.orphan_age_s * 1000)
        gone = await self._sweep_segments(before_ms) + await self._give_up_placed(before_ms)
        return gone + await self._sweep_topic_names(before_ms)

    async def _sweep_topic_names(self, before_ms: int) -> int:
        """Delete the names of topics that were deleted; they stay as long as orphans, which may have their records."""
        listed = [meta async for meta in self._dependencies.objects.list(TOPICS_PREFIX)]
        old = {meta.key: topic_id for meta in listed if (topic_id := parse_topic_key(meta.key)) is not None}
        young = {meta.key for meta in listed if meta.modified_at_ms >= before_ms}
        known = {topic.topic_id for topic in await self._dependencies.metadata.topics()}
        gone = [key for key, topic_id in old.items() if topic_id not in known and key not in young]
        for key in gone:
            await self._dependencies.objects.delete(key)
        self.deleted_orphans += len(gone)
        return len(gone)

    async def _give_up_placed(self, before_ms: int) -> int:
        """Give up segments of external commits that were not committed for long: a row prevents commits from using
        them, and they are deleted after the grace time. Returns their number."""
        gone = 0
        async for unknown in self._unknown(PLACED_PREFIX, before_ms):
            orphans = [key for key in unknown if parse_external_segment_key(key) is not None]
            await self._dependencies.metadata.abandon_objects(orphans)
            gone += len(orphans)
        self.deleted_orphans += gone
        return gone

    async def _sweep_segments(self, before_ms: int) -> int:
        gone = 0
        async for unknown in self._unknown(SEGMENTS_PREFIX, before_ms):
            alive = {session.session_id for session in (await self._dependencies.metadata.membership()).sessions}
            names = {key: name for key in unknown if (name := parse_segment_key(key)) is not None}
            sessions = sorted({name.session_id for name in names.values()} - alive)
            ended = await self._dependencies.metadata.sessions_among(sessions)
            # Check again, because a session may have published and ended since the first check.
            known = await self._dependencies.metadata.known_among(unknown)
            for key, name in names.items():
                if key not in known and name.session_id in ended:
                    await self._dependencies.objects.delete(key)
                    gone += 1
                    self.deleted_orphans += 1
                    log.info("orphan deleted", extra={"key": key})
        return gone

    async def _unknown(self, prefix: str, before_ms: int) -> AsyncIterator[list[str]]:
        """Old objects without a row, checked after they were listed; page by page, so that memory and statements stay
        small."""
        page: list[str] = []
        async for meta in self._dependencies.objects.list(prefix):
            if meta.modified_at_ms < before_ms:
                page.append(meta.key)
            if len(page) == PAGE:
                if unknown := await self._unnamed(page):
                    yield unknown
                page = []
        if page and (unknown := await self._unnamed(page)):
            yield unknown

    async def _unnamed(self, keys: Sequence[str]) -> list[str]:
        known = await self._dependencies.metadata.known_among(keys)
        return [key for key in keys if key not in known]

    async def sweep_logs(self) -> int:
        """Delete leftover WAL objects of sessions that ended long ago, and then the sessions' rows; returns the number
        of deleted objects. In this order, because WALs of unknown sessions are never deleted."""
        await self._identity.check()
        ended = await self._ended(await self._logged())
        gone = await self._dependencies.wal_factory.collect(
            ended.__contains__, now_ms=await self._dependencies.agreed_now_ms()
        )
        older_than_ms = round(SESSIONS_KEPT * self._dependencies.settings.wal.seal_retention_s * 1000)
        await self._dependencies.metadata.forget_sessions(older_than_ms, PAGE)
        await self._dependencies.metadata.forget_commits(
            round(self._dependencies.settings.placing.remember_s * 1000), PAGE
        )
        return gone

    async def _logged(self) -> set[SessionId]:
        """Sessions with WAL objects in the store."""
        names = [parse_wal_key(meta.key) async for meta in self._dependencies.objects.list(WAL_PREFIX)]
        return {name.session_id for name in names if name is not None}

    async def _ended(self, sessions: Collection[SessionId]) -> set[SessionId]:
        """The sessions that have ended for good. A session's row exists before its WAL, so a WAL without a live session
        belongs to an ended one, or to other metadata; the latter is kept."""
        if not sessions:
            return set()
        alive = {session.session_id for session in (await self._dependencies.metadata.membership()).sessions}
        ended: set[SessionId] = set()
        for session_id in sorted(set(sessions) - alive):
            with suppress(SessionLost):
                await self._dependencies.metadata.end_session(session_id)  # no effect: the session has ended
                ended.add(session_id)
        return ended


def _has_leftovers(state: PartitionState, oldest: Run | None) -> bool:
    """Whether runs remain below the log start, after a large move by a client, or after a crash in the middle."""
    return oldest is not None and oldest.end <= state.log_start
