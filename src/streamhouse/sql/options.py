"""Options of `WITH (…)` for tables, pipelines and views: their names, their values, and the parsers of these.

The command line uses the same parsers for sizes and durations. `is_one_type` checks the type of a column without Spark.
A parser raises `ValueError` for a value that is not allowed; its text names what is allowed.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from streamhouse.errors import InvalidTopicName, StatementError
from streamhouse.model.identifiers import split_identifiers
from streamhouse.model.names import check_topic_name
from streamhouse.model.table import CONNECTION, Connector, parse_partitions
from streamhouse.sql.lexer import TokenKind, tokenize

MIN_FILE_BYTES: Final = 64 * 1024

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]i?b|b)?", re.IGNORECASE)
_SIZES: Final[Mapping[str, int]] = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_DURATION: Final = re.compile(
    r"(\d+)\s*(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?|w|weeks?)", re.IGNORECASE
)
_UNITS_MS: Final[Mapping[str, int]] = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_file_size(text: str) -> int:
    """In bytes."""
    match = _SIZE.fullmatch(text.strip())
    size = round(float(match[1]) * _SIZES[(match[2] or "b").lower()]) if match else 0
    if size < MIN_FILE_BYTES:
        raise ValueError("a size from 64KiB on, like '128MiB'")
    return size


def parse_duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError("a duration like '30s', '1m', '12h' or '7d'")
    unit = match[2].lower()
    return int(match[1]) * (1 if unit.startswith(("ms", "milli")) else _UNITS_MS[unit[0]])


Check = Callable[[str], object]

AVAILABLE_NOW: Final = "available now"
ONCE: Final = "once"
ON_ARRIVAL: Final = "on arrival"
NO_DEAD_LETTERS: Final = "none"
DEAD_LETTERS: Final = ".dead-letters"
"""Behind a pipeline's name: the topic of records that it can't decode, unless it names another."""

_UNIT: Final = r"(?:milliseconds?|seconds?|minutes?|hours?|days?)"
_INTERVAL: Final = re.compile(rf"\d+\s+{_UNIT}", re.IGNORECASE)
_WATERMARK: Final = re.compile(rf"\s*(?:`((?:[^`]|``)+)`|([^\W\d]\w*))\s+(\d+\s+{_UNIT})\s*(,|\Z)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """Rows may come this much later than the latest that was seen."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """`trigger` is an interval of Spark's, AVAILABLE_NOW or ONCE; `output` None: whatever suits the query.

    `lookup` ON_ARRIVAL: rows of a view are made with the tables as they are when the records of its streams arrive.
    """

    trigger: str = "1 second"
    starting: str = "earliest"
    watermarks: tuple[Watermark, ...] = ()
    key: tuple[str, ...] = ()
    fmt: str = "json"
    output: str | None = None
    lookup: str | None = None
    dead_letters: str | None = None
    max_records_per_trigger: int | None = None
    partitions: int | None = None
    is_alone: bool = False

    def dead_letters_of(self, pipeline: str) -> str | None:
        """The topic of a pipeline's dead letters; None if it has none."""
        if self.dead_letters == NO_DEAD_LETTERS:
            return None
        return self.dead_letters or pipeline + DEAD_LETTERS


def pipeline_options(given: Mapping[str, str]) -> PipelineOptions:
    """Parse options; raise ValueError for a value that is not allowed."""
    parsed = {name: PIPELINE_OPTIONS[name](value) for name, value in given.items() if name in PIPELINE_OPTIONS}
    renamed = {_FIELDS.get(name, name): value for name, value in parsed.items()}
    return PipelineOptions(**renamed)  # type: ignore[arg-type]


def starting_time_ms(starting: str) -> int | None:
    """The time that a starting point names, in UTC unless it has a zone; None where it is something else."""
    try:
        moment = datetime.fromisoformat(starting.strip())
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def one_of(*allowed: str) -> Check:
    def check(text: str) -> str:
        if text.strip().lower() not in allowed:
            raise ValueError(" or ".join(", ".join(allowed).rsplit(", ", 1)))
        return text.strip().lower()

    return check


def parse_trigger(text: str) -> str:
    words = " ".join(text.lower().split())
    if words not in (AVAILABLE_NOW, ONCE) and not _INTERVAL.fullmatch(words):
        raise ValueError(f"an interval like '10 seconds', '{AVAILABLE_NOW}' or '{ONCE}'")
    return words


def parse_starting_position(text: str) -> str:
    if text.strip().lower() in ("earliest", "latest"):
        return text.strip().lower()
    if starting_time_ms(text) is None and not _is_offsets(text):
        raise ValueError(
            "earliest, latest, a time like '2026-11-15T08:00:00Z', or offsets like '{\"orders\":{\"0\":23}}'"
        )
    return text.strip()


