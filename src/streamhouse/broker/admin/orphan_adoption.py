"""OrphanAdoption: registers the objects of a survey, so that a lost or older database doesn't lose records.

Data path   none: an operator's command, while no agent runs
Owns        what is registered, recreated, set aside and reported; the order of the steps
Leaves      finding objects to `orphan_survey`, the choice of runs to `model.orphan_adoption`, rows to the metadata
            store

Objects are written first, then rows, and the generation last: an interrupted run leaves the stores as they were, with a
few more objects, and can be repeated.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from streamhouse.broker.admin.orphan_survey import LogEntry, OnProgress, OrphanSurvey, OrphanSurveyor, UnusableObject
from streamhouse.broker.catalog.topic_name_objects import TopicName, read_topic_names
from streamhouse.broker.cluster.store_identity import (
    COMMAND,
    mismatch_error,
    new_cluster_id,
    read_both,
    write_cluster_id,
    write_generation,
)
from streamhouse.broker.partition.producer_state import FIRST_KEY_ID, ProducerTable
from streamhouse.broker.wal.disk_recovery import DiskWalRecovery
from streamhouse.clock import Clock, Ids
from streamhouse.config import Settings
from streamhouse.errors import Misconfigured
from streamhouse.format.batch import read_header
from streamhouse.format.block import decode_block
from streamhouse.format.object_keys import aside_key, segment_key
from streamhouse.format.producer_snapshot import decode_producers, encode_producers
from streamhouse.format.run_index import decode_run_index
from streamhouse.format.run_rewrite import batches_of
from streamhouse.format.segment import RunInput, encode_segment
from streamhouse.model.cluster_identity import BucketIdentity, DatabaseIdentity, Pairing, check_pairing
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId
from streamhouse.model.orphan_adoption import Adoption, Coverage, EpochEnds, EpochRange, RunChoice, choose_runs
from streamhouse.model.segment import Run, SegmentCommit, SegmentObject
from streamhouse.model.topic import Topic
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.objects.base import ObjectExists, ObjectStore

EPOCH_MARGIN: Final = 1_000_000
"""Epochs skipped for leaders that may have existed without storing anything."""
PRODUCER_MARGIN: Final = 1_000_000
KEEP_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
"""Settings of a recreated topic: its own were lost with the database, so nothing is deleted before an operator sets
them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionFinding:
    """A line of the report: the action for offsets [base, end) of a partition, or for a whole object."""

    action: str
    topic: str
    partition: int
    base: int
    end: int
    records: int
    source: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionReport:
    pairing: str
    cluster_id: str
    findings: Sequence[AdoptionFinding]
    new_topics: Sequence[str]
    is_applied: bool
    generation: int

    def count(self, action: str) -> int:
        return sum(finding.records for finding in self.findings if finding.action == action)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRun:
    """Consecutive batches of logs that become one run."""

    partition: PartitionId
    epoch: Epoch
    entries: tuple[LogEntry, ...]

    @property
    def base(self) -> int:
        return self.entries[0].entry.base

    @property
    def end(self) -> int:
        return self.entries[-1].entry.end

    @property
    def records(self) -> int:
        return sum(read_header(each.entry.batch).record_count for each in self.entries)


@dataclass(slots=True, kw_only=True)
class AdoptionPlan:
    """The actions, decided from a survey."""

    choices: dict[PartitionId, RunChoice] = field(default_factory=dict)
    log_runs: list[LogRun] = field(default_factory=list)
    refused_entries: list[tuple[LogEntry, str]] = field(default_factory=list)
    topics: dict[TopicId, Topic] = field(default_factory=dict)
    """Topics to recreate."""
    left: dict[PartitionId, str] = field(default_factory=dict)
    """Partitions of topics that are not recreated."""
    replaced: list[Run] = field(default_factory=list)
    """Rows to delete, because the registered objects contain their offsets: rows of older or missing objects."""
    missing: list[Run] = field(default_factory=list)
    """Rows of missing objects whose records are in no other object."""


