"""WAL: look into write-ahead log files.

Owns        the table and the JSON of `wal inspect`
Leaves      what is an entry and what is damage to `format.wal`
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamhouse.cli.help import HelpfulCommand, described, group
from streamhouse.cli.options import AsJson
from streamhouse.cli.output import Column, print_facts, print_json, print_table, say
from streamhouse.cli.words import count, counted, size
from streamhouse.errors import CorruptObject

if TYPE_CHECKING:
    from streamhouse.format.wal import FileSummary

app = group("Look into the write-ahead log.")


@app.command(
    "inspect",
    cls=HelpfulCommand,
    help=described(
        "Look into a WAL file, or all below a folder: entries, offsets per partition, damage. A torn tail is what a "
        "crash leaves behind; damage in the middle is not, and gives exit code 1.",
        "streamhouse wal inspect data/wal",
        "streamhouse wal inspect FILE --json",
    ),
)
def inspect(path: Annotated[Path, typer.Argument(metavar="PATH", show_default=False)], as_json: AsJson = False) -> None:
    from streamhouse.format.wal import summarise

    summaries = [(file, summarise(file.read_bytes())) for file in wal_files(path)]
    if as_json:
        print_json({"files": [_file_json(file, summary) for file, summary in summaries]})
    elif not summaries:
        say(f"no WAL files in {path}")
    else:
        for file, summary in summaries:
            _show(file, summary)
    broken = [file for file, summary in summaries if any(not damage.tail for damage in summary.damage)]
    if broken:
        raise CorruptObject(str(broken[0]), why=f"damage inside {counted(len(broken), 'file')}, not only at the tail")


def wal_files(path: Path) -> list[Path]:
    """The file itself, or every file below a folder that is not empty (locks are)."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and file.stat().st_size)


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
                "epoch": told.epoch,
                "base": told.base,
                "end": told.end,
                "entries": told.entries,
                "bytes": told.batch_bytes,
            }
            for partition, told in sorted(summary.partitions.items())
        ],
    }


def _show(file: Path, summary: "FileSummary") -> None:
    header = summary.header
    session = f"{header.session}, file {header.sequence}" if header else "unknown: the header can't be read"
    print_facts(
        [
            ("file", str(file)),
            ("session", session),
            ("size", size(summary.size_bytes)),
            ("entries", count(summary.entries)),
            ("damage", counted(len(summary.damage), "place") if summary.damage else "none"),
        ]
    )
    for damage in summary.damage:
        what = "torn tail, cut at the next start" if damage.tail else "DAMAGED, skipped at the next start"
        say(f"  {what}: {counted(damage.length, 'byte')} at {damage.position}", color="red")
    if summary.partitions:
        _show_partitions(summary)
    say()


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
            f"[{told.base}, {told.end})",
            str(told.epoch),
            count(told.entries),
            size(told.batch_bytes),
        ]
        for partition, told in sorted(summary.partitions.items())
    ]
    say()
    print_table(columns, rows, indent=2)
