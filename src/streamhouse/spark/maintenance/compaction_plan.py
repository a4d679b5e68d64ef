"""Compaction plan: what one pass of key compaction over a topic has to do, decided from its maintenance plan.

Data path   none: maintenance plan -> **compaction_plan** -> `retained_offsets` (what is scanned), `compaction_job`
            (what is rewritten)
Owns        how far partitions are compacted, which runs one task rewrites, what a task gets
Leaves      Kafka's rules about lags to `model.log_cleanup`; doing it to `compaction_job`
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from streamhouse.errors import Misconfigured
from streamhouse.format.compaction import CompactionPolicy
from streamhouse.format.transactions import AbortedTransactions
from streamhouse.model.log_cleanup import compactable_up_to, merge_limits, rewritten_together
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.spark.agents import client as reading_agents
from streamhouse.spark.agents.run_replacements import JobTime, MaintenancePlan, PartitionPlan, RunRow
from streamhouse.spark.datasource.split_planner import SegmentRange
from streamhouse.spark.datasource.split_reader import LIMIT_BYTES
from streamhouse.spark.maintenance.retained_offsets import OffsetGroup
from streamhouse.spark.maintenance.segment_rewrite import RewriteTask

MIB: Final = 1024 * 1024
GROUP_BYTES: Final = 64 * MIB
"""Bytes of the runs that one task rewrites."""
GROUP_RECORDS: Final = 4_000_000
"""Maximum records of a task, whose offsets it keeps in memory."""
MAX_RUNS: Final = 10_000
"""Runs that one object replaces: agents accept no more in one request."""


class CompactionPolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A `CompactionPolicy` as sent to a task. A batch that ends at `last_end`, the log's end, stays as an empty one."""

    end: int
    last_end: int
    now_ms: int
    later_now_ms: int
    delete_retention_ms: int
    aborted: tuple[AbortedTransaction, ...] = ()

    @property
    def terms(self) -> CompactionPolicy:
        return CompactionPolicy(
            end=self.end,
            now_ms=self.now_ms,
            later_now_ms=self.later_now_ms,
            delete_retention_ms=self.delete_retention_ms,
            limit_bytes=LIMIT_BYTES,
            aborted=AbortedTransactions(self.aborted),
        )


class CompactionTask(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that a task rewrites, and the compaction policy; sent by the driver."""

    work: RewriteTask
    terms: CompactionPolicyRow

    @property
    def bounds(self) -> OffsetGroup:
        runs = self.work.runs
        return OffsetGroup(self.work.partition, runs[0].base, runs[-1].end)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTarget:
    """How far a partition is compacted in this pass: offsets below `up_to`; the log ended at `last_end`."""

    up_to: int
    last_end: int


def compaction_targets(plan: MaintenancePlan, *, now_ms: int) -> dict[int, CompactionTarget]:
    """How far each partition is to be compacted; without those where nothing is new. Decides; touches nothing."""
    config = plan.config
    if not config.compacts:
        raise Misconfigured(
            f"the topic is not compacted; topic={plan.topic}"
            f" do=streamhouse topics alter {plan.topic} --config cleanup.policy=compact"
        )
    targets: dict[int, CompactionTarget] = {}
    for partition in plan.partitions:
        partition_id = PartitionId(plan.id, partition.partition)
        runs = [row.run(partition_id) for row in partition.runs]
        up_to = compactable_up_to(
            runs, config, cleaned_to=partition.cleaned_to, now_ms=now_ms, stable_end=partition.stable_end
        )
        if up_to is not None:
            targets[partition.partition] = CompactionTarget(up_to=up_to, last_end=runs[-1].end)
    return targets


def rewrite_tasks(
    plan: MaintenancePlan,
    targets: Mapping[int, CompactionTarget],
    *,
    job: str,
    now: JobTime,
    reached: Mapping[int, int],
) -> Iterator[CompactionTask]:
    """The remaining runs to rewrite: partition by partition, oldest first. `reached`: up to where it is done."""
    config = plan.config
    limits = merge_limits(config, at_least=1, below_bytes=0, max_bytes=GROUP_BYTES)
    for partition in sorted(plan.partitions, key=lambda each: each.partition):
        target = targets.get(partition.partition)
        if target is None:
            continue
        terms = CompactionPolicyRow(
            end=target.up_to,
            last_end=target.last_end,
            now_ms=now.earlier_ms,
            later_now_ms=now.later_ms,
            delete_retention_ms=config.delete_retention_ms,
        )
        aborted_transactions = partition.aborted_transactions
        rows = _left(partition, target, reached.get(partition.partition, 0))
        partition_id = PartitionId(plan.id, partition.partition)
        runs = [row.run(partition_id) for row in rows]
        start = 0
        for group in rewritten_together(runs, limits, max_runs=MAX_RUNS, max_records=GROUP_RECORDS):
            chosen = tuple(rows[start : start + len(group)])
            start += len(group)
            work = RewriteTask(
                job=job,
                store=plan.store,
                topic=plan.topic,
                topic_id=plan.topic_id,
                partition=partition.partition,
                runs=chosen,
            )
            aborted = aborted_transactions.within(group[0].base, group[-1].end)
            yield CompactionTask(work=work, terms=msgspec.structs.replace(terms, aborted=aborted))


def _left(partition: PartitionPlan, target: CompactionTarget, reached: int) -> list[RunRow]:
    """Where an agent merged runs across `up_to`, a run has records above it, which are left as they are."""
    if reached >= target.up_to:
        return []
    return [row for row in partition.runs if row.end > reached and row.base < target.up_to]


def segment_ranges(plan: MaintenancePlan, targets: Mapping[int, CompactionTarget]) -> Iterator[SegmentRange]:
    """The ranges whose keys are read."""
    for partition in plan.partitions:
        if (target := targets.get(partition.partition)) is None:
            continue
        topic_partition, aborted_transactions = (
            TopicPartition(plan.topic, partition.partition),
            partition.aborted_transactions,
        )
        for row in _left(partition, target, 0):
            start, end = max(row.base, partition.log_start), min(row.end, target.up_to)
            if start < end:
                run, aborted = _readable(row), aborted_transactions.within(row.base, row.end)
                weight = max(1.0, row.length)
                yield SegmentRange(
                    partition=topic_partition, start=start, end=end, weight=weight, run=run, aborted=aborted
                )


def _readable(row: RunRow) -> reading_agents.RunLocation:
    """The run as a plan for readers has it."""
    return reading_agents.RunLocation(
        key=row.key,
        base=row.base,
        end=row.end,
        stored_base=row.stored_base,
        position=row.position,
        length=row.length,
        index_position=row.index_position,
        index_length=row.index_length,
        records=row.records,
        max_timestamp_ms=row.max_timestamp_ms,
    )
