"""Maintain: `streamhouse maintain …`: rewrite a topic's segments once, now, to the end.

Owns        what is said at the end
Leaves      the jobs to `spark.maintenance`, flags and the progress bar to `spark_jobs`
"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from streamhouse.cli.doors import doors_of
from streamhouse.cli.help import HelpfulCommand, described, group
from streamhouse.cli.options import Agents, AsJson
from streamhouse.cli.output import print_json, say
from streamhouse.cli.spark_jobs import Conf, JobPlace, Log, Master, job_place, progress_bar, stoppable
from streamhouse.cli.words import counted, size

if TYPE_CHECKING:
    from streamhouse.cli.doors import JobKind
    from streamhouse.spark.maintenance.compacting import Compacted
    from streamhouse.spark.maintenance.jobs import Done

app = group("Rewrite a topic's segments on Apache Spark: fewer and larger, or only the latest of each key.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]


@app.command(
    "merge",
    cls=HelpfulCommand,
    help=described(
        "Move what a topic holds in many small pieces into large objects, so that it is read with few requests. "
        "Nothing changes for who reads or writes meanwhile. Agents merge by themselves, too: this is for what is much.",
        "streamhouse maintain merge orders",
        "streamhouse maintain merge orders --agents 10.0.0.5:8080 --master 'local[8]' --json",
    ),
)
def merge(
    context: typer.Context,
    topic: Topic,
    at_least: Annotated[
        int, typer.Option(min=2, help="Leave what is in fewer small pieces than so many, or would hardly grow.")
    ] = 2,
    agents: Agents = None,
    master: Master = None,
    conf: Conf = None,
    log: Log = None,
    as_json: AsJson = False,
) -> None:
    done = _run("merge", context, topic, job_place(agents, master, conf, log), at_least=at_least)
    if as_json:
        print_json(_as_json(done))
    elif not done.objects:
        say(_nothing("merge", done, f": {counted(done.runs_after, 'run')}"))
    else:
        say(
            f"merged {done.topic}: {counted(done.runs_before, 'run')} became {done.runs_after:,};"
            f" {size(done.costs.read_bytes)} read with {counted(done.costs.gets, 'request')},"
            f" {counted(done.objects, 'object')} of {size(done.costs.written_bytes)} written",
            color="green",
        )


@app.command(
    "compact",
    cls=HelpfulCommand,
    help=described(
        "Keep only the latest record of each key, as Kafka does for topics whose cleanup.policy is compact. Any number "
        "of keys, in bounded memory. Agents compact by themselves, too: this is for what is much.",
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
    done = cast("Compacted", _run("compact", context, topic, job_place(agents, master, conf, log)))
    if as_json:
        print_json(_as_json(done))
    elif not done.objects:
        say(_nothing("compact", done))
    else:
        say(
            f"compacted {done.topic}: {counted(done.dropped_records, 'record')} of"
            f" {done.records + done.dropped_records:,} went;"
            f" {size(done.costs.read_bytes)} read with {counted(done.costs.gets, 'request')},"
            f" {counted(done.objects, 'object')} of {size(done.costs.written_bytes)} written",
            color="green",
        )


def _run(kind: "JobKind", context: typer.Context, topic: str, place: JobPlace, *, at_least: int = 2) -> "Done":
    with stoppable("what was rewritten stays; run it again for the rest"), progress_bar() as on_progress:
        return doors_of(context).maintain(kind, topic, place, at_least=at_least, on_progress=on_progress)


def _nothing(kind: "JobKind", done: "Done", state: str = "") -> str:
    """Agents, a supervisor or another command may have been quicker: who it was is not known here."""
    if done.conflicts:
        return f"nothing left to {kind} in {done.topic}: somebody else did it meanwhile"
    return f"nothing to {kind} in {done.topic}{state}"


def _as_json(done: "Done") -> dict[str, Any]:
    import msgspec

    told: dict[str, Any] = asdict(done)
    return {**told, "costs": msgspec.to_builtins(done.costs)}
