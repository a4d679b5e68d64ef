"""RunReplacement: replaces runs by an object that a Spark job wrote, as compaction in an agent does.

Data path   none: HTTP -> **run_replacement** -> one metadata transaction
Owns        whether a job's object matches the request, and replaces exactly the current runs
Leaves      the transaction to the metadata store; the content to the job; deleting the old objects to `retention`

Invariants  an object is registered only after it was read from the store, and never after it has expired
            a repeated request gets the same response as the first one
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
    """A run of the job's plan: offsets [base, end)."""

    object_key: str
    base: int
    end: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReplacementRequest:
    """Replace exactly the `expected` runs by `commit`; without it only `cleaned_to` is stored.

    Before that, the rows of aborted transactions are deleted of which only the markers, at the offsets `spent`, are
    left.
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
        aborted_cleanup: AbortedCleanup,
    ) -> None:
        self._dependencies = dependencies
        self._metadata = dependencies.metadata
        self._settings = dependencies.settings.placing
        self._catalog = catalog
        self._session = session
        self._reader = reader
        self._aborted_cleanup = aborted_cleanup
        self.replaced = 0
        self.came_late = 0
        """Replacements of runs that had changed meanwhile."""

    def __repr__(self) -> str:
        return f"<RunReplacement replaced={self.replaced} came_late={self.came_late}>"

    async def replace(self, request: RunReplacementRequest) -> int:
        """Replace runs by an object; returns the number of replaced runs.

        Raises `RunsChanged` if the runs have changed, `CommitRefused` for an invalid request, `UnknownTopic`, and
        `Retriable`: then it may have happened, and the job must retry.
        """
        topic = await self._catalog.find(request.name.topic)
        if not 0 <= request.name.partition < topic.partitions:
            raise UnknownTopic(request.name)
        if topic.topic_id != request.topic_id:  # deleted, and made again
            raise self._changed(request)
        if request.commit is None and (request.expected or (request.cleaned_to is None and not request.spent)):
            raise CommitRefused("without a segment only cleaned_to and spent can be set")
        await self._aborted_cleanup.forget_ended(request.partition, list(request.spent))
        if request.commit is not None:
            await self._replace(request, request.commit)
        if request.cleaned_to is not None:
            await self._metadata.mark_cleaned(request.partition, request.cleaned_to)
        return len(request.expected)

    async def _replace(self, request: RunReplacementRequest, commit: SegmentCommit) -> None:
        self._check_shape(request, commit)
        if await self._is_registered(request, commit):
            return
        rows = await self._rows(request)
        try:
            check_replacement(rows, commit)
        except Internal as error:
            raise CommitRefused(str(error)) from None
        # In this order: an object that has not expired, and exists after that, stays for the grace time at least.
        if await self._metadata.known_among([commit.segment.key]):
            if await self._is_registered(request, commit):
                return  # by an attempt whose answer was lost, and that was still on its way when this one began
            raise CommitRefused(f"the segment has expired, or belongs to other runs; key={commit.segment.key}")
        await self._check_object(commit)
        if not await self._register(rows, commit) or not await self._is_registered(request, commit):
            raise self._changed(request)
        self.replaced += 1
        self._reader.runs.forget(request.partition)
        log.info("runs replaced by a job", extra={"partition": str(request.name), "runs": len(rows)})

    def _check_shape(self, request: RunReplacementRequest, commit: SegmentCommit) -> None:
        runs, limit = len(request.expected) + len(commit.runs), self._settings.max_runs
        if runs > limit:
            raise CommitRefused(f"the replacement is too large; runs={runs} limit={limit} setting=placing.max_runs")
        if not request.expected or not commit.runs:
            raise CommitRefused("a replacement needs old runs and new runs")
        if parse_external_segment_key(commit.segment.key) is None:
            raise CommitRefused(
                f"the segment's name is not placed/UUID/NUMBER/UNIQUE; key={commit.segment.key[:200]!r}"
            )

    async def _is_registered(self, request: RunReplacementRequest, commit: SegmentCommit) -> bool:
        """Whether the object has replaced the runs already."""
        base = request.expected[0].base
        first = await self._metadata.runs(request.partition, from_offset=base, limit=1)
        return bool(first) and (first[0].base, first[0].object_key) == (base, commit.segment.key)

    async def _rows(self, request: RunReplacementRequest) -> list[Run]:
        """The rows of the expected runs; raises `RunsChanged` unless they are all there."""
        rows: list[Run] = []
        while (left := len(request.expected) - len(rows)) > 0:
            offset = rows[-1].end if rows else request.expected[0].base
            page = await self._metadata.runs(request.partition, from_offset=offset, limit=min(left, PAGE))
            if not page:
                break
            rows += page
        if [_as_expected(run) for run in rows] != list(request.expected):
            raise self._changed(request)
        return rows

    async def _check_object(self, commit: SegmentCommit) -> None:
        directory = await fetch_directory(self._dependencies, commit.segment)
        if sorted(map(_run_text, commit.runs), key=_base) != sorted(directory.runs, key=_base):
            raise CommitRefused(f"the segment's runs differ from the replacement's; key={commit.segment.key}")

    async def _register(self, rows: Sequence[Run], commit: SegmentCommit) -> bool:
        """Run the transaction; a retry after a lost response returns its outcome."""
        deadline = self._dependencies.deadline(self._settings.timeout_s)
        while True:
            try:
                return await self._metadata.replace_runs(self._session(), rows, commit)
            except Unavailable as error:
                log.warning("replacing runs failed, will retry", extra={"why": str(error)})
                await deadline.wait_to_retry(error)

    def _changed(self, request: RunReplacementRequest) -> RunsChanged:
        self.came_late += 1
        expected = request.expected
        ends = (expected[0].base, expected[-1].end) if expected else (0, 0)
        return RunsChanged(request.name, base=ends[0], end=ends[1])


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
