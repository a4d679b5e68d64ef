"""Copy and restore: `streamhouse copy`, `streamhouse restore`: records into a topic at full speed, each once.

Owns        the flags of both commands, what is said at the end
Leaves      the jobs to `spark.replaying`, what is common to jobs to `spark_jobs`
"""

import sys
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamhouse.cli.doors import doors_of
from streamhouse.cli.help import described
from streamhouse.cli.options import Agents, AsJson, complete_topic
from streamhouse.cli.output import note, print_json, say
from streamhouse.cli.spark_jobs import Conf, Log, Master, job_place, progress_bar, stoppable
from streamhouse.cli.words import counted, parse_when, size
from streamhouse.clock import Ids, SystemClock

if TYPE_CHECKING:
    from streamhouse.spark.replaying.jobs import Replayed

COPY_HELP = described(
    "Copy a topic into another one, on Apache Spark: all of it or a part, as it is, or with other keys, values and "
    "partitions. Each record comes once, also when the copy is killed and the same job is run again.",
    "streamhouse copy orders orders-copy",
    "streamhouse copy orders orders-eu --where \"get_json_object(value, '$.region') = 'eu'\" --from -7d",
    "streamhouse copy orders by-customer --key \"get_json_object(value, '$.customer')\" --partitions 12 --job nightly",
)
RESTORE_HELP = described(
    "Put Parquet files, or an Iceberg or Delta table, into a topic, on Apache Spark. A table with the columns that "
    "records have (key, value, timestamp, headers) is taken as records; of any other, rows become JSON objects.",
    "streamhouse restore ./backup --topic orders",
    "streamhouse restore s3://lake/orders --topic orders --key id --timestamp ordered_at",
    "streamhouse restore prod.shop.orders --kind iceberg --topic orders --job restore-1 --json",
)

Where = Annotated[str | None, typer.Option(metavar="SQL", help="Only records for which this is true.")]
Key = Annotated[str | None, typer.Option(metavar="EXPR", help="The key, as an expression of SQL.")]
Value = Annotated[str | None, typer.Option(metavar="EXPR", help="The value, as an expression of SQL.")]
Partitions = Annotated[int | None, typer.Option(min=1, help="Partitions of the topic where it is made.")]
JobId = Annotated[
    str | None,
    typer.Option("--job", metavar="ID", help="The job's id: given again, it goes on, and nothing comes twice."),
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
        str | None, typer.Option("--from", metavar="TIME", help="Begin at 2026-11-15T12:00, 1731672000000 or -1h.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="End before this time; default: with what is there.")
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
    asked = {
        "source": source,
        "target": target,
        "where": where,
        "key": key,
        "value": value,
        "partitions": partitions,
        "from_ms": _time(from_time, "--from"),
        "until_ms": _time(until, "--until"),
    }
    place, job_id = job_place(agents, master, conf, log), _told_job(job)
    with _going_on(job_id), progress_bar() as on_progress:
        done = doors_of(context).copy(asked, place, job_id=job_id, on_progress=on_progress)
    _tell(done, as_json=as_json)


def restore(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", show_default=False, help="A path, a URL, or a table of a catalog.")
    ],
    topic: Annotated[str, typer.Option("--topic", "-t", show_default=False, autocompletion=complete_topic)],
    kind: Annotated[
        Literal["parquet", "iceberg", "delta"] | None,
        typer.Option(help="What SOURCE is; default: what its folder looks like."),
    ] = None,
    where: Where = None,
    key: Key = None,
    value: Value = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="EXPR", help="The time of a record, as an expression of SQL.")
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Write rows with the latest schema of this subject: Avro, JSON or Protobuf."),
    ] = None,
    value_format: Annotated[
        Literal["json", "avro"] | None,
        typer.Option("--format", help="What rows become; avro needs --subject. Default: JSON, or the subject's."),
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
        raise typer.BadParameter("give --subject, whose schema rows are written with", param_hint="--format")
    asked = {
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
    place, job_id = job_place(agents, master, conf, log), _told_job(job)
    with _going_on(job_id), progress_bar() as on_progress:
        done = doors_of(context).restore(asked, place, job_id=job_id, on_progress=on_progress)
    _tell(done, as_json=as_json)


def _tell(done: "Replayed", *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(done))
    elif done.resumed_at >= done.steps:
        say(f"job {done.job} was done before: nothing was written to {done.topic}")
    else:
        more = f", after {counted(done.resumed_at, 'step')} of an earlier run" if done.resumed_at else ""
        say(
            f"wrote {counted(done.records, 'record')} ({size(done.written_bytes)}) to {done.topic}{more}", color="green"
        )


def _going_on(job_id: str) -> AbstractContextManager[None]:
    return stoppable(f"what was written stays; go on with the same command and --job {job_id}: nothing comes twice")


def _told_job(job: str | None) -> str:
    """An id that can be given again, should this run not come to its end."""
    if job is not None:
        return job
    made = str(Ids().uuid())
    if sys.stderr.isatty():
        note(f"job {made}: should it be interrupted, go on with --job {made}")
    return made


def _time(text: str | None, flag: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_when(text, now_ms=SystemClock().now_ms())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time such as 2026-11-15T12:00, 1731672000000 or -1h", param_hint=flag
        ) from None
