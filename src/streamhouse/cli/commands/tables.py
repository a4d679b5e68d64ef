"""Commands `streamhouse tables …`: topics as tables of Iceberg, Delta or Parquet.

Owns the options and the output Leaves requests to `table_requests`, pipelines to supervisors, the contents of a table
to `spark.lake`
"""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streamhouse.cli.commands.pipeline_requests import PHASES, UNKNOWN, phase_of, wait_until_running
from streamhouse.cli.commands.table_requests import create_table, drop_table, fetch_tables, find_table, whole_location
from streamhouse.cli.dependencies import dependencies_of, installed, run
from streamhouse.cli.options import Agents, AsJson, Yes, confirm, http_addresses
from streamhouse.cli.output import (
    Column,
    count,
    print_json,
    print_line,
    print_note,
    print_properties,
    print_result,
    print_table,
    size,
)
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.errors import StreamhouseError
from streamhouse.model.identifiers import split_identifiers
from streamhouse.model.table import WITH_NUMBER, Connector, parse_partitions
from streamhouse.sql.lake_reconciliation import FORMATS
from streamhouse.sql.lake_tables import UPSERT, LakeTableSpec
from streamhouse.sql.options import parse_duration_ms, parse_file_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamhouse.spark.lake.table import TableSummary

app = command_group("Manage lake tables of topics: Iceberg, Delta or Parquet.")

COLUMNS: Final = (
    Column("name", style="bold"),
    Column("format"),
    Column("mode"),
    Column("phase", paint=PHASES),
    Column("lag", "right"),
    Column("location", fold=True),
    Column("error", style="red", fold=True),
)
NO_COMMIT: Final = "no commit yet"
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


def _checked_by(read: "Callable[[str], Any]") -> "Callable[[str | None], str | None]":
    """Return a callback that validates an option and leaves its text unchanged."""

    def check(text: str | None) -> str | None:
        try:
            if text is not None:
                read(text)
        except ValueError as error:
            raise typer.BadParameter(f"{text!r} is not valid; give {error}") from None
        return text

    return check


def _check_format(text: str) -> str:
    if text.lower() not in FORMATS:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(FORMATS)}")
    return text.lower()


Topic = Annotated[str, typer.Option(help="Source topic.", show_default=False)]
Format = Annotated[
    str, typer.Option("--format", metavar="iceberg|delta|parquet", callback=_check_format, show_default=False)
]
Mode = Annotated[
    str, typer.Option(metavar="append|upsert", help="Append every record, or upsert and delete rows by key.")
]
Key = Annotated[str | None, typer.Option(metavar="COLUMN,…", help="Key columns, for --mode upsert.")]
PartitionBy = Annotated[
    str | None,
    typer.Option(
        metavar="TRANSFORM,…",
        callback=_checked_by(parse_partitions),
        help="country, year(ts), month(ts), day(ts), hour(ts); for Iceberg also bucket(16, id), truncate(4, name).",
    ),
]
Location = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="A directory or s3://bucket/prefix. Default: lake/NAME in the agents' data directory or --store.",
    ),
]
CommitInterval = Annotated[
    str, typer.Option(metavar="TIME", callback=_checked_by(parse_duration_ms), help="Time between commits.")
]
FileSize = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", callback=_checked_by(parse_file_size), help="Target size of data files. Default: 128MiB."
    ),
]
ExpireSnapshots = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", callback=_checked_by(parse_duration_ms), help="Retention of old snapshots. Default: 7d."
    ),
]
DeadLetters = Annotated[
    str | None,
    typer.Option(metavar="TOPIC", help="Topic for records that cannot be written. Default: NAME.dead-letters."),
]
From = Annotated[str | None, typer.Option("--from", metavar="POSITION", help="Start position. Default: earliest.")]
Wait = Annotated[
    bool,
    typer.Option("--wait", help="Wait until the pipeline runs; fail if it does not. The first commit comes later."),
]


