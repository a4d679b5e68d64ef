"""Command `streamhouse produce`: arguments, lines of standard input or of a file become records of a topic.

Owns the options, the counts of stored and failed records, progress and the summary Leaves parsing of lines to
`record_lines`, sending to `client.producer`
"""

import json
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from streamhouse.cli.commands.record_lines import LineFormat, LineSplitter, chunks
from streamhouse.cli.commands.schemas import chosen_schema
from streamhouse.cli.dependencies import Dependencies, dependencies_of, run
from streamhouse.cli.options import Agents, AsJson, Bootstrap, TopicName, http_addresses, kafka_addresses, pairs
from streamhouse.cli.output import (
    console,
    count,
    counted,
    print_error,
    print_json,
    print_line,
    print_note,
    seconds,
    size,
)
from streamhouse.cli.typer_setup import help_text
from streamhouse.client.serde import SchemaWriter, Write
from streamhouse.client.types import Acks, Compression
from streamhouse.clock import SystemClock
from streamhouse.errors import InvalidPartitions, InvalidRecordValue, Rejected, Retriable, StreamhouseError
from streamhouse.model.record import NewRecord

if TYPE_CHECKING:
    from streamhouse.client.delivery import Delivery
    from streamhouse.client.producer import Producer

HELP: Final = help_text(
    "Write records to a topic: the given values, or else the lines of --file or standard input.",
    "streamhouse produce orders hello world",
    "streamhouse produce orders --key-separator : --header from=shop < file",
    "seq 100000 | streamhouse produce numbers --compression lz4",
    "streamhouse produce orders --key 42 --null '' ''",
    "streamhouse produce orders --schema orders-value '{\"id\": 1}'",
    "streamhouse produce orders --schema @order.avsc < orders.ndjson",
)
MAX_WAITING_RECORDS: Final = 20_000
MAX_FAILURES_SHOWN: Final = 3


Values = Annotated[list[str] | None, typer.Argument(metavar="VALUE", show_default=False)]
InputFile = Annotated[
    Path | None, typer.Option("--file", "-F", metavar="FILE", help="Read lines from a file; - is standard input.")
]
Whole = Annotated[bool, typer.Option("--whole", help="Send the whole input as one value.")]
Key = Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")]
KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator", "-K", metavar="TEXT", help=r"Separator between key and value in each line; \t is a tab."
    ),
]
Headers = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="KEY=VALUE", help="Record header; may be repeated.")
]
Partition = Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Partition. Default: by key.")]
AcksOption = Annotated[Acks, typer.Option("--acks", help="Required acknowledgements; all makes retries idempotent.")]
Codec = Annotated[Compression, typer.Option("--compression", "-z", help="Compression codec.")]
TimeoutS = Annotated[int, typer.Option("--timeout", metavar="S", min=1, help="Delivery timeout, in seconds.")]
Null = Annotated[str | None, typer.Option("--null", metavar="TEXT", help="Send values equal to TEXT as null.")]
Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="SCHEMA",
        help="Encode JSON lines with a schema: SUBJECT, SUBJECT:VERSION, or @FILE, which is registered for"
        " the topic's values.",
    ),
]


