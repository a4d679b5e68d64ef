"""Copy job: copies the records of a topic, or a part of them, into another one, as they are or with other keys and
values.

Data path   a topic's segments -> Spark -> **copy_job** -> the sink's tasks -> another topic
Owns        which offsets are copied, in which steps; when records keep their partition
Leaves      reading to `datasource.data_source`, commits and resuming to `resumable_job`

Records keep key, value, headers and time byte for byte. Where nothing is re-keyed and both topics have as many
partitions they also keep their partition, and in any case the order in which their partition had them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from streamhouse.errors import Misconfigured
from streamhouse.model.names import TopicPartition
from streamhouse.spark.agents.client import AgentClient, OffsetRange, PartitionPlan
from streamhouse.spark.agents.resources import check_partitions, create_topic, find_topic, get_topic
from streamhouse.spark.datasource.offsets import data_loss_reporter, ends_at
from streamhouse.spark.datasource.read_options import ReadOptions, read_options
from streamhouse.spark.datasource.split_planner import find_log_bounds, find_starts, find_times
from streamhouse.spark.datasource.write_options import WriteOptions
from streamhouse.spark.maintenance.job import STARTING, OnProgress
from streamhouse.spark.replay.resumable_job import STEP_BYTES, Job, JobState, ReplayResult, check_rows, count_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from streamhouse.client.loop_thread import LoopThread

COLUMNS: Final = ("timestamp", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySpec:
    """A copy; times are of records, `until_ms` is the first that is left out. Expressions are Spark's SQL."""

    source: str
    target: str
    where: str | None = None
    key: str | None = None
    value: str | None = None
    partitions: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None


class CopyPlan(msgspec.Struct, frozen=True):
    """The offsets [start, end) of each partition, by its number."""

    starts: dict[str, int]
    ends: dict[str, int]
    keeps_partitions: bool


def run(
    spec: CopySpec,
    *,
    agents: str,
    start: "Callable[[], SparkSession]",
    loop: "LoopThread",
    job_id: str | None = None,
    step_bytes: int = STEP_BYTES,
    on_progress: OnProgress = lambda at: None,
) -> ReplayResult:
    """Copy, or resume a copy with this job id; Spark is started when there is something to do."""
    if spec.source == spec.target:
        raise Misconfigured(f"a topic can't be copied into itself; topic={spec.source}")
    options = WriteOptions(agents=agents, topic=spec.target)
    job = Job("copy", job_id, msgspec.to_builtins(spec), options=options)
    memory = loop.run(_plan(job, spec, agents, step_bytes))
    plan = msgspec.convert(memory.plan, CopyPlan)
    if memory.done >= memory.steps or not any(_spans(spec.source, plan)):
        loop.run(_make_target(spec, agents))
        return ReplayResult(job=job.job_id, topic=spec.target, steps=memory.steps, resumed_at=memory.done)
    on_progress(STARTING)
    spark = start()

    def rows(step: int) -> "DataFrame":
        return copied(spark, spec, plan, agents=agents, step=step, steps=memory.steps)

    check_rows(lambda: rows(memory.done), topic=spec.target)
    loop.run(_make_target(spec, agents))
    return job.run(memory, rows, on_progress=on_progress, topic=spec.target)


# --- what is copied


async def _plan(job: Job, spec: CopySpec, address: str, step_bytes: int) -> JobState:
    """The state of an earlier run, or a new one; nothing is created or written."""
    async with AgentClient(address) as agents:
        await agents.check_agent()
        source = await get_topic(agents, spec.source)
        target = await find_topic(agents, spec.target)
        if target is not None:
            check_partitions(target, spec.partitions)
        partitions = (spec.partitions or source.partitions) if target is None else target.partitions
        known = await job.remembered(agents)
        if known is not None:
            return known
        starts, ends = await _edges(agents, spec, address)
        spans = [
            OffsetRange(partition, starts[partition], ends[partition])
            for partition in starts
            if starts[partition] < ends[partition]
        ]
        total = _stored_bytes((await agents.plan(spans)).partitions, ends) if spans else 0
        plan = CopyPlan(
            starts={str(partition.partition): offset for partition, offset in starts.items()},
            ends={str(partition.partition): offset for partition, offset in ends.items()},
            keeps_partitions=spec.key is None and partitions == source.partitions,
        )
        steps = count_steps(total, step_bytes)
        return JobState(
            spec_digest=job.spec_digest, steps=steps, done=0, total_bytes=total, plan=msgspec.to_builtins(plan)
        )