def make_plan(
    survey: OrphanSurvey, names: Mapping[TopicId, TopicName], *, makes_topics: bool, now_ms: int
) -> AdoptionPlan:
    plan = AdoptionPlan()
    there = {topic.topic_id: topic for topic in survey.topics}
    partitions = sorted({*survey.candidates, *survey.entries})
    lost = {partition.topic_id for partition in partitions} - there.keys()
    if makes_topics:
        plan.topics = _topics_to_make(lost, partitions, names, {topic.name for topic in survey.topics}, now_ms)
    for partition in partitions:
        if partition.topic_id in lost and not makes_topics:
            plan.left[partition] = "its topic is not there: it was deleted"
        else:
            _plan_partition(plan, survey, partition)
    plan.replaced += [run for choice in plan.choices.values() for run in choice.replaced]
    _plan_missing(plan, survey)
    return plan


def _plan_missing(plan: AdoptionPlan, survey: OrphanSurvey) -> None:
    held: dict[PartitionId, Coverage] = {}
    kept = [run for choice in plan.choices.values() for run in choice.kept]
    registered: list[Run | LogRun] = [*kept, *plan.log_runs]
    for run in registered:
        held.setdefault(run.partition, Coverage()).add(run.base, run.end)
    for row in survey.missing:
        holding = held.get(row.partition)
        if holding is not None and holding.overlaps(row.base, row.end):
            plan.replaced.append(row)
        if holding is None or not holding.holds(row.base, row.end):
            plan.missing.append(row)


def _topics_to_make(
    lost: set[TopicId],
    partitions: Sequence[PartitionId],
    names: Mapping[TopicId, TopicName],
    taken: set[str],
    now_ms: int,
) -> dict[TopicId, Topic]:
    created: dict[TopicId, Topic] = {}
    newest_first = sorted(lost, key=lambda each: (-names[each].created_at_ms if each in names else 1, str(each)))
    for topic_id in newest_first:
        snapshot = names.get(topic_id)
        name = snapshot.name if snapshot is not None and snapshot.name not in taken else f"recovered-{topic_id}"
        taken.add(name)
        seen = max(partition.partition for partition in partitions if partition.topic_id == topic_id) + 1
        created[topic_id] = Topic(
            topic_id=topic_id,
            name=name,
            partitions=max(seen, snapshot.partitions if snapshot is not None else 0),
            overrides=dict(KEEP_ALL),
            created_at_ms=snapshot.created_at_ms if snapshot is not None else now_ms,
        )
    return created


def _plan_partition(plan: AdoptionPlan, survey: OrphanSurvey, partition: PartitionId) -> None:
    named, candidates = survey.named.get(partition, []), survey.candidates.get(partition, [])
    entries = survey.entries.get(partition, [])
    log_start = survey.states[partition].log_start if partition in survey.states else 0
    runs = [*named, *(each.run for each in candidates)]
    epoch_ends = EpochEnds(
        [
            *(EpochRange(epoch=run.epoch, base=run.base, end=run.end) for run in runs),
            *(EpochRange(epoch=each.entry.epoch, base=each.entry.base, end=each.entry.end) for each in entries),
        ]
    )
    choice = choose_runs(named, candidates, log_start=log_start, epoch_ends=epoch_ends)
    plan.choices[partition] = choice
    gone = {run.base for run in choice.replaced}
    held = Coverage((run.base, run.end) for run in (*(run for run in named if run.base not in gone), *choice.kept))
    taken: list[LogEntry] = []
    for each in sorted(entries, key=lambda each: (each.entry.base, -each.entry.epoch)):
        entry = each.entry
        if entry.end <= log_start or held.holds(entry.base, entry.end):
            continue
        if entry.end > (end := epoch_ends.end_of(entry.epoch)):
            plan.refused_entries.append((each, f"a later leader went on at offset {end}"))
        elif held.overlaps(entry.base, entry.end):
            plan.refused_entries.append((each, "it overlaps runs that are registered"))
        else:
            held.add(entry.base, entry.end)
            taken.append(each)
    plan.log_runs += _log_runs(partition, taken, [*named, *choice.kept])


def _log_runs(partition: PartitionId, taken: Sequence[LogEntry], runs: Sequence[Run]) -> list[LogRun]:
    """Group batches of an epoch into runs, split at registered runs; gaps remain gaps."""
    bases = sorted(run.base for run in runs)
    log_runs: list[LogRun] = []
    group: list[LogEntry] = []
    for each in taken:
        if group and (
            each.entry.epoch != group[-1].entry.epoch
            or any(group[-1].entry.end <= base <= each.entry.base for base in bases)
        ):
            log_runs.append(LogRun(partition=partition, epoch=group[0].entry.epoch, entries=tuple(group)))
            group = []
        group.append(each)
    if group:
        log_runs.append(LogRun(partition=partition, epoch=group[0].entry.epoch, entries=tuple(group)))
    return log_runs


