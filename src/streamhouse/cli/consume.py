"""Consume: records of a topic, from where one likes, to the end or for ever.

Owns        the flags, where reading starts, and when it is over
Leaves      lines to `records_out`, reading to `client.consumer`, being in a group to `consume_group`
"""

import sys
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streamhouse.cli import records_out
from streamhouse.cli.consume_group import GroupReader
from streamhouse.cli.doors import Doors, doors_of, run
from streamhouse.cli.help import described
from streamhouse.cli.options import Bootstrap, TopicName, bootstrap_address, complete_group
from streamhouse.cli.output import coloured, note, on_terminal
from streamhouse.cli.records_out import Parts, Render
from streamhouse.cli.watch import POLL_S, Watch
from streamhouse.cli.words import parse_when
from streamhouse.client.nouns import EARLIEST, LATEST, Record
from streamhouse.clock import SystemClock
from streamhouse.errors import InvalidPartitions, OffsetOutOfRange

if TYPE_CHECKING:
    from streamhouse.client.admin import Admin
    from streamhouse.client.consumer import Consumer

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
)
POLL_RECORDS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where reading starts, in the words of the flags; at most one is given."""

    beginning: bool = False
    offset: int | None = None
    time_ms: int | None = None
    follow: bool = False


def consume(
    context: typer.Context,
    topic: TopicName,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start at the oldest record.")] = False,
    offset: Annotated[
        int | None, typer.Option("--offset", "-o", metavar="N", help="Start at this offset; -N: N before the end.")
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option("--from-time", metavar="TIME", help="Start at 2026-11-15T12:00, 1731672000000 (ms) or -1h."),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, metavar="N", help="Only this one; may be repeated.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            autocompletion=complete_group,
            help="Share the topic with the group's other members; commit what was written out.",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    limit: Annotated[int | None, typer.Option("-n", min=1, metavar="N", help="Stop after so many records.")] = None,
    with_keys: Annotated[bool, typer.Option("--with-keys", help="Show keys.")] = False,
    with_headers: Annotated[bool, typer.Option("--with-headers", help="Show headers.")] = False,
    with_offsets: Annotated[bool, typer.Option("--with-offsets", help="Show partition, offset and time.")] = False,
    bootstrap: Bootstrap = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    if sum([from_beginning, offset is not None, from_time is not None]) > 1:
        raise typer.BadParameter("give one of --from-beginning, --offset and --from-time", param_hint="--offset")
    render = _render(Parts(keys=with_keys, headers=with_headers, offsets=with_offsets), as_json)
    if group is not None:
        if offset is not None or from_time is not None or partition:
            raise typer.BadParameter(
                "a group decides where and what its members read; move it with: streamhouse groups reset",
                param_hint="--group",
            )
        member = GroupReader(
            topic=topic, group=group, from_beginning=from_beginning, follow=follow, limit=limit, render=render
        )
        _run(member.read(doors_of(context), bootstrap_address(bootstrap)))
        return
    span = Span(beginning=from_beginning, offset=offset, time_ms=_time(from_time), follow=follow)
    reader = _Reader(topic=topic, span=span, partitions=partition, limit=limit, render=render)
    _run(reader.read(doors_of(context), bootstrap_address(bootstrap)))


def _run(reading: Coroutine[Any, Any, None]) -> None:
    """Ctrl-C is how reading is meant to end."""
    try:
        run(reading)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_when(text, now_ms=SystemClock().now_ms())
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is not a time such as 2026-11-15T12:00, 1731672000000 or -1h", param_hint="--from-time"
        ) from None


def _render(parts: Parts, as_json: bool) -> Render:
    if as_json:
        return records_out.as_json
    if not on_terminal():
        return records_out.raw(parts)
    if parts == Parts():  # nothing was asked for: show what people want to see
        parts = Parts(keys=True, headers=True, offsets=True)
    return records_out.columns(parts, coloured=coloured())


def decide_starts(
    span: Span, *, topic: str, earliest: Mapping[int, int], latest: Mapping[int, int], at_time: Mapping[int, int]
) -> dict[int, int]:
    """Per partition the first offset to read."""
    if span.time_ms is not None:  # no record is so late: start at the end
        return {number: latest[number] if at_time[number] < 0 else at_time[number] for number in latest}
    if span.offset is None:
        return dict(latest if span.follow and not span.beginning else earliest)
    if span.offset < 0:
        return {number: max(earliest[number], end + span.offset) for number, end in latest.items()}
    for number, end in latest.items():
        if not earliest[number] <= span.offset <= end:
            raise OffsetOutOfRange(f"{topic}-{number}", offset=span.offset, start=earliest[number], end=end)
    return dict.fromkeys(latest, span.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    topic: str
    span: Span
    partitions: list[int] | None
    limit: int | None
    render: Render

    async def read(self, doors: Doors, bootstrap: str) -> None:
        async with doors.admin(bootstrap) as admin:
            starts, ends = await self._range(admin)
            if not self.span.follow and all(starts[number] >= end for number, end in ends.items()):
                if on_terminal():
                    note(f"no records in {self.topic} there; --follow waits for some")
                return
            async with doors.consumer(bootstrap, self.topic, starts=starts) as consumer:
                await self._copy(consumer, admin, None if self.span.follow else ends)

    async def _range(self, admin: "Admin") -> tuple[dict[int, int], dict[int, int]]:
        topic = await admin.topic(self.topic)
        known = {p.partition for p in topic.partitions}
        wanted = set(self.partitions) if self.partitions else known
        if not wanted <= known:
            missing = min(wanted - known)
            raise InvalidPartitions(
                f"no such partition; topic={self.topic} partition={missing} allowed=0 to {len(known) - 1}"
            )
        latest = await admin.offsets(topic, LATEST, wanted)
        earliest = await admin.offsets(topic, EARLIEST, wanted)
        time_ms = self.span.time_ms
        at_time = {} if time_ms is None else await admin.offsets(topic, time_ms, wanted)
        starts = decide_starts(self.span, topic=self.topic, earliest=earliest, latest=latest, at_time=at_time)
        return starts, latest

    async def _copy(self, consumer: "Consumer", admin: "Admin", ends: dict[int, int] | None) -> None:
        """Copy records out until there are enough; `ends` is where to stop, None is never."""
        left = self.limit
        watch = Watch(admin, patient=ends is None)
        while ends is None or not _reached(await consumer.positions(), ends):
            most = POLL_RECORDS if left is None else min(POLL_RECORDS, left)
            records = await consumer.poll(max_records=most, timeout_s=POLL_S)
            self._write(_within(records, ends))
            await watch.after(records)
            if left is not None:
                left -= len(records)
                if left <= 0:
                    return

    def _write(self, records: Iterable[Record]) -> None:
        text = b"".join(map(self.render, records))
        if text:
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()


def _reached(positions: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(positions[number] >= end for number, end in ends.items())


def _within(records: Iterable[Record], ends: Mapping[int, int] | None) -> Iterable[Record]:
    """What had been there at the start; more may have come meanwhile."""
    return records if ends is None else (record for record in records if record.offset < ends[record.partition])
