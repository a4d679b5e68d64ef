"""Copying: what a topic has goes into another one, all of it or a part, as it is or with other keys and values.

Data path   a topic's segments -> Spark -> **copying** -> the sink's tasks -> another topic
Owns        which offsets are copied, in which steps; where records keep their partition
Leaves      reading to `datasource.data_source`, commits and going on to `jobs`

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
    asked: CopySpec,
    *,
    agents: str,
    start: "Callable[[], SparkSession]",
    loop: "LoopThread",
    job_id: str | None = None,
    step_bytes: int = STEP_BYTES,
    on_progress: OnProgress = lambda at: None,
) -> ReplayResult:
    """Copy, or go on with a copy of this job id; Spark is started when there is something to do."""
    if asked.source == asked.target:
        raise Misconfigured(f"a topic can't be copied into itself; topic={asked.source}")
    options = WriteOptions(agents=agents, topic=asked.target)
    job = Job("copy", job_id, msgspec.to_builtins(asked), options=options)
    memory = loop.run(_plan(job, asked, agents, step_bytes))
    plan = msgspec.convert(memory.plan, CopyPlan)
    if memory.done >= memory.steps or not any(_spans(asked.source, plan)):
        loop.run(_make_target(asked, agents))
        return ReplayResult(job=job.job_id, topic=asked.target, steps=memory.steps, resumed_at=memory.done)
    on_progress(STARTING)
    spark = start()

    def rows(step: int) -> "DataFrame":
        return copied(spark, asked, plan, agents=agents, step=step, steps=memory.steps)

    check_rows(lambda: rows(memory.done), topic=asked.target)
    loop.run(_make_target(asked, agents))
    return job.run(memory, rows, on_progress=on_progress, topic=asked.target)


# --- what is copied


async def _plan(job: Job, asked: CopySpec, address: str, step_bytes: int) -> JobState:
    """What an earlier run has decided, or else what is decided now; nothing is made or written."""
    async with AgentClient(address) as agents:
        await agents.check_agent()
        source = await get_topic(agents, asked.source)
        target = await find_topic(agents, asked.target)
        if target is not None:
            check_partitions(target, asked.partitions)
        partitions = (asked.partitions or source.partitions) if target is None else target.partitions
        known = await job.remembered(agents)
        if known is not None:
            return known
        starts, ends = await _edges(agents, asked, address)
        spans = [OffsetRange(place, starts[place], ends[place]) for place in starts if starts[place] < ends[place]]
        total = _stored_bytes((await agents.plan(spans)).partitions, ends) if spans else 0
        plan = CopyPlan(
            starts={str(place.partition): offset for place, offset in starts.items()},
            ends={str(place.partition): offset for place, offset in ends.items()},
            keeps_partitions=asked.key is None and partitions == source.partitions,
        )
        steps = count_steps(total, step_bytes)
        return JobState(asked=job.asked, steps=steps, done=0, total_bytes=total, plan=msgspec.to_builtins(plan))


async def _make_target(asked: CopySpec, address: str) -> None:
    """The target is there then: with partitions and settings of the source, where nothing else was asked for."""
    async with AgentClient(address) as agents:
        source = await get_topic(agents, asked.source)
        wanted = asked.partitions or source.partitions
        target = await create_topic(agents, asked.target, partitions=wanted, settings=source.settings)
        check_partitions(target, asked.partitions)


async def _edges(
    agents: AgentClient, asked: CopySpec, address: str
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    options = _reading(asked, address)
    log_bounds = await find_log_bounds(agents, options.subscription)
    starts = await find_starts(agents, options, log_bounds)
    times = await find_times(agents, options.end, log_bounds)
    ends = ends_at(options.end, log_bounds, times, report_loss=data_loss_reporter(fails=True))
    return starts, {place: max(end, starts[place]) for place, end in ends.items()}


def _reading(asked: CopySpec, address: str) -> ReadOptions:
    given = {"topic": asked.source, "agents": address, "startingOffsetsByTimestampStrategy": "latest"}
    if asked.from_ms is not None:
        given["startingTimestamp"] = str(asked.from_ms)
    if asked.until_ms is not None:
        given["endingTimestamp"] = str(asked.until_ms)
    return read_options(given, streaming=False)


def _stored_bytes(plans: "list[PartitionPlan]", ends: Mapping[TopicPartition, int]) -> int:
    return sum(run.length for plan in plans for run in plan.runs if run.base < ends[plan.topic_partition])


def _spans(topic: str, plan: CopyPlan) -> list[TopicPartition]:
    return [TopicPartition(topic, int(each)) for each in plan.starts if plan.starts[each] < plan.ends[each]]


# --- rows


def step_offsets(plan: CopyPlan, step: int, steps: int) -> tuple[dict[str, int], dict[str, int]]:
    """The offsets [start, end) of each partition in a step: as large a part of each, so that times stay together."""

    def at(number: str, part: int) -> int:
        return plan.starts[number] + (plan.ends[number] - plan.starts[number]) * part // steps

    return {each: at(each, step) for each in plan.starts}, {each: at(each, step + 1) for each in plan.starts}


def copied(
    spark: "SparkSession", asked: CopySpec, plan: CopyPlan, *, agents: str, step: int, steps: int
) -> "DataFrame":
    starts, ends = step_offsets(plan, step, steps)
    frame = (
        spark.read.format("streamhouse")
        .option("agents", agents)
        .option("topic", asked.source)
        .option("includeHeaders", "true")
        .option("startingOffsets", _json(asked.source, starts))
        .option("endingOffsets", _json(asked.source, ends))
        .load()
    )
    if asked.where is not None:
        frame = frame.where(asked.where)
    columns = [expression(frame, asked.key or "key", "key"), expression(frame, asked.value or "value", "value")]
    kept = (*COLUMNS, "partition") if plan.keeps_partitions else COLUMNS
    return frame.select(*columns, *kept)


def expression(frame: "DataFrame", text: str, name: str) -> Any:
    """A column of records: text and bytes are what they are, anything else is what its text is."""
    from pyspark.sql import functions

    column = functions.expr(text)
    kind = frame.select(column.alias(name)).schema[0].dataType.simpleString()
    return (column if kind in ("string", "binary") else column.cast("string")).alias(name)


def _json(topic: str, offsets: Mapping[str, int]) -> str:
    return msgspec.json.encode({topic: dict(offsets)}).decode()