class OrphanAdopter:
    def __init__(
        self, metadata: MetadataStore, objects: ObjectStore, settings: Settings, *, clock: Clock, ids: Ids
    ) -> None:
        self._metadata = metadata
        self._objects = objects
        self._settings = settings
        self._clock = clock
        self._ids = ids

    async def require_no_agents(self) -> None:
        """Raise `Misconfigured` while a session is alive: its agent would not see the changes."""
        roll = await self._metadata.membership()
        for session in roll.sessions:
            if session.expires_at_ms > roll.now_ms:
                raise Misconfigured(
                    f"an agent uses these stores; node={session.node_id} kafka={session.kafka} "
                    f"for_s={(session.expires_at_ms - roll.now_ms) / 1000:.0f} "
                    "do=stop all agents, wait until the sessions of killed ones are over, and run it again"
                )

    async def apply(
        self, survey: OrphanSurvey, plan: AdoptionPlan, bucket: BucketIdentity, database: DatabaseIdentity
    ) -> int:
        """Apply the plan; returns the new generation."""
        for topic in plan.topics.values():
            await self._metadata.create_topic(topic)
        for topic in survey.topics:
            await self._grow(topic, plan)
        for unusable in survey.unusable:
            await self._set_aside(unusable)
        commits = [*await self._commits(survey, plan), *await self._write_logs(survey, plan)]
        refused = {each.session_id for each, _ in plan.refused_entries}
        epochs = [run.epoch for runs in survey.named.values() for run in runs]
        epochs += [each.run.epoch for candidates in survey.candidates.values() for each in candidates]
        epochs += [each.entry.epoch for entries in survey.entries.values() for each in entries]
        cluster_id = bucket.cluster_id or database.cluster_id or new_cluster_id(self._ids)
        unended = {session.session_id for session in (await self._metadata.membership()).sessions}
        await self._metadata.adopt(
            Adoption(
                cluster_id=cluster_id,
                commits=commits,
                replaced=plan.replaced,
                epoch=max(epochs, default=0) + EPOCH_MARGIN,
                producer_id=_newest_producer(survey) + PRODUCER_MARGIN,
                generation=max(bucket.newest, database.begun),
                ended=sorted((survey.read_logs & unended) - refused),
            )
        )
        firsts: dict[PartitionId, int] = {}
        for run in (run for commit in commits for run in commit.runs if run.partition.topic_id in plan.topics):
            firsts[run.partition] = min(run.base, firsts.get(run.partition, run.base))
        if firsts:  # records below had been deleted
            await self._metadata.advance_log_start(firsts)
        await write_cluster_id(self._objects, cluster_id)
        generation = await self._metadata.begin_generation()
        await write_generation(self._objects, generation, f"{cluster_id} {COMMAND}")
        await self._metadata.store_generation(generation)
        return generation

    async def _grow(self, topic: Topic, plan: AdoptionPlan) -> None:
        seen = [partition.partition for partition in plan.choices if partition.topic_id == topic.topic_id]
        needed = max(seen, default=0) + 1
        if needed > topic.partitions:
            await self._metadata.add_partitions(topic.topic_id, from_count=topic.partitions, to_count=needed)

    async def _set_aside(self, unusable: UnusableObject) -> None:
        """Copy the objects to keys that are never deleted as orphans."""
        data = await self._objects.get_range(unusable.key, 0, unusable.size_bytes)
        try:
            await self._objects.put_new(aside_key(unusable.key), [data])
        except ObjectExists:
            return

    async def _commits(self, survey: OrphanSurvey, plan: AdoptionPlan) -> list[SegmentCommit]:
        runs: dict[str, list[Run]] = {}
        aborted: dict[str, dict[PartitionId, tuple[AbortedTransaction, ...]]] = {}
        for partition, choice in plan.choices.items():
            for run in choice.kept:
                runs.setdefault(run.object_key, []).append(run)
                if transactions := await self._aborted(survey, choice, run):
                    aborted.setdefault(run.object_key, {})[partition] = transactions
        return [
            SegmentCommit(
                segment=SegmentObject(
                    key=key,
                    size_bytes=survey.objects[key].size_bytes,
                    created_at_ms=survey.objects[key].modified_at_ms,
                ),
                runs=tuple(kept),
                aborted=aborted.get(key, {}),
            )
            for key, kept in runs.items()
        ]

    async def _aborted(self, survey: OrphanSurvey, choice: RunChoice, run: Run) -> tuple[AbortedTransaction, ...]:
        """The transactions that markers in a run abort. The index of most runs shows that there are none."""
        index = survey.indexes[run.object_key, run.partition]
        if not any(each.has_transactions for each in decode_producers(index.producers, key=run.object_key)):
            return ()
        table = await self._producers_before(survey, [*survey.named.get(run.partition, []), *choice.kept], run.base)
        for block in index.blocks:
            data = await self._objects.get_range(run.object_key, block.position, block.position + block.stored_bytes)
            batches = batches_of(decode_block(data, block, key=run.object_key))
            batches_at = [(header := read_header(each), header.base_offset, each) for each in batches]
            table.replay(batches_at, now_ms=self._clock.now_ms())
        return tuple(table.aborted)

    async def _producers_before(self, survey: OrphanSurvey, runs: Sequence[Run], offset: int) -> ProducerTable:
        """The producer state of the nearest run of an agent before the offset."""
        settings = self._settings.producers
        make = partial(ProducerTable, limit=settings.max_per_partition, expire_ms=round(settings.expire_s * 1000))
        before = [run for run in runs if run.end <= offset and run.base == run.stored_base]
        if not before:
            return make()
        run = max(before, key=lambda each: each.end)
        index = survey.indexes.get((run.object_key, run.partition))
        if index is None:
            end = run.index_position + run.index_length
            data = await self._objects.get_range(run.object_key, run.index_position, end)
            index = decode_run_index(data, key=run.object_key)
        return make(decode_producers(index.producers, key=run.object_key))

    async def _write_logs(self, survey: OrphanSurvey, plan: AdoptionPlan) -> list[SegmentCommit]:
        """Write an object with the runs of the logs, under an unused session id."""
        session_id, now_ms = SessionId(f"s-{self._ids.token()}"), self._clock.now_ms()
        commits: list[SegmentCommit] = []
        tables: dict[PartitionId, tuple[ProducerTable, int]] = {}
        for number, log_run in enumerate(plan.log_runs, start=1):
            choice = plan.choices[log_run.partition]
            runs = [*survey.named.get(log_run.partition, []), *choice.kept]
            table, end = tables.get(log_run.partition, (None, 0))
            if table is None or any(end <= run.base < log_run.base for run in runs):
                table = await self._producers_before(survey, runs, log_run.base)
            table.aborted.clear()
            batches_at = [
                (read_header(each.entry.batch), each.entry.base, each.entry.batch) for each in log_run.entries
            ]
            table.replay(batches_at, now_ms=now_ms)
            tables[log_run.partition] = table, log_run.end
            run_input = RunInput(
                partition=log_run.partition,
                epoch=log_run.epoch,
                base=log_run.base,
                end=log_run.end,
                batches=[each.entry.batch for each in log_run.entries],
                producers=encode_producers(table.entries(now_ms=now_ms)),
            )
            encode = partial(encode_segment, [run_input], block_bytes=self._settings.flush.block_bytes)
            encoded = await asyncio.get_running_loop().run_in_executor(None, encode)
            key = segment_key(session_id, number)
            await self._objects.put_new(key, encoded.body)
            commits.append(
                SegmentCommit(
                    segment=SegmentObject(key=key, size_bytes=encoded.size_bytes, created_at_ms=now_ms),
                    runs=tuple(layout.run(key) for layout in encoded.layouts),
                    aborted={log_run.partition: tuple(table.aborted)} if table.aborted else {},
                )
            )
        return commits


