"""Commands `streamhouse segments list|inspect`: registered segments, and the contents of a segment file.

Owns the tables and the JSON of both commands Leaves the list to the agent's HTTP listener; parsing of a file to
`format.segment`
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, complete_topic, http_addresses
from streamhouse.cli.output import (
    Column,
    count,
    counted,
    format_time,
    print_json,
    print_line,
    print_properties,
    print_table,
    size,
)
from streamhouse.cli.typer_setup import Command, command_group, help_text
from streamhouse.errors import CorruptObject

if TYPE_CHECKING:
    from streamhouse.client.types import Segment
    from streamhouse.format.block import BlockEntry
    from streamhouse.format.segment import DirectoryEntry

app = command_group("List segments and inspect segment files.")

CODECS: Final = {0: "raw", 1: "lz4"}
SUFFIX_BYTES: Final = 64 * 1024


@app.command(
    "list",
    cls=Command,
    help=help_text(
        "List registered segments, one line per partition.",
        "streamhouse segments list",
        "streamhouse segments list --topic orders --json",
    ),
)
def list_(
    context: typer.Context,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only segments of this topic.", autocompletion=complete_topic)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Maximum number of segments.")] = 1000,
    agents: Agents = None,
    as_json: AsJson = False,
) -> None:
    segments = run(_list(dependencies_of(context), http_addresses(agents), topic, limit))
    if as_json:
        print_json({"segments": [{f: getattr(s, f) for f in s.__struct_fields__} for s in segments]})
    elif not segments:
        print_line("no segments yet; records wait in the WAL until flush.age_s or flush.segment_bytes")
    else:
        _show_list(segments)
        if len(segments) == limit:
            print_line(f"the first {count(limit)}; --limit for more, --topic for one topic's", dim=True)


def _show_list(segments: "list[Segment]") -> None:
    columns = [
        Column("topic", style="cyan"),
        Column("part", "right"),
        Column("offsets", "right"),
        Column("records", "right"),
        Column("size", "right"),
        Column("newest", drop=2),
        Column("object", style="dim", drop=1),
    ]
    rows = [
        [
            s.topic,
            str(s.partition),
            f"[{s.base}, {s.end})",
            count(s.records),
            size(s.bytes),
            format_time(s.max_timestamp_ms)[:19],
            s.object,
        ]
        for s in segments
    ]
    print_table(columns, rows)
    objects = len({s.object for s in segments})
    total = f"{counted(sum(s.records for s in segments), 'record')}, {size(sum(s.bytes for s in segments))}"
    print_line(f"{total} in {counted(objects, 'object')}; --json names them", dim=True)


async def _list(deps: Dependencies, address: str, topic: str | None, limit: int) -> "list[Segment]":
    async with deps.http(address) as http:
        return await http.segments(topic, limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Result of checking a block: `why` is empty if its bytes are intact."""

    entry: "BlockEntry"
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedRun:
    entry: "DirectoryEntry"
    blocks: tuple[Block, ...]
    why: str  # why its index or its key filters can't be read, or empty
    key_filter_bytes: int = 0

    @property
    def raw_bytes(self) -> int:
        return sum(block.entry.raw_bytes for block in self.blocks)

    @property
    def damage(self) -> list[str]:
        return [why for why in (self.why, *(block.why for block in self.blocks)) if why]


@app.command(
    "inspect",
    cls=Command,
    help=help_text(
        "Inspect a segment file: runs, blocks, offsets, timestamps, compression, checksums. Exit code 1 on damage.",
        "streamhouse segments inspect data/objects/segments/s-0123/00000000000000000001",
        "streamhouse segments inspect FILE --json",
    ),
)
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    blocks: Annotated[bool, typer.Option("--blocks/--no-blocks", help="Show every block.")] = True,
    as_json: AsJson = False,
) -> None:
    data = file.read_bytes()
    runs = list(inspect_segment(data, key=str(file)))
    if as_json:
        print_json({"file": str(file), "bytes": len(data), "runs": [_run_json(run) for run in runs]})
    else:
        _show_inspected(file, len(data), runs, blocks)
    damage = [why for run in runs for why in run.damage]
    if damage:
        raise CorruptObject(str(file), why=f"{counted(len(damage), 'part')} damaged, first: {damage[0]}")


def inspect_segment(data: bytes, *, key: str) -> Iterator[InspectedRun]:
    """Check every block of every run; raises `CorruptObject` if the file has no readable directory."""
    from streamhouse.format.segment import MoreBytesNeeded, check_header, read_directory

    check_header(data, key=key)
    directory = read_directory(data[-SUFFIX_BYTES:], size_bytes=len(data), key=key)
    if isinstance(directory, MoreBytesNeeded):
        directory = read_directory(data[-directory.bytes :], size_bytes=len(data), key=key)
    if isinstance(directory, MoreBytesNeeded):
        raise CorruptObject(key, why="directory not found")
    for entry in directory.runs:
        yield _inspect_run(data, entry, key)


