"""OrphanSurvey: objects and log entries without a row in the metadata store.

Data path   none: an operator's command, while no agent runs
Owns        finding unregistered segments, logs of sessions that have not ended, and rows of missing objects
Leaves      the choice to `model.orphan_adoption`, changes to `orphan_adoption`
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from streamhouse.broker.wal.disk_recovery import DiskWalRecovery
from streamhouse.errors import CorruptObject
from streamhouse.format.object_keys import (
    PLACED_PREFIX,
    REWRITTEN_SEQUENCES,
    SEGMENTS_PREFIX,
    WAL_PREFIX,
    parse_external_segment_key,
    parse_segment_key,
    parse_wal_key,
)
from streamhouse.format.run_index import RunIndex, decode_run_index
from streamhouse.format.segment import Directory, DirectoryEntry, MoreBytesNeeded, RunLayout, read_directory
from streamhouse.format.wal_file import WalEntry
from streamhouse.format.wal_object import SEAL_BYTES, read_object
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.model.orphan_adoption import Candidate
from streamhouse.model.segment import Run
from streamhouse.model.topic import Topic
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.objects.base import ObjectMeta, ObjectStore

SUFFIX_BYTES: Final = 64 * 1024
PAGE: Final = 1000

OnProgress = Callable[[str, int], None]
"""Reports progress: what is being read, and how many so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """A batch in a log, and the session of the log."""

    session_id: SessionId
    entry: WalEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableObject:
    """An object that can't be registered, and why. Those that agents could delete as orphans are copied."""

    key: str
    size_bytes: int
    why: str


@dataclass(slots=True, kw_only=True)
class OrphanSurvey:
    topics: Sequence[Topic] = ()
    states: dict[PartitionId, PartitionState] = field(default_factory=dict)
    named: dict[PartitionId, list[Run]] = field(default_factory=dict)
    """Registered runs whose objects exist."""
    missing: list[Run] = field(default_factory=list)
    """Registered runs whose objects are missing."""
    candidates: dict[PartitionId, list[Candidate]] = field(default_factory=dict)
    entries: dict[PartitionId, list[LogEntry]] = field(default_factory=dict)
    unusable: list[UnusableObject] = field(default_factory=list)
    objects: dict[str, ObjectMeta] = field(default_factory=dict)
    indexes: dict[tuple[str, PartitionId], RunIndex] = field(default_factory=dict)
    read_logs: set[SessionId] = field(default_factory=set)
    """Sessions that have not ended whose logs were read completely, without damage."""


