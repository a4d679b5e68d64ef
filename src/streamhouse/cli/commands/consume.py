"""Command `streamhouse consume`: print the records of a topic, alone or as a member of a consumer group.

A group's offsets are committed after the records were printed, so that an interrupted command repeats records but
skips none. `SilenceNotice` reports an agent that has not answered for a while.
"""

from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streamhouse.cli.commands import record_lines
from streamhouse.cli.commands.record_lines import RecordParts, Render, schema_reader, write_out
from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import (
    Agents,
    Bootstrap,
    TopicName,
    complete_group,
    http_addresses,
    kafka_addresses,
)
from streamhouse.cli.output import on_terminal, parse_time, print_note, use_color
from streamhouse.cli.typer_setup import help_text
from streamhouse.client.types import LATEST, Record
from streamhouse.clock import SystemClock
from streamhouse.errors import Unavailable
from streamhouse.model.names import TopicPartition

if TYPE_CHECKING:
    from streamhouse.client.consumer import Consumer
    from streamhouse.client.group_consumer import GroupConsumer
    from streamhouse.client.kafka_admin import Admin
    from streamhouse.client.reader import ReadRange, RecordReader, Start

POLL_S: Final = 0.5
CHECK_AFTER_S: Final = 5.0


class SilenceNotice:
    """Reports an agent that does not respond; a Kafka consumer waits forever without an error."""

    def __init__(self, admin: "Admin", *, keep_waiting: bool) -> None:
        self._admin, self._keep_waiting = admin, keep_waiting
        self._silent_s = 0.0
        self._away = False

    async def after(self, records: Sequence[Record]) -> None:
        self._silent_s = 0.0 if records else self._silent_s + POLL_S
        if self._silent_s < CHECK_AFTER_S:
            return
        self._silent_s = 0.0
        try:
            await self._admin.cluster()
        except Unavailable as error:
            if not self._keep_waiting:
                raise
            if not self._away:
                print_note(f"{error} (waiting for it)")
            self._away = True
        else:
            if self._away:
                print_note("the agent is back")
            self._away = False


POLL_RECORDS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReader:
    """Reads as a member of a group up to the log ends at the start, or with `follow` until Ctrl-C."""

    topic: str
    group: str
    from_beginning: bool
    follow: bool
    limit: int | None
    render: Render
    schema: str | None
    http: str

    async def read(self, deps: Dependencies, bootstrap: str) -> None:
        async with deps.admin(bootstrap) as admin, schema_reader(deps, self.http, self.schema) as reader:
            topic = await admin.topic(self.topic)
            ends = None if self.follow else await admin.offsets(topic, LATEST, committed=True)
            member = deps.group_consumer(
                bootstrap,
                self.topic,
                group=self.group,
                from_beginning=self.from_beginning or not self.follow,
                reader=reader,
            )
            async with member as consumer:
                await self._copy(consumer, admin, ends)

    async def _copy(self, consumer: "GroupConsumer", admin: "Admin", ends: Mapping[int, int] | None) -> None:
        left = self.limit
        watch = SilenceNotice(admin, keep_waiting=self.follow)
        while ends is None or not has_reached(await consumer.positions(), ends):
            most = POLL_RECORDS if left is None else min(POLL_RECORDS, left)
            records = await consumer.poll(max_records=most, timeout_s=POLL_S)
            write_out(records, self.render)
            await consumer.done(records)
            await watch.after(records)
            if left is not None:
                left -= len(records)
                if left <= 0:
                    return


def has_reached(positions: Mapping[TopicPartition, int] | None, ends: Mapping[int, int]) -> bool:
    """Whether the assigned partitions are read up to these ends."""
    return positions is not None and all(
        offset >= ends.get(partition.partition, 0) for partition, offset in positions.items()
    )