def _is_offsets(text: str) -> bool:
    try:
        parsed = json.loads(text)
    except ValueError:
        return False
    return isinstance(parsed, dict) and all(
        isinstance(offsets, dict) and all(number.isdecimal() and type(at) is int for number, at in offsets.items())
        for offsets in parsed.values()
    )


def parse_watermarks(text: str) -> tuple[Watermark, ...]:
    watermarks: list[Watermark] = []
    at, more = 0, True
    while more:
        match = _WATERMARK.match(text, at)
        if match is None:
            raise ValueError("a column and how late it may be, like 'ts 10 seconds'; several with commas between")
        column = match[2] if match[1] is None else match[1].replace("``", "`")
        watermarks.append(Watermark(column=column, delay=match[3]))
        at, more = match.end(), match[4] == ","
    return tuple(watermarks)


def parse_columns(text: str) -> tuple[str, ...]:
    try:
        names = split_identifiers(text)
    except ValueError:
        names = ()
    if not names or len(set(names)) < len(names):
        raise ValueError("a column, or several with commas between, like 'country, city'")
    return names


def parse_whole_number(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("a whole number from 1 on")
    return int(text)


def parse_topic(text: str) -> str:
    try:
        check_topic_name(text)
    except InvalidTopicName as error:
        raise ValueError(f"a topic's name ({error})") from None
    return text


def parse_connection(text: str) -> str:
    """The name of a connection, never an address or a password: those are in a variable of the Spark process."""
    if not CONNECTION.fullmatch(text):
        raise ValueError("a name like 'warehouse', whose address is in STREAMHOUSE_CONNECTION_WAREHOUSE")
    return text


def parse_non_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("a text that isn't empty")
    return text


def _isolation(text: str) -> bool:
    return one_of("shared", "own")(text) == "own"


_FIELDS: Final = {"watermark": "watermarks", "format": "fmt", "isolation": "is_alone"}

VIEW_OPTIONS: Final[Mapping[str, Check]] = {
    "trigger": parse_trigger,
    "starting": parse_starting_position,
    "watermark": parse_watermarks,
    "output": one_of("append", "update", "complete"),
    "lookup": one_of(ON_ARRIVAL),
    "dead_letters": parse_topic,
    "max_records_per_trigger": parse_whole_number,
    "isolation": _isolation,
}
PIPELINE_OPTIONS: Final[Mapping[str, Check]] = {
    **VIEW_OPTIONS,
    "key": parse_columns,
    "format": one_of("json", "raw"),
    "partitions": parse_whole_number,
}
_LAKE: Final[Mapping[str, Check]] = {
    "location": parse_non_empty,
    "mode": one_of("append", "upsert"),
    "partition_by": parse_partitions,
    "file_size": parse_file_size,
    "expire_snapshots": parse_duration_ms,
    "settings_of": parse_topic,
}
TABLE_OPTIONS: Final[Mapping[Connector, Mapping[str, Check]]] = {
    Connector.TOPIC: {
        "topic": parse_topic,
        "format": one_of("json", "raw", "registry"),
        "key_format": one_of("text", "raw"),
    },
    Connector.FILES: {
        "path": parse_non_empty,
        "format": one_of("parquet", "json", "csv"),
        "header": one_of("true", "false"),
    },
    Connector.POSTGRESQL: {"connection": parse_connection, "table": parse_non_empty},
    Connector.CONSOLE: {},
    Connector.ICEBERG: {**_LAKE, "catalog": parse_non_empty, "table": parse_non_empty},
    Connector.DELTA: _LAKE,
    Connector.PARQUET: _LAKE,
}
REQUIRED: Final[Mapping[Connector, tuple[str, ...]]] = {
    Connector.FILES: ("path",),
    Connector.POSTGRESQL: ("connection",),
    Connector.DELTA: ("location",),
    Connector.PARQUET: ("location",),
}

_OPENING: Final = "<("
_CLOSING: Final = ">)"
_NOT_TYPES: Final = ("DEFAULT", "GENERATED", "COMMENT", "NOT", "AS", "PRIMARY")


def is_one_type(text: str) -> bool:
    """True for `STRUCT<a: INT, b: STRING>`; False for `INT, b STRING` and `INT DEFAULT f()`."""
    try:
        tokens = list(tokenize(text))[:-1]
    except StatementError:
        return False
    depth = 0
    for token in tokens:
        if token.kind is TokenKind.SIGN:
            depth += (token.value in _OPENING) - (token.value in _CLOSING)
            if depth < 0 or (depth == 0 and token.value not in _CLOSING):
                return False
        elif depth == 0 and (token.kind is not TokenKind.WORD or token.is_keyword(*_NOT_TYPES)):
            return False
    return bool(tokens) and depth == 0
