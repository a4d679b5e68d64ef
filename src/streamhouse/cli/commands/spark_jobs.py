"""Commands that run one Spark job to its end: `streamhouse maintain merge|compact`, `copy` and `restore`."""

import sys
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from streamhouse.cli.commands.spark import Conf, Log, Master, interruptible, progress_bar, spark_job_options
from streamhouse.cli.dependencies import SparkJobOptions, dependencies_of
from streamhouse.cli.options import Agents, AsJson, complete_topic
from streamhouse.cli.output import counted, parse_time, print_json, print_line, print_note, size
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.clock import Ids, SystemClock

if TYPE_CHECKING:
    from streamhouse.cli.dependencies import JobKind
    from streamhouse.spark.maintenance.compaction_job import CompactionResult
    from streamhouse.spark.maintenance.job import JobResult
    from streamhouse.spark.replay.resumable_job import ReplayResult

app = command_group("Merge or compact the segments of a topic on Apache Spark.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]


@app.command(
    "merge",
    cls=Command,
    help=help_text(
        "Merge the small segments of a topic into large ones, so that reads need fewer requests. Readers and writers "
        "are not affected. Agents also merge in the background; use this for large topics.",
        "streamhouse maintain merge orders",
        "streamhouse maintain merge orders --agents 10.0.0.5:8080 --master 'local[8]' --json",
    ),
)
def merge(
    context: typer.Context,
    topic: Topic,
    at_least: Annotated[int, typer.Option(min=2, help="Minimum number of small runs to merge.")] = 2,
    agents: Agents = None,
    master: Master = None,
    conf: Conf = None,
    log: Log = None,
    as_json: AsJson = False,
) -> None:
    done = _run("merge", context, topic, spark_job_options(agents, master, conf, log), at_least=at_least)
    if as_json:
        print_json(_as_json(done))
    elif not done.objects:
        print_line(_nothing_message("merge", done, f": {counted(done.runs_after, 'run')}"))
    else:
        print_line(
            f"merged {done.topic}: {counted(done.runs_before, 'run')} became {done.runs_after:,};"
            f" {size(done.costs.read_bytes)} read with {counted(done.costs.gets, 'request')},"
            f" {counted(done.objects, 'object')} of {size(done.costs.written_bytes)} written",
            color="green",
        )


@app.command(
    "compact",
    cls=Command,
    help=help_text(
        "Compact a topic with cleanup.policy=compact: keep the latest record of each key. Works for any number of keys "
        "in bounded memory. Agents also compact in the background; use this for large topics.",
        "streamhouse maintain compact accounts",
        "streamhouse maintain compact accounts --agents 10.0.0.5:8080 --master 'local[8]' --json",
    ),
)
def compact(
    context: typer.Context,
    topic: Topic,
    agents: Agents = None,
    master: Master = None,
    conf: Conf = None,
    log: Log = None,
    as_json: AsJson = False,
) -> None:
    done = cast("CompactionResult", _run("compact", context, topic, spark_job_options(agents, master, conf, log)))
    if as_json:
        print_json(_as_json(done))
    elif not done.objects:
        print_line(_nothing_message("compact", done))
    else:
        print_line(
            f"compacted {done.topic}: {counted(done.dropped_records, 'record')} of"
            f" {done.records + done.dropped_records:,} removed;"
            f" {size(done.costs.read_bytes)} read with {counted(done.costs.gets, 'request')},"
            f" {counted(done.objects, 'object')} of {size(done.costs.written_bytes)} written",
            color="green",
        )


def _run(
    kind: "JobKind", context: typer.Context, topic: str, job_options: SparkJobOptions, *, at_least: int = 2
) -> "JobResult":
    with interruptible("rewritten segments stay; run the command again for the rest"), progress_bar() as on_progress:
        return dependencies_of(context).maintain(kind, topic, job_options, at_least=at_least, on_progress=on_progress)


def _nothing_message(kind: "JobKind", done: "JobResult", state: str = "") -> str:
    """Another process may have done the work; which one is not known."""
    if done.conflicts:
        return f"nothing left to {kind} in {done.topic}: another process did it meanwhile"
    return f"nothing to {kind} in {done.topic}{state}"


def _as_json(done: "JobResult") -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = asdict(done)
    return {**fields, "costs": msgspec.to_builtins(done.costs)}


COPY_HELP = help_text(
    "Copy a topic, or a part of it, to another topic on Apache Spark. Keys, values and partitions can be changed. "
    "Each record is written exactly once, even if the job is interrupted and resumed with --job.",
    "streamhouse copy orders orders-copy",
    "streamhouse copy orders orders-eu --where \"get_json_object(value, '$.region') = 'eu'\" --from -7d",
    "streamhouse copy orders by-customer --key \"get_json_object(value, '$.customer')\" --partitions 12 --job nightly",
)
RESTORE_HELP = help_text(
    "Load Parquet files, or an Iceberg or Delta table, into a topic on Apache Spark. A table with the columns of "
    "records (key, value, timestamp, headers) is loaded as records; rows of other tables become JSON objects.",
    "streamhouse restore ./backup --topic orders",
    "streamhouse restore s3://lake/orders --topic orders --key id --timestamp ordered_at",
    "streamhouse restore prod.shop.orders --kind iceberg --topic orders --job restore-1 --json",
)

Where = Annotated[str | None, typer.Option(metavar="SQL", help="Filter: a SQL condition.")]
Key = Annotated[str | None, typer.Option(metavar="EXPR", help="Key: a SQL expression.")]
Value = Annotated[str | None, typer.Option(metavar="EXPR", help="Value: a SQL expression.")]
Partitions = Annotated[int | None, typer.Option(min=1, help="Number of partitions, if the topic is created.")]
JobId = Annotated[
    str | None,
    typer.Option("--job", metavar="ID", help="Job id. Give it again to resume an interrupted job without duplicates."),
]


def copy(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FROM", show_default=False, autocompletion=complete_topic)],
    target: Annotated[str, typer.Argument(metavar="TO", show_default=False, autocompletion=complete_topic)],
    where: Where = None,
    key: Key = None,
    value: Value = None,
    partitions: Partitions = None,
    from_time: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Start time: 2026-11-15T12:00, 1731672000000 (ms) or -1h."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="End time, exclusive. Default: the current end of the topic."),
    ] = None,
    job: JobId = None,
    agents: Agents = None,
    master: Master = None,
    conf: Conf = None,
    log: Log = None,
    as_json: AsJson = False,
) -> None:
    if source == target:
        raise typer.BadParameter(f"a topic can't be copied into itself; topic={source}", param_hint="TO")
    spec = {
        "source": source,
        "target": target,
        "where": where,
        "key": key,
        "value": value,
        "partitions": partitions,
        "from_ms": _time(from_time, "--from"),
        "until_ms": _time(until, "--until"),
    }
    job_options, job_id = spark_job_options(agents, master, conf, log), _job_id(job)
    with _resumable(job_id), progress_bar() as on_progress:
        done = dependencies_of(context).copy(spec, job_options, job_id=job_id, on_progress=on_progress)
    _print_result(done, as_json=as_json)