def _newest_producer(survey: OrphanSurvey) -> int:
    ids = [
        each.producer_id
        for (key, _), index in survey.indexes.items()
        for each in decode_producers(index.producers, key=key)
    ]
    ids += [read_header(each.entry.batch).producer_id for entries in survey.entries.values() for each in entries]
    return max((each for each in ids if each < FIRST_KEY_ID), default=0)


def describe(survey: OrphanSurvey, plan: AdoptionPlan) -> list[AdoptionFinding]:
    """The report's lines, by topic, partition and offset."""
    names = {topic.topic_id: topic.name for topic in (*survey.topics, *plan.topics.values())}

    def of(run: Run, action: str, why: str = "") -> AdoptionFinding:
        return AdoptionFinding(
            action=action,
            topic=names.get(run.partition.topic_id, str(run.partition.topic_id)),
            partition=run.partition.partition,
            base=run.base,
            end=run.end,
            records=run.records,
            source=run.object_key,
            why=why,
        )

    rows = [of(run, "missing", "a row names it, and the object is gone") for run in plan.missing]
    for choice in plan.choices.values():
        rows += [of(run, "register") for run in choice.kept]
        rows += [of(run, "leave", "registered runs hold the same offsets") for run in choice.covered]
        rows += [of(each.run, "leave", each.why) for each in choice.refused]
    for partition, why in plan.left.items():
        rows += [of(each.run, "leave", why) for each in survey.candidates.get(partition, [])]
    for log_run in plan.log_runs:
        rows.append(
            AdoptionFinding(
                action="register",
                topic=names[log_run.partition.topic_id],
                partition=log_run.partition.partition,
                base=log_run.base,
                end=log_run.end,
                records=log_run.records,
                source=f"log of {', '.join(sorted({each.session_id for each in log_run.entries}))}",
            )
        )
    for each, why in plan.refused_entries:
        rows.append(
            AdoptionFinding(
                action="leave",
                topic=names[each.entry.partition.topic_id],
                partition=each.entry.partition.partition,
                base=each.entry.base,
                end=each.entry.end,
                records=read_header(each.entry.batch).record_count,
                source=f"log of {each.session_id}",
                why=why,
            )
        )
    rows.sort(key=lambda each: (each.topic, each.partition, each.base, each.end))
    aside = [
        AdoptionFinding(
            action="set aside", topic="", partition=-1, base=0, end=0, records=0, source=each.key, why=each.why
        )
        for each in survey.unusable
    ]
    return rows + aside


