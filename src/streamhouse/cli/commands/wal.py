"""Commands `streamhouse wal …`: inspect write-ahead log files; list damaged logs, and discard one.

Owns the tables and the JSON of the three commands Leaves the file format and damage detection to `format.wal_file`;
keeping and deleting logs to the agents
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, Yes, http_addresses
from streamhouse.cli.output import (
    Column,
    count,
    counted,
    format_time,
    print_json,
    print_line,
    print_properties,
    print_result,
    print_table,
    size,
)
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.client.types import DamagedLog, PartitionLoss
from streamhouse.errors import CorruptObject, Rejected

if TYPE_CHECKING:
    from streamhouse.format.wal_file import FileSummary

app = command_group("Inspect write-ahead logs and manage damaged ones.")


@app.command(
    "inspect",
    cls=Command,
    help=help_text(
        "Inspect a WAL file, or all below a directory: entries, offsets per partition, damage. A torn tail is normal "
        "after a crash; damage in the middle gives exit code 1.",
        "streamhouse wal inspect data/wal",
        "streamhouse wal inspect FILE --json",
    ),
)
def inspect(path: Annotated[Path, typer.Argument(metavar="PATH", show_default=False)], as_json: AsJson = False) -> None:
    from streamhouse.format.wal_file import summarize

    summaries = [(file, summarize(file.read_bytes())) for file in wal_files(path)]
    if as_json:
        print_json({"files": [_file_json(file, summary) for file, summary in summaries]})
    elif not summaries:
        print_line(f"no WAL files in {path}")
    else:
        for file, summary in summaries:
            _show(file, summary)
    broken = [file for file, summary in summaries if any(not damage.tail for damage in summary.damage)]
    if broken:
        raise CorruptObject(str(broken[0]), why=f"damage inside {counted(len(broken), 'file')}, not only at the tail")


def wal_files(path: Path) -> list[Path]:
    """Return the file itself, or every non-empty file below a folder (lock files are empty), without spare files, which
    are flushed."""
    if not path.is_dir():
        return [path]
    return sorted(f for f in path.rglob("*") if f.is_file() and f.stat().st_size and f.suffix != ".spare")


def _file_json(file: Path, summary: "FileSummary") -> dict[str, object]:
    header = summary.header
    return {
        "file": str(file),
        "bytes": summary.size_bytes,
        "session": header.session if header else None,
        "sequence": header.sequence if header else None,
        "entries": summary.entries,
        "damage": [{"position": d.position, "bytes": d.length, "tail": d.tail} for d in summary.damage],
        "partitions": [
            {
                "topic_id": str(partition.topic_id),
                "partition": partition.partition,
                "epoch": entries.epoch,
                "base": entries.base,
                "end": entries.end,
                "entries": entries.entries,
                "bytes": entries.batch_bytes,
            }
            for partition, entries in sorted(summary.partitions.items())
        ],
    }


def _show(file: Path, summary: "FileSummary") -> None:
    header = summary.header
    session = f"{header.session}, file {header.sequence}" if header else "unknown: the header can't be read"
    print_properties(
        [
            ("file", str(file)),
            ("session", session),
            ("size", size(summary.size_bytes)),
            ("entries", count(summary.entries)),
            ("damage", counted(len(summary.damage), "range") if summary.damage else "none"),
        ]
    )
    for damage in summary.damage:
        what = "torn tail, cut at the next start" if damage.tail else "DAMAGED, skipped at the next start"
        print_line(f"  {what}: {counted(damage.length, 'byte')} at {damage.position}", color="red")
    if summary.partitions:
        _show_partitions(summary)
    print_line()


def _show_partitions(summary: "FileSummary") -> None:
    columns = [
        Column("topic id", style="cyan"),
        Column("part", "right"),
        Column("offsets", "right"),
        Column("epoch", "right", drop=2),
        Column("entries", "right", drop=1),
        Column("size", "right"),
    ]
    rows = [
        [
            str(partition.topic_id),
            str(partition.partition),
            f"[{entries.base}, {entries.end})",
            str(entries.epoch),
            count(entries.entries),
            size(entries.batch_bytes),
        ]
        for partition, entries in sorted(summary.partitions.items())
    ]
    print_line()
    print_table(columns, rows, indent=2)


# --- damaged logs


@app.command(
    "damaged",
    cls=Command,
    help=help_text(
        "List damaged write-ahead logs of dead sessions: which offsets are lost, and where the log is stored. Intact "
        "entries are recovered. Shows logs in the object store and on the disk of the agent that receives the "
        "request.",
        "streamhouse wal damaged",
        "streamhouse wal damaged --agents 127.0.0.1:8081 --json",
    ),
)
def damaged(context: typer.Context, agents: Agents = None, as_json: AsJson = False) -> None:
    logs = run(_damaged(dependencies_of(context), http_addresses(agents)))
    if as_json:
        print_json({"logs": [as_fields(log) for log in logs]})
    elif not logs:
        print_line("no damaged write-ahead log is kept")
    else:
        for log in logs:
            _show_damaged(log)


@app.command(
    "discard",
    cls=Command,
    help=help_text(
        "Delete a damaged write-ahead log. Shows what is deleted and asks for confirmation unless --yes is given. "
        "Lost records can't be salvaged afterwards.",
        "streamhouse wal discard SESSION",
        "streamhouse wal discard SESSION --yes",
    ),
)
def discard(
    context: typer.Context,
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Session id, as shown by `wal damaged`.", show_default=False)
    ],
    yes: Yes = False,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    deps, address = dependencies_of(context), http_addresses(agents)
    if not yes:
        for log in _logs_of(run(_damaged(deps, address)), session):
            _show_damaged(log)
        typer.confirm(f"Delete the log of {session}?", abort=True, err=True)
    files = run(_discard(deps, address, session))
    print_result(
        {"session": session, "files": files}, f"deleted the damaged log of {session}: {counted(files, 'file')}", as_json
    )


def _logs_of(logs: list[DamagedLog], session: str) -> list[DamagedLog]:
    if matching := [log for log in logs if log.session == session]:
        return matching
    raise Rejected(f"no damaged write-ahead log is kept; session={session} do=streamhouse wal damaged")


async def _damaged(deps: Dependencies, address: str) -> list[DamagedLog]:
    async with deps.http(address) as http:
        return await http.damaged_logs()


async def _discard(deps: Dependencies, address: str, session: str) -> int:
    async with deps.http(address) as http:
        return await http.discard_log(session)


def as_fields(log: DamagedLog) -> dict[str, object]:
    fields = {name: getattr(log, name) for name in log.__struct_fields__}
    return {**fields, "partitions": [_loss_fields(loss) for loss in log.partitions]}


def _loss_fields(loss: PartitionLoss) -> dict[str, object]:
    return {name: getattr(loss, name) for name in loss.__struct_fields__}


def _show_damaged(log: DamagedLog) -> None:
    print_properties(
        [
            ("session", log.session),
            ("kept", f"{log.where}, {counted(log.files, 'file')}, {size(log.bytes)}"),
            (
                "found",
                format_time(log.found_at_ms) if log.found_at_ms is not None else "unknown: the report can't be read",
            ),
            ("lost", "acknowledged records, perhaps" if log.loss else "nothing but a torn end"),
            ("places", ", ".join(log.places[:10]) or "-"),
        ]
    )
    if log.partitions:
        print_line()
        columns = [
            Column("topic", style="cyan", fold=True),
            Column("part", "right"),
            Column("lost"),
            Column("skipped"),
            Column("in no segment"),
        ]
        print_table(columns, [_loss_row(loss) for loss in log.partitions], indent=2)
    print_line()


def _loss_row(loss: PartitionLoss) -> list[str]:
    spans = (loss.gaps, loss.skipped, loss.unpublished)
    return [loss.topic or loss.topic_id, str(loss.partition), *(_offsets(span) for span in spans)]


def _offsets(spans: list[list[int]]) -> str:
    return ", ".join(f"[{first}, {end})" for first, end in spans) or "-"
