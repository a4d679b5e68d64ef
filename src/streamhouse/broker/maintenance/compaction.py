"""Compaction: schedules log cleaning of compacted topics, and merging of small runs of all topics.

Data path   none: works on flushed records
Owns        when partitions are checked, which agent works on them, how much is done per check
Leaves      a cleaning pass to `log_cleaner`, a merge to `run_merger`, deleting old objects to `retention`

The leader of a partition works on it; partitions without a leader belong to the live agent with the lowest node id.
This only avoids duplicate work: replacing runs is safe for any number of agents.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from streamhouse.broker.context import BrokerContext
from streamhouse.broker.maintenance.log_cleaner import LogCleaner
from streamhouse.broker.maintenance.run_merger import RunMerger
from streamhouse.broker.maintenance.run_rewriter import AbortedCleanup, RunRewriter
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.segments.transaction_isolation import StableFlushedOffset
from streamhouse.errors import DamagedRecords, Retriable, SessionLost, StreamhouseError
from streamhouse.model.cluster import PartitionState, Session, SessionState
from streamhouse.model.names import PartitionId, TopicId
from streamhouse.model.topic import TopicConfig

log = logging.getLogger(__name__)


class DueForCompaction(NamedTuple):
    """A partition that this agent works on, and its topic's settings."""

    state: PartitionState
    config: TopicConfig


def due_for_compaction(
    states: Sequence[PartitionState],
    configs: Mapping[TopicId, TopicConfig],
    *,
    by: Session,
    sessions: Sequence[Session],
) -> list[DueForCompaction]:
    """The partitions with flushed records that `by` should work on. A pure function."""
    first = next((each.session_id for each in sessions if each.state == SessionState.LIVE), None)
    return [
        DueForCompaction(state, configs[state.partition.topic_id])
        for state in states
        if state.log_start < state.flushed_end
        and state.partition.topic_id in configs
        and (state.holder == by.session_id or (state.holder is None and first == by.session_id))
    ]


def with_stable_end(state: PartitionState, flushed_end: int | None) -> PartitionState:
    """The partition up to the end that the local flusher knows as published: a commit whose response was lost is
    repeated, and must find its runs unchanged."""
    return state if flushed_end is None else replace(state, flushed_end=min(state.flushed_end, flushed_end))


def is_overdue(item: PartitionLog, *, now: float) -> bool:
    """Whether unflushed records are older than the topic's maximum compaction lag."""
    if not item.config.compacts or item.oldest_at is None or item.closed is not None:
        return False
    return now - item.oldest_at > item.config.max_compaction_lag_ms / 1000


class Compactor:
    def __init__(
        self, context: BrokerContext, *, stable_flushed: StableFlushedOffset, aborted_cleanup: AbortedCleanup
    ) -> None:
        dependencies, current_session = context.dependencies, context.session_manager.current
        self._dependencies = dependencies
        self._settings = dependencies.settings.compaction
        self._configs = context.catalog.configs
        self._current_session = current_session
        self._aborted_cleanup = aborted_cleanup
        self._damaged: dict[PartitionId, float] = {}
        """Partitions with damaged records, and when their compaction is retried."""
        self.rewriter = RunRewriter(
            dependencies, session=lambda: current_session().session.session_id, reader=context.reader
        )
        self.cleaner = LogCleaner(
            dependencies, rewriter=self.rewriter, stable_flushed=stable_flushed, aborted_cleanup=aborted_cleanup
        )
        self.merger = RunMerger(dependencies, rewriter=self.rewriter)

    def __repr__(self) -> str:
        return f"<Compactor {self.cleaner!r} {self.merger!r}>"

    async def run(self) -> None:
        try:
            while True:
                await self._dependencies.clock.sleep(self._dependencies.ids.jitter(self._settings.interval_s))
                try:
                    await self.run_once()
                except StreamhouseError as error:
                    log.warning("compaction failed, will retry", extra={"why": str(error)})
        finally:
            self.rewriter.close()

    async def run_once(self) -> None:
        """Compact the partitions that are due, then merge some small runs."""
        await self._flush_overdue()
        await self._aborted_cleanup.catch_up()
        partitions = await self._partitions()
        await self._clean([due for due in partitions if due.config.compacts])
        await self._merge(partitions)

    async def _partitions(self) -> list[DueForCompaction]:
        configs = await self._configs()
        flushed_ends = {item.partition: item.flushed_end for item in self._current_session().logs}
        states = [
            with_stable_end(state, flushed_ends.get(state.partition))
            for state in await self._dependencies.metadata.partitions(list(configs))
        ]
        roll = await self._dependencies.metadata.membership()
        return due_for_compaction(states, configs, by=self._current_session().session, sessions=roll.sessions)

    async def _clean(self, partitions: Sequence[DueForCompaction]) -> None:
        if not partitions:
            return
        topic_ids = list(dict.fromkeys(due.state.partition.topic_id for due in partitions))
        cleaned = await self._dependencies.metadata.cleaned(topic_ids)
        now = self._dependencies.clock.monotonic()
        self._damaged = {at: until for at, until in self._damaged.items() if until > now}
        for state, config in partitions:
            if state.partition in self._damaged:
                continue
            cleaned_to = cleaned.get(state.partition, 0)
            if cleaned_to < state.flushed_end:
                work = partial(self.cleaner.clean, state, config, cleaned_to=cleaned_to)
                await self._one_by_one(state.partition, partial(self._unless_damaged, state.partition, work))

    async def _unless_damaged(self, partition: PartitionId, work: Callable[[], Awaitable[bool]]) -> bool:
        """Run a pass unless the partition has damaged runs. A pass reads all runs, so it is not retried at every
        check."""
        try:
            return await work()
        except DamagedRecords:
            self._damaged[partition] = self._dependencies.clock.monotonic() + self._settings.damage_retry_s
            raise

    async def _merge(self, partitions: Sequence[DueForCompaction]) -> None:
        self.merger.forget_others(due.state.partition for due in partitions)
        left = self._settings.merges_at_once
        configs = {due.state.partition: due.config for due in partitions}
        async for state, page in self.merger.pages(due.state for due in partitions):
            if left <= 0:
                return
            work = partial(self.merger.merge, state, page, configs[state.partition])
            left -= await self._one_by_one(state.partition, work)

    async def _one_by_one(self, partition: PartitionId, work: Callable[[], Awaitable[bool]]) -> bool:
        """Run work for one partition; errors don't affect other partitions, unless the session is over. Nothing starts
        while it ends."""
        if self._current_session().end_reason is not None:
            return False
        try:
            return await work()
        except SessionLost:
            raise
        except StreamhouseError as error:
            log.warning("partition not rewritten", extra={"partition": str(partition), "why": str(error)})
            return False

    async def _flush_overdue(self) -> None:
        """Flush records that exceed their topic's maximum compaction lag, because only flushed records are
        compacted."""
        now = self._dependencies.clock.monotonic()
        overdue = [item for item in self._current_session().logs if is_overdue(item, now=now)]
        if not overdue:
            return
        try:
            async with asyncio.timeout(self._settings.interval_s):
                await asyncio.gather(*(item.wait_flushed(item.high_watermark) for item in overdue))
        except (TimeoutError, Retriable):
            return  # the next check finds what was flushed meanwhile