def produce(
    context: typer.Context,
    topic: TopicName,
    values: Values = None,
    file: InputFile = None,
    whole: Whole = False,
    key: Key = None,
    key_separator: KeySeparator = None,
    header: Headers = None,
    partition: Partition = None,
    acks: AcksOption = "all",
    compression: Codec = "none",
    timeout: TimeoutS = 30,
    null: Null = None,
    schema: Schema = None,
    agents: Agents = None,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    if key is not None and key_separator is not None:
        raise typer.BadParameter("--key and --key-separator exclude each other", param_hint="--key-separator")
    if values and file is not None:
        raise typer.BadParameter("values and --file exclude each other", param_hint="--file")
    shape = LineFormat(
        key=None if key is None else key.encode(),
        key_separator=None if key_separator is None else key_separator.replace("\\t", "\t").encode(),
        null=None if null is None else null.encode(),
        headers=tuple((name, value.encode()) for name, value in pairs(header or [], "--header")),
        partition=partition,
    )
    counts = DeliveryCounts()
    work = _ProduceOptions(
        topic=topic,
        shape=shape,
        acks=acks,
        compression=compression,
        whole=whole,
        timeout_s=timeout,
        schema=schema,
        http="" if schema is None else http_addresses(agents),
    )
    try:
        with _open_input(values, file) as source:
            run(_produce(dependencies_of(context), kafka_addresses(context, agents, bootstrap), work, source, counts))
    except KeyboardInterrupt:
        _print_summary(topic, counts, as_json)
        raise typer.Exit(130) from None
    _print_summary(topic, counts, as_json)
    if counts.failed:
        raise Rejected(f"{counted(counts.failed, 'record')} of {count(counts.failed + counts.stored)} failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProduceOptions:
    topic: str
    shape: LineFormat
    acks: Acks
    compression: Compression
    whole: bool
    timeout_s: float
    schema: str | None
    http: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    """Source of the records: values, or a stream whose length may be known."""

    values: list[str] | None = None
    stream: BinaryIO | None = None
    total_bytes: int | None = None
    progress: bool = True


@contextmanager
def _open_input(values: list[str] | None, file: Path | None) -> Iterator[_Input]:
    if values:
        yield _Input(values=values)
    elif file is not None and str(file) != "-":
        with file.open("rb") as stream:
            yield _Input(stream=stream, total_bytes=file.stat().st_size)
    else:
        interactive = sys.stdin.isatty()
        if interactive:
            print_note("one record a line; Ctrl-D ends")
        yield _Input(stream=sys.stdin.buffer, progress=not interactive)


@dataclass(slots=True)
class DeliveryCounts:
    """Number of stored and failed records."""

    stored: int = 0
    failed: int = 0
    bytes: int = 0
    elapsed_s: float = 0.0
    gone: bool = False  # the agent does not answer: later records would fail as well
    failures: list[str] = field(default_factory=list)

    def store(self, size_bytes: int) -> None:
        self.stored += 1
        self.bytes += size_bytes

    def fail(self, number: int, error: Exception) -> None:
        self.failed += 1
        self.gone = self.gone or isinstance(error, Retriable)
        if len(self.failures) < MAX_FAILURES_SHOWN:
            self.failures.append(f"record {number} failed: {error}")


class DeliveryQueue:
    """Enqueues records and waits for their deliveries in order; limits how many are pending."""

    def __init__(self, producer: "Producer", counts: DeliveryCounts) -> None:
        self._producer, self._tally = producer, counts
        self._waiting: deque[tuple[int, int, Delivery]] = deque()

    async def send(self, number: int, record: NewRecord) -> None:
        while len(self._waiting) >= MAX_WAITING_RECORDS:
            await self._await_oldest()
        await self.settle_done()
        try:
            written = self._producer.record(record.value, record.key, record.headers, None, record.partition)
            delivery = await self._producer.put(written)
        except StreamhouseError as error:
            self._tally.fail(number, error)
            return
        self._waiting.append((number, len(written.value or b"") + len(written.key or b""), delivery))

    async def settle(self) -> None:
        while self._waiting:
            await self._await_oldest()

    async def settle_done(self) -> None:
        """Count the deliveries that are done."""
        while self._waiting and self._waiting[0][2].done():
            await self._await_oldest()

    async def _await_oldest(self) -> None:
        number, size_bytes, delivery = self._waiting.popleft()
        try:
            await delivery
        except StreamhouseError as error:
            self._tally.fail(number, error)
        else:
            self._tally.store(size_bytes)


async def _produce(
    deps: Dependencies, bootstrap: str, work: _ProduceOptions, source: _Input, counts: DeliveryCounts
) -> None:
    clock = SystemClock()
    await _check_topic(deps, bootstrap, work)
    started = clock.monotonic()
    async with _writer(deps, work) as write, _producer(deps, bootstrap, work, write) as producer:
        queue = DeliveryQueue(producer, counts)
        try:
            with Progress(source.total_bytes, enabled=source.stream is not None and source.progress) as progress:
                await _send_lines(_lines(source, work.whole, progress), work.shape, queue, counts)
                await queue.settle()
        finally:
            await queue.settle_done()
            counts.elapsed_s = clock.monotonic() - started


def _producer(
    deps: Dependencies, bootstrap: str, work: _ProduceOptions, write: Write | None
) -> "AbstractAsyncContextManager[Producer]":
    from streamhouse.client.producer import ProducerSettings

    settings = ProducerSettings(acks=work.acks, compression=work.compression, timeout_s=work.timeout_s)
    return deps.producer(bootstrap, work.topic, settings=settings, write_value=write)


@asynccontextmanager
async def _writer(deps: Dependencies, work: _ProduceOptions) -> AsyncIterator[Write | None]:
    """Open the encoder of values, None without a schema."""
    if work.schema is None:
        yield None
        return
    async with deps.http(work.http) as http:
        schema = chosen_schema(work.schema)
        yield JsonLines(SchemaWriter(deps.schemas(http), schema, subject=f"{work.topic}-value"))


class JsonLines:
    """Encodes lines of JSON with a schema."""

    def __init__(self, write: Write) -> None:
        self._write = write

    async def open(self) -> None:
        await self._write.open()

    def __call__(self, line: bytes, /) -> bytes:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise InvalidRecordValue(f"the line is not JSON: {error}") from None
        return self._write(value)


async def _check_topic(deps: Dependencies, bootstrap: str, work: _ProduceOptions) -> None:
    """Raise at once for a missing topic or partition; the producer would retry."""
    async with deps.admin(bootstrap) as admin:
        topic = await admin.topic(work.topic, create=True)
    if work.shape.partition is not None and work.shape.partition >= len(topic.partitions):
        raise InvalidPartitions(
            f"no such partition; topic={topic.name} partition={work.shape.partition}"
            f" allowed=0 to {len(topic.partitions) - 1}"
        )


async def _lines(source: _Input, whole: bool, progress: "Progress") -> AsyncIterator[list[bytes]]:
    if source.stream is None:
        # Arguments that were not UTF-8 become their original bytes.
        yield [value.encode("utf-8", "surrogateescape") for value in source.values or []]
        return
    splitter = LineSplitter()
    pieces: list[bytes] = []
    async for chunk in chunks(source.stream):
        progress.advance(len(chunk))
        if whole:
            pieces.append(chunk)
        else:
            yield splitter.feed(chunk)
    yield [b"".join(pieces)] if whole else splitter.finish()


async def _send_lines(
    lines: AsyncIterator[list[bytes]], shape: LineFormat, queue: DeliveryQueue, counts: DeliveryCounts
) -> None:
    number = 0
    async for batch in lines:
        for line in batch:
            number += 1
            try:
                record = shape.record(line)
            except ValueError as error:
                counts.fail(number, error)
                continue
            await queue.send(number, record)
            if counts.gone:
                return


class Progress:
    """A progress bar on the terminal, removed at the end."""

    def __init__(self, total_bytes: int | None, *, enabled: bool) -> None:
        self._total_bytes = total_bytes
        self._enabled = enabled and sys.stderr.isatty()
        self._bar: Any = None
        self._shown: AbstractContextManager[Any] = nullcontext()

    def __enter__(self) -> "Progress":
        if self._enabled:
            from rich import progress as rich

            columns = [rich.TextColumn("sending"), rich.BarColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn()]
            self._bar = rich.Progress(*columns, console=console(stderr=True), transient=True)
            self._bar.add_task("sending", total=self._total_bytes)
            self._shown = self._bar
        self._shown.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._shown.__exit__(*error)

    def advance(self, size_bytes: int) -> None:
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0], size_bytes)


def _print_summary(topic: str, counts: DeliveryCounts, as_json: bool) -> None:
    for text in counts.failures:
        print_error(text)
    if as_json:
        print_json(
            {
                "topic": topic,
                "records": counts.stored,
                "bytes": counts.bytes,
                "failed": counts.failed,
                "seconds": round(counts.elapsed_s, 6),
            }
        )
        return
    rate = counts.stored / counts.elapsed_s if counts.elapsed_s > 0 else 0
    print_line(
        f"{counted(counts.stored, 'record')}, {size(counts.bytes)} to {topic}"
        f" in {seconds(counts.elapsed_s)} ({count(rate)} records/s)",
        color="green" if not counts.failed else None,
    )
