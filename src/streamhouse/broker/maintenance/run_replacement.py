"""Replacements: objects that jobs wrote take the place of runs, as those of agents do.

Data path   none: HTTP -> **replacements** -> one metadata transaction, behind the data path's back
Owns        whether a job's object is what it says, and is made for exactly the runs that stand there
Leaves      the transaction to the metadata store, what is written to the job, deleting the old objects to `retention`

Invariants  an object is named by rows only after it was found in the store, and unless it was given up before
            a replacement that is asked for again is answered as the first time
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.external_commits.commit_request import fetch_directory
from streamhouse.broker.maintenance.run_rewriter import AbortedCleanup
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.errors import CommitRefused, Internal, RunsChanged, Unavailable, UnknownTopic
from streamhouse.format.object_keys import parse_external_segment_key
from streamhouse.format.segment import DirectoryEntry
from streamhouse.model.names import PartitionId, SessionId, TopicId, TopicPartition
from streamhouse.model.segment import Run, SegmentCommit
from streamhouse.stores.metadata.commit_guard import check_replacement

log = logging.getLogger(__name__)

PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRun:
    """A run as the job's plan had it: offsets [base, end)."""

    object_key: str
    base: int
    end: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReplacementRequest:
    """`commit` in the place of exactly the `expected` runs; without it only `cleaned_to` is noted.

    Before that nobody is told any more of aborted transactions whose markers, at the offsets `spent`, are all that is
    left of them.
    """

    name: TopicPartition
    topic_id: TopicId
    expected: Sequence[ExpectedRun]
    commit: SegmentCommit | None
    cleaned_to: int | None
    spent: Sequence[int] = ()

    @property
    def partition(self) -> PartitionId:
        return PartitionId(self.topic_id, self.name.partition)


class RunReplacement:
    def __init__(
        self,
        dependencies: Dependencies,
        *,
        catalog: TopicCatalog,
        session: Callable[[], SessionId],
        reader: SegmentReader,
        forgetting: AbortedCleanup,
    ) -> None:
        self._dependencies = dependencies
        self._metadata = dependencies.metadata
        self._settings = dependencies.settings.placing
        self._catalog = catalog
        self._session = session
        self._reader = reader
        self._forgetting = forgetting
        self.replaced = 0
        self.came_late = 0
        """Replacements of runs that somebody else had changed."""

    def __repr__(self) -> str:
        return f"<RunReplacement replaced={self.replaced} came_late={self.came_late}>"

    async def replace(self, wanted: RunReplacementRequest) -> int:
        """Put an object in the place of runs; returns how many went.

        Raises `RunsChanged` where others stand there by now, `CommitRefused` for what can't be done whatever stands
        there, `UnknownTopic`, and `Retriable`: then it may have happened, and is asked for again.
        """
        topic = await self._catalog.find(wanted.name.topic)
        if not 0 <= wanted.name.partition < topic.partitions:
            raise UnknownTopic(wanted.name)
        if topic.topic_id != wanted.topic_id:  # deleted, and made again
            raise self._changed(wanted)
        if wanted.commit is None and (wanted.expected or (wanted.cleaned_to is None and not wanted.spent)):
            raise CommitRefused("without a segment only cleaned_to and spent can be asked for")
        await self._forgetting.forget_ended(wanted.partition, list(wanted.spent))
        if wanted.commit is not None:
            await self._replace(wanted, wanted.commit)
        if wanted.cleaned_to is not None:
            await self._metadata.mark_cleaned(wanted.partition, wanted.cleaned_to)
        return len(wanted.expected)

    async def _replace(self, wanted: RunReplacementRequest, commit: SegmentCommit) -> None:
        self._check_shape(wanted, commit)
        if await self._stands(wanted, commit):
            return
        rows = await self._rows(wanted)
        try:
            check_replacement(rows, commit)
        except Internal as error:
            raise CommitRefused(str(error)) from None
        # In this order: what isn't given up, and is there after that, stays for the grace time at least.
        if await self._metadata.known_among([commit.segment.key]):
            raise CommitRefused(f"the segment was given up, or belongs to other runs; key={commit.segment.key}")
        await self._check_object(commit)
        if not await self._register(rows, commit) or not await self._stands(wanted, commit):
            raise self._changed(wanted)
        self.replaced += 1
        self._reader.runs.forget(wanted.partition)
        log.info("runs replaced by a job", extra={"partition": str(wanted.name), "runs": len(rows)})

    def _check_shape(self, wanted: RunReplacementRequest, commit: SegmentCommit) -> None:
        runs, limit = len(wanted.expected) + len(commit.runs), self._settings.max_runs
        if runs > limit:
            raise CommitRefused(f"the replacement is too large; runs={runs} limit={limit} setting=placing.max_runs")
        if not wanted.expected or not commit.runs:
            raise CommitRefused("a replacement needs runs that go, and runs that come")
        if parse_external_segment_key(commit.segment.key) is None:
            raise CommitRefused(
                f"the segment's name is not placed/UUID/NUMBER/UNIQUE; key={commit.segment.key[:200]!r}"
            )

    async def _stands(self, wanted: RunReplacementRequest, commit: SegmentCommit) -> bool:
        """Whether the object is what stands there now."""
        base = wanted.expected[0].base
        found = await self._metadata.runs(wanted.partition, from_offset=base, limit=1)
        return bool(found) and (found[0].base, found[0].object_key) == (base, commit.segment.key)

    async def _rows(self, wanted: RunReplacementRequest) -> list[Run]:
        """The rows of the expected runs; raises `RunsChanged` unless they are all there."""
        rows: list[Run] = []
        while (left := len(wanted.expected) - len(rows)) > 0:
            offset = rows[-1].end if rows else wanted.expected[0].base
            page = await self._metadata.runs(wanted.partition, from_offset=offset, limit=min(left, PAGE))
            if not page:
                break
            rows += page
        if [_as_expected(run) for run in rows] != list(wanted.expected):
            raise self._changed(wanted)
        return rows

    async def _check_object(self, commit: SegmentCommit) -> None:
        directory = await fetch_directory(self._dependencies, commit.segment)
        if sorted(map(_run_text, commit.runs), key=_base) != sorted(directory.runs, key=_base):
            raise CommitRefused(f"the segment has other runs than the replacement says; key={commit.segment.key}")

    async def _register(self, rows: Sequence[Run], commit: SegmentCommit) -> bool:
        """The answer may be lost where the call was not; repeating it tells."""
        deadline = self._dependencies.deadline(self._settings.timeout_s)
        while True:
            try:
                return await self._metadata.replace_runs(self._session(), rows, commit)
            except Unavailable as error:
                log.warning("replacing runs failed, will be tried again", extra={"why": str(error)})
                await deadline.wait_to_retry(error)

    def _changed(self, wanted: RunReplacementRequest) -> RunsChanged:
        self.came_late += 1
        expected = wanted.expected
        ends = (expected[0].base, expected[-1].end) if expected else (0, 0)
        return RunsChanged(wanted.name, base=ends[0], end=ends[1])


def _as_expected(run: Run) -> ExpectedRun:
    return ExpectedRun(object_key=run.object_key, base=run.base, end=run.end, epoch=run.epoch)


def _base(entry: DirectoryEntry) -> int:
    return entry.base


def _run_text(run: Run) -> DirectoryEntry:
    return DirectoryEntry(
        partition=run.partition,
        epoch=run.epoch,
        base=run.stored_base,
        end=run.end,
        position=run.position,
        length=run.length,
        index_position=run.index_position,
        index_length=run.index_length,
        records=run.records,
        max_timestamp_ms=run.max_timestamp_ms,
    )