def restore(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", show_default=False, help="Path, URL or catalog table.")],
    topic: Annotated[str, typer.Option("--topic", "-t", show_default=False, autocompletion=complete_topic)],
    kind: Annotated[
        Literal["parquet", "iceberg", "delta"] | None,
        typer.Option(help="Kind of SOURCE. Default: detected from its directory."),
    ] = None,
    where: Where = None,
    key: Key = None,
    value: Value = None,
    timestamp: Annotated[str | None, typer.Option(metavar="EXPR", help="Timestamp: a SQL expression.")] = None,
    subject: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Encode rows with the latest schema of this subject."),
    ] = None,
    value_format: Annotated[
        Literal["json", "avro"] | None,
        typer.Option("--format", help="Value format; avro needs --subject. Default: JSON, or the subject's."),
    ] = None,
    partitions: Partitions = None,
    job: JobId = None,
    agents: Agents = None,
    master: Master = None,
    conf: Conf = None,
    log: Log = None,
    as_json: AsJson = False,
) -> None:
    if value_format == "avro" and subject is None:
        raise typer.BadParameter("give --subject; its schema encodes the rows", param_hint="--format")
    spec = {
        "source": source,
        "topic": topic,
        "kind": kind,
        "where": where,
        "key": key,
        "value": value,
        "timestamp": timestamp,
        "partitions": partitions,
        "subject": subject,
    }
    job_options, job_id = spark_job_options(agents, master, conf, log), _job_id(job)
    with _resumable(job_id), progress_bar() as on_progress:
        done = dependencies_of(context).restore(spec, job_options, job_id=job_id, on_progress=on_progress)
    _print_result(done, as_json=as_json)


def _print_result(done: "ReplayResult", *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(done))
    elif done.resumed_at >= done.steps:
        print_line(f"job {done.job} is complete already: nothing was written to {done.topic}")
    else:
        more = f", after {counted(done.resumed_at, 'step')} of an earlier run" if done.resumed_at else ""
        print_line(
            f"wrote {counted(done.records, 'record')} ({size(done.written_bytes)}) to {done.topic}{more}", color="green"
        )


def _resumable(job_id: str) -> AbstractContextManager[None]:
    return interruptible(
        f"written records stay; to resume without duplicates, run the same command with --job {job_id}"
    )


def _job_id(job: str | None) -> str:
    """Return the job id; without one, generate it and print it, so that the job can be resumed."""
    if job is not None:
        return job
    generated = str(Ids().uuid())
    if sys.stderr.isatty():
        print_note(f"job {generated}: if it is interrupted, resume with --job {generated}")
    return generated


def _time(text: str | None, flag: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_time(text, now_ms=SystemClock().now_ms())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time such as 2026-11-15T12:00, 1731672000000 or -1h", param_hint=flag
        ) from None