HELP: Final = help_text(
    "Read a topic up to its current end, or with --follow new records as they arrive. With --group, read as a member "
    "of a consumer group, from its committed offsets. Prints columns on a terminal and raw values into a pipe.",
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
    list[int] | None,
    typer.Option("--partition", "-p", min=0, metavar="N", help="Partition to read; may be repeated. Default: all."),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        autocompletion=complete_group,
        help="Consumer group to join; offsets are committed after records are printed.",
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for new records until Ctrl-C.")]
Limit = Annotated[int | None, typer.Option("-n", min=1, metavar="N", help="Stop after N records.")]
WithKeys = Annotated[bool, typer.Option("--with-keys", help="Show keys.")]
WithHeaders = Annotated[bool, typer.Option("--with-headers", help="Show headers.")]
WithOffsets = Annotated[bool, typer.Option("--with-offsets", help="Show partition, offset and time.")]
Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="auto",
        help="Decode values with their schemas and show them as JSON; print others unchanged.",
    ),
]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


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
    agents: Agents = None,
    bootstrap: Bootstrap = None,
    as_json: JsonLines = False,
) -> None:
    if sum([from_beginning, offset is not None, from_time is not None]) > 1:
        raise typer.BadParameter("give one of --from-beginning, --offset and --from-time", param_hint="--offset")
    if schema not in (None, "auto"):
        raise typer.BadParameter("records contain their schema ids: give --schema auto", param_hint="--schema")
    render = _render(RecordParts(keys=with_keys, headers=with_headers, offsets=with_offsets), as_json)
    registry = "" if schema is None else http_addresses(agents)
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
            http=registry,
        )
    else:
        span = _read_range(_start(from_beginning, offset, from_time, follow=follow), follow, partition, limit)
        reader = _Reader(topic=topic, span=span, render=render, schema=schema, http=registry)
    _run(reader.read(dependencies_of(context), kafka_addresses(context, agents, bootstrap)))


def _run(reading: Coroutine[Any, Any, None]) -> None:
    """Run until the end or Ctrl-C, which is not an error."""
    try:
        run(reading)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _read_range(start: "Start", follow: bool, partitions: list[int] | None, limit: int | None) -> "ReadRange":
    from streamhouse.client.reader import ReadRange

    return ReadRange(from_=start, until=None if follow else "end", partitions=partitions or None, limit=limit)


def _start(from_beginning: bool, offset: int | None, from_time: str | None, *, follow: bool) -> "Start":
    if offset is not None:
        return offset
    if from_time is None:
        return "latest" if follow and not from_beginning else "earliest"
    try:
        at_ms = parse_time(from_time, now_ms=SystemClock().now_ms())
        return datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"{from_time!r} is not a time such as 2026-11-15T12:00, 1731672000000 or -1h", param_hint="--from-time"
        ) from None


def _render(parts: RecordParts, as_json: bool) -> Render:
    if as_json:
        return record_lines.as_json
    if not on_terminal():
        return record_lines.raw(parts)
    if parts == RecordParts():  # no option given: show everything
        parts = RecordParts(keys=True, headers=True, offsets=True)
    return record_lines.columns(parts, coloured=use_color())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    topic: str
    span: "ReadRange"
    render: Render
    schema: str | None
    http: str

    async def read(self, deps: Dependencies, bootstrap: str) -> None:
        from streamhouse.client.reader import RecordReader

        async with deps.admin(bootstrap) as admin, schema_reader(deps, self.http, self.schema) as reader:

            async def administrator() -> "Admin":
                return admin

            def connect(starts: Mapping[int, int]) -> "AbstractAsyncContextManager[Consumer]":
                return deps.consumer(bootstrap, self.topic, starts=starts)

            async with RecordReader(administrator, connect, self.topic, self.span, reader=reader) as reading:
                if reading.is_empty and on_terminal():
                    print_note(f"no records in {self.topic} there; --follow waits for new ones")
                await self._copy(reading, SilenceNotice(admin, keep_waiting=self.span.until is None))

    async def _copy(self, reading: "RecordReader", watch: SilenceNotice) -> None:
        """Print records until the end or the limit."""
        while not await reading.is_over():
            records = await reading.poll(timeout_s=POLL_S)
            write_out(records, self.render)
            await watch.after(records)