def _inspect_run(data: bytes, entry: "DirectoryEntry", key: str) -> InspectedRun:
    from streamhouse.format.block import decode_block
    from streamhouse.format.key_filter import decode_key_filters
    from streamhouse.format.run_index import decode_run_index

    try:
        index = decode_run_index(data[entry.index_position : entry.index_position + entry.index_length], key=key)
    except CorruptObject as error:
        return InspectedRun(entry=entry, blocks=(), why=str(error))
    blocks = []
    for block in index.blocks:
        try:
            decode_block(data[block.position : block.position + block.stored_bytes], block, key=key)
            why = ""
        except CorruptObject as error:
            why = str(error)
        blocks.append(Block(entry=block, why=why))
    start, why = entry.position + entry.length, ""
    try:
        if index.key_filter_bytes:
            decode_key_filters(data[start : start + index.key_filter_bytes], key=key)
    except CorruptObject as error:
        why = str(error)
    return InspectedRun(entry=entry, blocks=tuple(blocks), why=why, key_filter_bytes=index.key_filter_bytes)


def _ratio(raw: int, stored: int) -> str:
    return f"{raw / stored:.2f}x" if stored else "-"


def _run_json(run: InspectedRun) -> dict[str, object]:
    entry = run.entry
    return {
        "topic_id": str(entry.partition.topic_id),
        "partition": entry.partition.partition,
        "epoch": entry.epoch,
        "base": entry.base,
        "end": entry.end,
        "records": entry.records,
        "max_timestamp_ms": entry.max_timestamp_ms,
        "position": entry.position,
        "stored_bytes": entry.length,
        "raw_bytes": run.raw_bytes,
        "key_filter_bytes": run.key_filter_bytes,
        "damage": run.damage,
        "blocks": [_block_json(entry, block) for block in run.blocks],
    }


def _block_json(run: "DirectoryEntry", block: Block) -> dict[str, object]:
    entry = block.entry
    return {
        "base": run.base + entry.first,
        "end": run.base + entry.end,
        "max_timestamp_ms": entry.max_timestamp_ms,
        "position": entry.position,
        "stored_bytes": entry.stored_bytes,
        "raw_bytes": entry.raw_bytes,
        "codec": CODECS.get(entry.codec, str(entry.codec)),
        "crc": f"{entry.crc:08x}",
        "ok": not block.why,
    }


def _show_inspected(file: Path, size_bytes: int, runs: list[InspectedRun], blocks: bool) -> None:
    stored, raw = sum(run.entry.length for run in runs), sum(run.raw_bytes for run in runs)
    print_properties(
        [
            ("file", str(file)),
            ("size", f"{size(size_bytes)} ({size_bytes} bytes)"),
            ("runs", counted(len(runs), "partition")),
            ("records", count(sum(run.entry.records for run in runs))),
            ("blocks", f"{sum(len(run.blocks) for run in runs)}, {size(raw)} in {size(stored)}: {_ratio(raw, stored)}"),
        ]
    )
    for inspected in runs:
        _show_run(inspected, blocks)


def _show_run(run: InspectedRun, blocks: bool) -> None:
    entry = run.entry
    print_line()
    print_line(f"topic {entry.partition.topic_id} partition {entry.partition.partition}", bold=True)
    print_line(
        f"  {counted(entry.records, 'record')}, {size(run.raw_bytes)} in {size(entry.length)}:"
        f" {_ratio(run.raw_bytes, entry.length)}, key filters {size(run.key_filter_bytes)}"
    )
    print_line(
        f"  offsets [{entry.base}, {entry.end}), epoch {entry.epoch}, newest {format_time(entry.max_timestamp_ms)}"
    )
    if run.why:
        print_line(f"  {run.why}", color="red")
    if not blocks or not run.blocks:
        return
    columns = [
        Column("block", "right", "cyan"),
        Column("offsets", "right"),
        Column("newest", drop=1),
        Column("position", "right", drop=3),
        Column("stored", "right"),
        Column("raw", "right"),
        Column("codec", drop=2),
        Column("ratio", "right"),
        Column("crc"),
    ]
    print_table(columns, [_block_row(run, number) for number in range(len(run.blocks))], indent=2)


def _block_row(run: InspectedRun, number: int) -> list[str]:
    entry, why = run.blocks[number].entry, run.blocks[number].why
    return [
        str(number),
        f"[{run.entry.base + entry.first}, {run.entry.base + entry.end})",
        format_time(entry.max_timestamp_ms)[:19],
        str(entry.position),
        size(entry.stored_bytes),
        size(entry.raw_bytes),
        CODECS.get(entry.codec, str(entry.codec)),
        _ratio(entry.raw_bytes, entry.stored_bytes),
        "DAMAGED" if why else "ok",
    ]