@app.command(
    "create",
    cls=Command,
    help=help_text(
        "Create a lake table that follows a topic: all records that have a value, or with --mode upsert the latest of "
        "each key. A pipeline writes it, so a supervisor must run: streamhouse pipelines run. Run the command again to "
        "change the commit interval, file size, snapshot expiry or dead letters. Topic, format, mode, key, "
        "partitioning and location can't change.",
        "streamhouse tables create orders_lake --topic orders --format iceberg",
        "streamhouse tables create customers_now --topic customers --format delta --mode upsert --key id",
        "streamhouse tables create clicks_lake --topic clicks --format parquet --partition-by 'day(ts)' "
        "--location s3://lake/clicks",
    ),
)
def create(
    context: typer.Context,
    name: Name,
    topic: Topic,
    fmt: Format,
    mode: Mode = "append",
    key: Key = None,
    partition_by: PartitionBy = None,
    location: Location = None,
    commit_interval: CommitInterval = "1m",
    file_size: FileSize = None,
    expire_snapshots: ExpireSnapshots = None,
    dead_letters: DeadLetters = None,
    starting: From = None,
    wait: Wait = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    keys = _key_columns(key or "")
    _check_mode(fmt, mode, keys)
    _check_partitions(fmt, partition_by)
    options = {"partition_by": partition_by, "file_size": file_size, "expire_snapshots": expire_snapshots}
    table = LakeTableSpec(
        name=name,
        topic=topic,
        connector=fmt,
        location="" if location is None else whole_location(location),
        mode=mode,
        key=keys,
        commit_interval=commit_interval,
        dead_letters=dead_letters,
        starting=starting,
        options={option: value for option, value in options.items() if value is not None},
    )
    created = run(create_table(dependencies_of(context), http_addresses(agents), table))
    fields = {"name": name, "location": created.location, "outcome": created.outcome}
    print_result(fields, f"{created.outcome} table {name} at {created.location}", as_json)
    if wait:
        run(wait_until_running(dependencies_of(context), http_addresses(agents), [name]))


def _check_mode(fmt: str, mode: str, key: tuple[str, ...]) -> None:
    """Reject options that can never work before any request is sent."""
    if mode not in ("append", UPSERT):
        raise typer.BadParameter(f"{mode!r} is neither append nor upsert", param_hint="--mode")
    if mode == UPSERT and fmt == Connector.PARQUET:
        raise typer.BadParameter(
            "rows in Parquet files don't change; take --format iceberg or delta, or --mode append", param_hint="--mode"
        )
    if mode == UPSERT and not key:
        raise typer.BadParameter("--mode upsert needs key columns", param_hint="--key")
    if mode != UPSERT and key:
        raise typer.BadParameter("--key needs --mode upsert", param_hint="--key")


def _key_columns(text: str) -> tuple[str, ...]:
    try:
        return split_identifiers(text) if text.strip(" ,") else ()
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not valid; give {error}", param_hint="--key") from None


def _check_partitions(fmt: str, text: str | None) -> None:
    for field in parse_partitions(text) if text else ():
        if field.transform in WITH_NUMBER and fmt != Connector.ICEBERG:
            raise typer.BadParameter(f"only Iceberg has {field.transform}, and not {fmt}", param_hint="--partition-by")


# --- watching


@app.command(
    "list",
    cls=Command,
    help=help_text("List lake tables with the state of their pipelines.", "streamhouse tables list"),
)
def list_tables(context: typer.Context, agents: Agents = None, as_json: AsJson = False) -> None:
    tables = run(fetch_tables(dependencies_of(context), http_addresses(agents)))
    if as_json:
        print_json(tables)
    elif not tables:
        print_line(
            "no lake tables yet; make one of a topic: streamhouse tables create NAME --topic TOPIC --format iceberg"
        )
    else:
        print_table(COLUMNS, map(_row, tables))


def _row(table: dict[str, Any]) -> list[str]:
    pipeline = table["pipeline"] or {}
    status = pipeline.get("status") or {}
    lag = status.get("lag_records")
    return [
        table["name"],
        table["format"],
        table["mode"],
        phase_of(pipeline) if pipeline else UNKNOWN,
        UNKNOWN if lag is None else count(lag),
        table["location"] or UNKNOWN,
        str(status.get("error") or table["refused"] or ""),
    ]


@app.command(
    "describe",
    cls=Command,
    help=help_text(
        "Show a lake table: columns, rows, files and pipeline. Rows and files are read from this machine, which must "
        "reach the location.",
        "streamhouse tables describe orders_lake",
    ),
)
def describe(context: typer.Context, name: Name, agents: Agents = None, as_json: AsJson = False) -> None:
    table = find_table(run(fetch_tables(dependencies_of(context), http_addresses(agents))), name)
    described_, why = _table_summary(table)
    if as_json:
        print_json({**table, "contents": described_, "unknown": why})
        return
    pipeline = table["pipeline"] or {}
    status = pipeline.get("status") or {}
    print_properties(
        [
            ("name", name),
            ("format", table["format"]),
            ("mode", table["mode"]),
            ("location", table["location"] or UNKNOWN),
            ("options", ", ".join(f"{key}={value}" for key, value in table["options"].items())),
            ("written by", f"{pipeline['name']}, {phase_of(pipeline)}" if pipeline else "no pipeline"),
            ("lag", UNKNOWN if status.get("lag_records") is None else f"{count(status['lag_records'])} records"),
            ("dead letters", count(status.get("dead_letters") or 0)),
            *([("defined by", f"the settings of {table['asked_by']}")] if table["asked_by"] else []),
            *([("rejected change", str(table["refused"]))] if table["refused"] else []),
            *([("error", str(status["error"]))] if status.get("error") else []),
            *_contents(described_),
        ]
    )
    if described_ is not None:
        print_line()
        print_table((Column("column", style="bold"), Column("type")), list(described_["columns"].items()))
    elif why:
        print_note(why)


def _contents(contents: dict[str, Any] | None) -> list[tuple[str, str]]:
    if contents is None:
        return []
    return [
        ("version", contents["version"] or UNKNOWN),
        ("rows", count(contents["rows"])),
        ("files", f"{count(contents['files'])}, {size(contents['size_bytes'])}"),
    ]


def _table_summary(table: dict[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    """Return the contents of the table according to its metadata, or why they can't be read."""
    if table["location"] is None and "catalog" not in table["options"]:
        return None, NO_COMMIT
    with installed("lake"):
        from streamhouse.spark.lake.table_options import describe_table
    try:
        summary: TableSummary | None = describe_table(table["name"], table["format"], table["options"])
    except (StreamhouseError, OSError) as error:
        return None, str(error)
    if summary is None:
        return None, NO_COMMIT if table["pipeline"] else f"no table found; location={table['location']}"
    return {
        "columns": dict(summary.columns),
        "rows": summary.rows,
        "files": summary.files,
        "size_bytes": summary.size_bytes,
        "version": summary.version,
        "progress": dict(summary.progress),
    }, None


@app.command(
    "drop",
    cls=Command,
    help=help_text(
        "Drop a lake table and its pipeline. Its files stay.",
        "streamhouse tables drop orders_lake",
        "streamhouse tables drop orders_lake --yes",
    ),
)
def drop(
    context: typer.Context,
    name: Name,
    yes: Yes = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    confirm(f"Stop writing the table {name}? Its files stay.", yes)
    location = run(drop_table(dependencies_of(context), http_addresses(agents), name))
    print_result({"dropped": name, "location": location}, f"dropped {name}; its files stay at {location}", as_json)