async def recover_stores(
    metadata: MetadataStore,
    objects: ObjectStore,
    *,
    disk: DiskWalRecovery | None,
    settings: Settings,
    clock: Clock,
    ids: Ids,
    apply: bool,
    is_alone: bool,
    take_over: str | None,
    on_progress: OnProgress,
) -> AdoptionReport:
    """Find unreferenced objects and, with `apply`, register them; `is_alone`: no agent can use these stores now.

    Raise `Misconfigured` while agents are alive, and for stores of different clusters unless `take_over` is the cluster
    id of the object store.
    """
    before, bucket, after = await read_both(metadata, objects)
    pairing = check_pairing(before, bucket, after)
    require_adoptable(pairing, bucket, after, take_over=take_over)
    adopter = OrphanAdopter(metadata, objects, settings, clock=clock, ids=ids)
    if apply and not is_alone:
        await adopter.require_no_agents()
    survey = await OrphanSurveyor(metadata, objects, disk=disk, on_progress=on_progress).survey()
    # If the database is as new as the object store, an unknown topic was deleted.
    makes_topics = pairing is not Pairing.SAME
    plan = make_plan(survey, await read_topic_names(objects), makes_topics=makes_topics, now_ms=clock.now_ms())
    findings = describe(survey, plan)
    generation = await adopter.apply(survey, plan, bucket, after) if apply else after.begun
    return AdoptionReport(
        pairing=str(pairing),
        cluster_id=bucket.cluster_id or after.cluster_id or "",
        findings=findings,
        new_topics=sorted(topic.name for topic in plan.topics.values()),
        is_applied=apply,
        generation=generation,
    )


def require_adoptable(
    pairing: Pairing, bucket: BucketIdentity, database: DatabaseIdentity, *, take_over: str | None
) -> None:
    """Raise `Misconfigured` for stores of different clusters, unless the operator has named the object store's id."""
    if pairing is Pairing.FOREIGN and take_over != bucket.cluster_id:
        raise Misconfigured(
            f"{mismatch_error(pairing, bucket, database)}; only where the other database is lost for good, "
            f"`{COMMAND} --take-over {bucket.cluster_id}` registers its records here"
        )
