"""Consume: records of a topic, from where one likes, to the end or for ever.

Owns        the flags, and what they mean
Leaves      lines to `records_out`, where to start and stop to `client.reading`, being in a group to `consume_group`
"""

from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streamhouse.cli import records_out
from streamhouse.cli.consume_group import GroupReader
from streamhouse.cli.doors import Doors, doors_of, run
from streamhouse.cli.help import described
from streamhouse.cli.options import (
    Bootstrap,
    HttpAddress,
    TopicName,
    bootstrap_address,
    complete_group,
    http_address,
)
from streamhouse.cli.output import coloured, note, on_terminal
from streamhouse.cli.records_out import Parts, Render, schema_reader, write_out
from streamhouse.cli.watch import POLL_S, Watch
from streamhouse.cli.words import parse_when
from streamhouse.clock import SystemClock

if TYPE_CHECKING:
    from streamhouse.client.consumer import Consumer
    from streamhouse.client.kafka_admin import Admin
    from streamhouse.client.reader import ReadRange, RecordReader, Start

HELP: Final = described(
    "Read a topic: everything up to its present end, or with --follow what comes from now on. "
    "With --group, as a member of a consumer group, from where the group is. "
    "A terminal gets columns, a pipe the raw values.",
    "streamhouse consume orders",
    "streamhouse consume orders --follow",
    "streamhouse consume orders --from-time -1h --json",
    "streamhouse consume orders --offset -10 --partition 0",
    "streamhouse consume orders -n 5 --with-keys --with-headers",
    "streamhouse consume orders --group billing --follow",
    "streamhouse consume orders --schema auto --json",
)


FromBeginning = Annotated[bool, typer.Option("--from-beginning", help="Start at the oldest record.")]
Offset = Annotated[
    int | None, typer.Option("--offset", "-o", metavar="N", help="Start at this offset; -N: N before the end.")
]
FromTime = Annotated[
    str | None,
    typer.Option("--from-time", metavar="TIME", help="Start at 2026-11-15T12:00, 1731672000000 (ms) or -1h."),
]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, metavar="N", help="Only this one; may be repeated.")
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        autocompletion=complete_group,
        help="Share the topic with the group's other members; commit what was written out.",
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")]
Limit = Annotated[int | None, typer.Option("-n", min=1, metavar="N", help="Stop after so many records.")]
WithKeys = Annotated[bool, typer.Option("--with-keys", help="Show keys.")]
WithHeaders = Annotated[bool, typer.Option("--with-headers", help="Show headers.")]
WithOffsets = Annotated[bool, typer.Option("--with-offsets", help="Show partition, offset and time.")]
Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="auto",
        help="Show values as JSON, read by the schema that each one names; others as they are.",
    ),
]
JsonLines = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def consume(
    context: typer.Context,
    topic: TopicName,
    from_beginning: FromBeginning = False,
    offset: Offset = None,
    from_time: FromTime = None,
    partition: Partitions = None,
    group: Group = None,
    follow: Follow = False,
    limit: Limit = None,
    with_keys: WithKeys = False,
    with_headers: WithHeaders = False,
    with_offsets: WithOffsets = False,
    schema: Schema = None,
    bootstrap: Bootstrap = None,
    http: HttpAddress = None,
    as_json: JsonLines = False,
) -> None:
    if sum([from_beginning, offset is not None, from_time is not None]) > 1:
        raise typer.BadParameter("give one of --from-beginning, --offset and --from-time", param_hint="--offset")
    if schema not in (None, "auto"):
        raise typer.BadParameter("records name their schemas themselves: give auto", param_hint="--schema")
    render = _render(Parts(keys=with_keys, headers=with_headers, offsets=with_offsets), as_json)
    asked = "" if schema is None else http_address(http)
    reader: GroupReader | _Reader
    if group is not None:
        if offset is not None or from_time is not None or partition:
            raise typer.BadParameter(
                "a group decides where and what its members read; move it with: streamhouse groups reset",
                param_hint="--group",
            )
        reader = GroupReader(
            topic=topic,
            group=group,
            from_beginning=from_beginning,
            follow=follow,
            limit=limit,
            render=render,
            schema=schema,
            http=asked,
        )
    else:
        span = _span(_start(from_beginning, offset, from_time, follow=follow), follow, partition, limit)
        reader = _Reader(topic=topic, span=span, render=render, schema=schema, http=asked)
    _run(reader.read(doors_of(context), bootstrap_address(bootstrap)))


def _run(reading: Coroutine[Any, Any, None]) -> None:
    """Ctrl-C is how reading is meant to end."""
    try:
        run(reading)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _span(start: "Start", follow: bool, partitions: list[int] | None, limit: int | None) -> "ReadRange":
    from streamhouse.client.reader import ReadRange

    return ReadRange(from_=start, until=None if follow else "end", partitions=partitions or None, limit=limit)


def _start(from_beginning: bool, offset: int | None, from_time: str | None, *, follow: bool) -> "Start":
    if offset is not None:
        return offset
    if from_time is None:
        return "latest" if follow and not from_beginning else "earliest"
    try:
        at_ms = parse_when(from_time, now_ms=SystemClock().now_ms())
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"{from_time!r} is not a time such as 2026-11-15T12:00, 1731672000000 or -1h", param_hint="--from-time"
        ) from None


def _render(parts: Parts, as_json: bool) -> Render:
    if as_json:
        return records_out.as_json
    if not on_terminal():
        return records_out.raw(parts)
    if parts == Parts():  # nothing was asked for: show what people want to see
        parts = Parts(keys=True, headers=True, offsets=True)
    return records_out.columns(parts, coloured=coloured())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    topic: str
    span: "ReadRange"
    render: Render
    schema: str | None
    http: str

    async def read(self, doors: Doors, bootstrap: str) -> None:
        from streamhouse.client.reader import RecordReader

        async with doors.admin(bootstrap) as admin, schema_reader(doors, self.http, self.schema) as reader:

            async def administrator() -> "Admin":
                return admin

            def connect(starts: Mapping[int, int]) -> "AbstractAsyncContextManager[Consumer]":
                return doors.consumer(bootstrap, self.topic, starts=starts)

            async with RecordReader(administrator, connect, self.topic, self.span, reader=reader) as reading:
                if reading.is_empty and on_terminal():
                    note(f"no records in {self.topic} there; --follow waits for some")
                await self._copy(reading, Watch(admin, patient=self.span.until is None))

    async def _copy(self, reading: "RecordReader", watch: Watch) -> None:
        """Copy records out until there are enough."""
        while not await reading.is_over():
            records = await reading.poll(timeout_s=POLL_S)
            write_out(records, self.render)
            await watch.after(records)