class OrphanSurveyor:
    def __init__(
        self, metadata: MetadataStore, objects: ObjectStore, *, disk: DiskWalRecovery | None, on_progress: OnProgress
    ) -> None:
        self._metadata = metadata
        self._objects = objects
        self._disk = disk
        self._on_progress = on_progress

    async def survey(self) -> OrphanSurvey:
        survey = OrphanSurvey()
        for prefix in (SEGMENTS_PREFIX, PLACED_PREFIX):
            async for meta in self._objects.list(prefix):
                survey.objects[meta.key] = meta
        await self._read_rows(survey)
        await self._read_segments(survey)
        await self._read_logs(survey)
        return survey

    # --- rows

    async def _read_rows(self, survey: OrphanSurvey) -> None:
        survey.topics = await self._metadata.topics()
        states = await self._metadata.partitions([topic.topic_id for topic in survey.topics])
        survey.states = {state.partition: state for state in states}
        for number, partition in enumerate(survey.states):
            self._on_progress("partitions", number + 1)
            named: list[Run] = []
            offset = 0
            while page := await self._metadata.runs(partition, from_offset=offset, limit=PAGE):
                named += [run for run in page if run.object_key in survey.objects]
                survey.missing += [run for run in page if run.object_key not in survey.objects]
                offset = page[-1].end
            survey.named[partition] = named

    # --- segments

    async def _read_segments(self, survey: OrphanSurvey) -> None:
        keys = list(survey.objects)
        for first in range(0, len(keys), PAGE):
            page = keys[first : first + PAGE]
            known = await self._metadata.known_among(page)
            for number, key in enumerate(page):
                self._on_progress("objects", first + number + 1)
                if key not in known:
                    await self._read_segment(survey, survey.objects[key])

    async def _read_segment(self, survey: OrphanSurvey, meta: ObjectMeta) -> None:
        name = parse_segment_key(meta.key)
        if name is None:
            if parse_external_segment_key(meta.key) is not None:
                why = "a Spark job wrote it, and its offsets stood in the database alone"
                survey.unusable.append(UnusableObject(key=meta.key, size_bytes=meta.size_bytes, why=why))
            return
        # A listing has the size of an encrypted object, `head` that of the segment in it.
        meta = survey.objects[meta.key] = await self._objects.head(meta.key)
        try:
            directory, tail = await self._directory(meta)
            for entry in directory.runs:
                index = await self._index(meta, entry, tail)
                run = RunLayout(entry=entry).run(meta.key)
                survey.indexes[meta.key, entry.partition] = index
                candidate = Candidate(run=run, is_rewritten=name.sequence >= REWRITTEN_SEQUENCES)
                survey.candidates.setdefault(entry.partition, []).append(candidate)
        except CorruptObject as error:
            survey.unusable.append(UnusableObject(key=meta.key, size_bytes=meta.size_bytes, why=str(error)))

    async def _directory(self, meta: ObjectMeta) -> tuple[Directory, bytes]:
        tail = await self._objects.get_suffix(meta.key, SUFFIX_BYTES)
        directory = read_directory(tail, size_bytes=meta.size_bytes, key=meta.key)
        if isinstance(directory, MoreBytesNeeded):
            tail = await self._objects.get_suffix(meta.key, directory.bytes)
            directory = read_directory(tail, size_bytes=meta.size_bytes, key=meta.key)
        if isinstance(directory, MoreBytesNeeded):
            raise CorruptObject(meta.key, why="directory can't be read")
        return directory, tail

    async def _index(self, meta: ObjectMeta, entry: DirectoryEntry, tail: bytes) -> RunIndex:
        start, end = entry.index_position, entry.index_position + entry.index_length
        first = meta.size_bytes - len(tail)
        data = tail[start - first : end - first] if start >= first else None
        if data is None:
            data = await self._objects.get_range(meta.key, start, end)
        index = decode_run_index(data, key=meta.key)
        if (index.partition, index.stored_base, index.stored_end) != (entry.partition, entry.base, entry.end):
            raise CorruptObject(meta.key, why="directory and run index differ")
        return index

    # --- logs

    async def _read_logs(self, survey: OrphanSurvey) -> None:
        """Read the logs of sessions that have not ended; ended sessions have flushed everything."""
        logs: dict[SessionId, list[ObjectMeta]] = {}
        async for meta in self._objects.list(WAL_PREFIX):
            name = parse_wal_key(meta.key)
            if name is not None and meta.size_bytes > SEAL_BYTES:
                logs.setdefault(name.session_id, []).append(meta)
        on_disk = await self._disk.dead_sessions(SessionId("")) if self._disk is not None else []
        unended = {session.session_id: session.wal for session in (await self._metadata.membership()).sessions}
        known = await self._metadata.sessions_among(sorted({*logs, *on_disk}))
        for session_id, metas in logs.items():
            if session_id in unended or session_id not in known:
                await self._read_objects(survey, session_id, metas)
        survey.read_logs |= {session_id for session_id, wal in unended.items() if wal == "object"}
        for session_id in on_disk:
            if session_id in unended or session_id not in known:
                await self._read_disk(survey, session_id)
        damaged = {name.session_id for each in survey.unusable if (name := parse_wal_key(each.key)) is not None}
        survey.read_logs -= damaged

    async def _read_objects(self, survey: OrphanSurvey, session_id: SessionId, metas: Sequence[ObjectMeta]) -> None:
        for number, meta in enumerate(metas):
            self._on_progress("log objects", number + 1)
            name = parse_wal_key(meta.key)
            assert name is not None
            data = await self._objects.get_range(meta.key, 0, meta.size_bytes)
            read = read_object(memoryview(data), session=session_id, sequence=name.sequence)
            for entry in read.entries:
                survey.entries.setdefault(entry.partition, []).append(LogEntry(session_id=session_id, entry=entry))
            if read.damage:
                why = f"{len(read.damage)} damaged parts; {len(read.entries)} entries could be read"
                survey.unusable.append(UnusableObject(key=meta.key, size_bytes=meta.size_bytes, why=why))

    async def _read_disk(self, survey: OrphanSurvey, session_id: SessionId) -> None:
        assert self._disk is not None
        async with self._disk.read(session_id) as reading:
            async for entry in reading.entries():
                survey.entries.setdefault(entry.partition, []).append(LogEntry(session_id=session_id, entry=entry))
            if reading.damage.is_clean:
                survey.read_logs.add(session_id)
