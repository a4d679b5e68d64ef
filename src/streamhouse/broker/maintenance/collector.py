"""Collector: retention moves log starts; objects that no row names any more are deleted, late.

Data path   none: it works behind the data path's back
Owns        when retention is looked at, when doomed objects go, the search for orphans and for what ended sessions left
Leaves      the policy to `model.retention`, marking to the metadata store

Deleting always goes: row marked in a transaction -> grace time -> object deleted -> row removed. An object that no
row names is deleted only when it is old, its session has ended, and the names were read completely in one snapshot
taken after the listing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.doors import Doors
from streamhouse.errors import InvalidConfig, SessionLost, StreamhouseError, Unavailable
from streamhouse.format.keys import (
    PLACED_PREFIX,
    SEGMENTS_PREFIX,
    WAL_PREFIX,
    parse_placed_key,
    parse_segment_key,
    parse_wal_key,
)
from streamhouse.model.lease import PartitionState
from streamhouse.model.names import PartitionId, SessionId, TopicId
from streamhouse.model.retention import retained_from
from streamhouse.model.segment import Run
from streamhouse.model.topic import Topic, TopicConfig

log = logging.getLogger(__name__)

PAGE: Final = 1000
SESSIONS_KEPT: Final = 2
"""Ended sessions are known for so many times as long as what they left is kept."""


class Collector:
    def __init__(
        self,
        doors: Doors,
        *,
        topics: Callable[[], Awaitable[Sequence[Topic]]],
        config_of: Callable[[Topic], TopicConfig],
        moved: Callable[[PartitionId, int], None],
        cluster: Cluster,
    ) -> None:
        self._doors = doors
        self._settings = doors.settings.retention
        self._topics = topics
        self._config_of = config_of
        self._moved = moved
        self._cluster = cluster
        self.deleted_objects = 0
        self.deleted_orphans = 0

    def __repr__(self) -> str:
        return f"<Collector deleted={self.deleted_objects} orphans={self.deleted_orphans}>"

    async def run(self) -> None:
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._every(self._settings.check_s, self.retain), name="retention")
            loops.create_task(self._every(self._settings.check_s, self._chore(self.collect)), name="collection")
            loops.create_task(self._every(self._settings.sweep_s, self._chore(self.sweep)), name="orphan-sweep")
            loops.create_task(self._every(self._settings.sweep_s, self._chore(self.sweep_logs)), name="log-sweep")

    async def _every(self, seconds: float, work: Callable[[], Awaitable[object]]) -> None:
        while True:
            await self._doors.clock.sleep(self._doors.ids.jitter(seconds))
            try:
                await work()
            except StreamhouseError as error:
                log.warning("maintenance failed, will be tried again", extra={"why": str(error)})

    def _chore(self, work: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
        """What one agent of a cluster is enough for. Two that do it at once only waste requests."""

        async def in_turn() -> object:
            return await work() if self._cluster.does("collection") else None

        return in_turn

    async def retain(self) -> int:
        """Move the log starts that retention asks to move; returns how many moved."""
        starts: dict[PartitionId, int] = {}
        for state, config in await self._due():
            start = await self._retained_from(state.partition, state.log_start, config)
            if start > state.log_start:
                starts[state.partition] = start
        if starts:
            await self._doors.metadata.advance_log_start(starts)
        for partition, start in starts.items():
            self._moved(partition, start)
        return len(starts)

    async def _due(self) -> list[tuple[PartitionState, TopicConfig]]:
        """The partitions of this agent that have something to lose: those of all topics in a few questions, because
        nearly none of them has."""
        configs = {topic_id: config for topic_id, config in (await self._configs()).items() if _has_limits(config)}
        states = [
            state
            for state in await self._doors.metadata.partitions(list(configs))
            if state.log_start < state.flushed_end and self._cluster.leads(state)
        ]
        oldest = await self._oldest(states)
        limited = [topic_id for topic_id, config in configs.items() if config.retention_bytes >= 0]
        sizes = await self._doors.metadata.sizes(limited) if limited else {}
        now_ms = self._doors.clock.now_ms()
        return [
            (state, config)
            for state in states
            if (config := configs[state.partition.topic_id]) and (run := oldest.get(state.partition)) is not None
            if (config.retention_ms >= 0 and run.max_timestamp_ms < now_ms - config.retention_ms)
            or (config.retention_bytes >= 0 and sizes.get(state.partition, 0) > config.retention_bytes)
        ]

    async def _configs(self) -> dict[TopicId, TopicConfig]:
        configs: dict[TopicId, TopicConfig] = {}
        for topic in await self._topics():
            try:
                configs[topic.topic_id] = self._config_of(topic)
            except InvalidConfig as error:
                # Written by another version; it must not keep the other topics from being cleaned.
                log.warning("topic is not cleaned", extra={"topic": topic.name, "why": str(error)})
        return configs

    async def _oldest(self, states: Sequence[PartitionState]) -> dict[PartitionId, Run]:
        found: dict[PartitionId, Run] = {}
        for start in range(0, len(states), PAGE):
            wanted = {state.partition: state.log_start for state in states[start : start + PAGE]}
            found |= {run.partition: run for run in await self._doors.metadata.runs_of(wanted, limit=1)}
        return found

    async def _retained_from(self, partition: PartitionId, log_start: int, config: TopicConfig) -> int:
        now_ms = self._doors.clock.now_ms()
        runs: list[Run] = []
        offset = log_start
        while page := await self._doors.metadata.runs(partition, from_offset=offset, limit=PAGE):
            runs.extend(page)
            offset = page[-1].end
            # By age the oldest decide; only a limit of size needs to know how much there is in all.
            by_age_only = config.retention_bytes < 0 and page[-1].max_timestamp_ms >= now_ms - config.retention_ms
            if len(page) < PAGE or by_age_only:
                break
        return retained_from(runs, config, log_start=log_start, now_ms=now_ms)

    async def collect(self) -> int:
        """Delete doomed objects whose grace time is over; returns how many went."""
        grace_ms = round(self._settings.grace_s * 1000)
        gone = 0
        while doomed := await self._doors.metadata.doomed_objects(grace_ms=grace_ms, limit=PAGE):
            deleted = [item.key for item in doomed if await self._delete(item.key)]
            await self._doors.metadata.forget_objects(deleted)
            gone += len(deleted)
            self.deleted_objects += len(deleted)
            if len(deleted) < len(doomed):
                break  # the rest is for the next look
        return gone

    async def _delete(self, key: str) -> bool:
        """Whether the object is gone; one that can't be deleted now doesn't keep the others."""
        try:
            await self._doors.objects.delete(key)
        except Unavailable as error:
            log.warning("object can't be deleted now", extra={"key": key, "why": str(error)})
            return False
        return True

    async def sweep(self) -> int:
        """Delete objects that no row names: left by a crash between PUT and registration. Returns how many went."""
        before_ms = self._doors.clock.now_ms() - round(self._settings.orphan_age_s * 1000)
        return await self._sweep_segments(before_ms) + await self._give_up_placed(before_ms)

    async def _give_up_placed(self, before_ms: int) -> int:
        """Segments that nobody committed for long are given up by a row that keeps every commit from placing them, and
        are deleted when its grace time is over. Returns how many."""
        old = [meta.key async for meta in self._doors.objects.list(PLACED_PREFIX) if meta.modified_at_ms < before_ms]
        if not old:
            return 0
        known = await self._doors.metadata.known_objects()
        orphans = [key for key in old if key not in known and parse_placed_key(key) is not None]
        for start in range(0, len(orphans), PAGE):
            await self._doors.metadata.give_up_objects(orphans[start : start + PAGE])
        self.deleted_orphans += len(orphans)
        return len(orphans)

    async def _sweep_segments(self, before_ms: int) -> int:
        old = [meta.key async for meta in self._doors.objects.list(SEGMENTS_PREFIX) if meta.modified_at_ms < before_ms]
        if not old:
            return 0
        alive = {session.session_id for session in (await self._doors.metadata.roll_call()).sessions}
        known = await self._doors.metadata.known_objects()
        orphans = [
            key for key in old if key not in known and (name := parse_segment_key(key)) and name.session_id not in alive
        ]
        for key in orphans:
            await self._doors.objects.delete(key)
            self.deleted_orphans += 1
            log.info("orphan deleted", extra={"key": key})
        return len(orphans)

    async def sweep_logs(self) -> int:
        """Delete what sessions that ended long ago left of their logs, and then forget them; returns how many objects
        went. In this order: the log of a session that the store doesn't know is left alone for ever."""
        ended = await self._ended(await self._logged())
        gone = await self._doors.wals.collect(ended.__contains__)
        older_than_ms = round(SESSIONS_KEPT * self._doors.settings.wal.seal_retention_s * 1000)
        await self._doors.metadata.forget_sessions(older_than_ms, PAGE)
        await self._doors.metadata.forget_commits(round(self._doors.settings.placing.remember_s * 1000), PAGE)
        return gone

    async def _logged(self) -> set[SessionId]:
        """Sessions that have objects of a log in the store."""
        names = [parse_wal_key(meta.key) async for meta in self._doors.objects.list(WAL_PREFIX)]
        return {name.session_id for name in names if name is not None}

    async def _ended(self, sessions: Collection[SessionId]) -> set[SessionId]:
        """Those that are over for good. A session begins before its log does, so one that has a log and is not called
        has ended, or the store never heard of it: then the log belongs to other metadata, and is left alone."""
        if not sessions:
            return set()
        alive = {session.session_id for session in (await self._doors.metadata.roll_call()).sessions}
        ended: set[SessionId] = set()
        for session_id in sorted(set(sessions) - alive):
            with suppress(SessionLost):
                await self._doors.metadata.end_session(session_id)  # changes nothing: it has ended
                ended.add(session_id)
        return ended


def _has_limits(config: TopicConfig) -> bool:
    return config.deletes and (config.retention_ms >= 0 or config.retention_bytes >= 0)