async def _make_target(spec: CopySpec, address: str) -> None:
    """Create the target if it doesn't exist, with the source's settings, and its partitions unless the spec has a
    number."""
    async with AgentClient(address) as agents:
        source = await get_topic(agents, spec.source)
        partitions = spec.partitions or source.partitions
        target = await create_topic(agents, spec.target, partitions=partitions, settings=source.settings)
        check_partitions(target, spec.partitions)


async def _edges(
    agents: AgentClient, spec: CopySpec, address: str
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    options = _reading(spec, address)
    log_bounds = await find_log_bounds(agents, options.subscription)
    starts = await find_starts(agents, options, log_bounds)
    times = await find_times(agents, options.end, log_bounds)
    ends = ends_at(options.end, log_bounds, times, report_loss=data_loss_reporter(fails=True))
    return starts, {partition: max(end, starts[partition]) for partition, end in ends.items()}


def _reading(spec: CopySpec, address: str) -> ReadOptions:
    given = {"topic": spec.source, "agents": address, "startingOffsetsByTimestampStrategy": "latest"}
    if spec.from_ms is not None:
        given["startingTimestamp"] = str(spec.from_ms)
    if spec.until_ms is not None:
        given["endingTimestamp"] = str(spec.until_ms)
    return read_options(given, streaming=False)


def _stored_bytes(plans: "list[PartitionPlan]", ends: Mapping[TopicPartition, int]) -> int:
    return sum(run.length for plan in plans for run in plan.runs if run.base < ends[plan.topic_partition])


def _spans(topic: str, plan: CopyPlan) -> list[TopicPartition]:
    return [TopicPartition(topic, int(each)) for each in plan.starts if plan.starts[each] < plan.ends[each]]


# --- rows


def step_offsets(plan: CopyPlan, step: int, steps: int) -> tuple[dict[str, int], dict[str, int]]:
    """The offsets [start, end) of each partition in a step: an equal share of each, so that records of one time stay
    together."""

    def at(number: str, part: int) -> int:
        return plan.starts[number] + (plan.ends[number] - plan.starts[number]) * part // steps

    return {each: at(each, step) for each in plan.starts}, {each: at(each, step + 1) for each in plan.starts}


def copied(spark: "SparkSession", spec: CopySpec, plan: CopyPlan, *, agents: str, step: int, steps: int) -> "DataFrame":
    starts, ends = step_offsets(plan, step, steps)
    frame = (
        spark.read.format("streamhouse")
        .option("agents", agents)
        .option("topic", spec.source)
        .option("includeHeaders", "true")
        .option("startingOffsets", _json(spec.source, starts))
        .option("endingOffsets", _json(spec.source, ends))
        .load()
    )
    if spec.where is not None:
        frame = frame.where(spec.where)
    columns = [expression(frame, spec.key or "key", "key"), expression(frame, spec.value or "value", "value")]
    kept = (*COLUMNS, "partition") if plan.keeps_partitions else COLUMNS
    return frame.select(*columns, *kept)


def expression(frame: "DataFrame", text: str, name: str) -> Any:
    """A column of records: text and bytes stay as they are, anything else is cast to text."""
    from pyspark.sql import functions

    column = functions.expr(text)
    kind = frame.select(column.alias(name)).schema[0].dataType.simpleString()
    return (column if kind in ("string", "binary") else column.cast("string")).alias(name)


def _json(topic: str, offsets: Mapping[str, int]) -> str:
    return msgspec.json.encode({topic: dict(offsets)}).decode()
