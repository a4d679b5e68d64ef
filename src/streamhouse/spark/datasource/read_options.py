"""Read options of the source, named as in Spark's Kafka connector.

Data path   `.option(...)` -> **options** -> planning
Owns        names, forms and defaults of options; what contradicts what
Leaves      whether topics and offsets exist to `split_planner`

Options of logins are in `agents.address`; credentials of the object store are no options: executors and driver take
them from their environment.
"""

import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from streamhouse.errors import Misconfigured
from streamhouse.model.names import TopicPartition
from streamhouse.spark.agents.address import LOGIN_OPTIONS, AgentAddress, with_login
from streamhouse.spark.columns import METADATA_PREFIX
from streamhouse.spark.runtime import AGENTS_VARIABLE, DEFAULT_AGENTS
from streamhouse.sql.options import parse_duration_ms

HTTP_PORT: Final = 8080
"""Default HTTP port of an agent."""
DEFAULT_SPLIT_BYTES: Final = 64 * 1024 * 1024
DEFAULT_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000

EARLIEST: Final = -2
LATEST: Final = -1

_SUBSCRIPTIONS: Final = ("topic", "subscribe", "subscribePattern", "assign")
BOOTSTRAP: Final = "kafka.bootstrap.servers"
_KNOWN: Final = (
    *_SUBSCRIPTIONS,
    "agents",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxSplitBytes",
    "failOnDataLoss",
    "includeHeaders",
    "schema",
    "decodeErrors",
    "metadataPrefix",
    "storeAccess",
    *LOGIN_OPTIONS,
)
# Options of Kafka's connector that have no meaning here; ignored, so that its jobs run unchanged.
_IGNORED: Final = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix", "path", "checkpointlocation")


class UniformOffset(NamedTuple):
    """The same offset in every partition: EARLIEST or LATEST."""

    offset: int


class SpecificOffsets(NamedTuple):
    """An offset for each partition, EARLIEST and LATEST among them."""

    offsets: Mapping[TopicPartition, int]


class SpecificTimestamps(NamedTuple):
    """The first record with a timestamp or a later one, by partition; `others` is for all other partitions."""

    by_partition: Mapping[TopicPartition, int]
    others: int | None = None

    def of(self, partition: TopicPartition) -> int | None:
        return self.by_partition.get(partition, self.others)


OffsetLimit: TypeAlias = UniformOffset | SpecificOffsets | SpecificTimestamps


class Subscribe(NamedTuple):
    topics: tuple[str, ...]


class SubscribePattern(NamedTuple):
    pattern: str


class Assign(NamedTuple):
    partitions: tuple[TopicPartition, ...]


Subscription: TypeAlias = Subscribe | SubscribePattern | Assign


class StoreAccess(StrEnum):
    """How executors read segments."""

    DIRECT = "direct"
    """With their own credentials of the object store."""
    SIGNED = "signed"
    """Without: agents sign each read of the object store."""
    AGENTS = "agents"
    """Without: agents read it for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The parsed read options. Limits of a trigger are None if not set."""

    agents: AgentAddress
    subscription: Subscription
    start: OffsetLimit
    end: OffsetLimit
    late_start_is_latest: bool = False
    max_records: int | None = None
    max_bytes: int | None = None
    min_records: int | None = None
    """Minimum records of a trigger: fewer wait for the next one, for `max_delay_ms` at most."""
    max_delay_ms: int = DEFAULT_TRIGGER_DELAY_MS
    min_partitions: int = 1
    max_split_records: int | None = None
    split_bytes: int = DEFAULT_SPLIT_BYTES
    fail_on_data_loss: bool = True
    include_headers: bool = False
    typed: bool = False
    keep_errors: bool = False
    """Malformed records are reported in columns; otherwise they fail the read."""
    keep_values: bool = False
    """All others have their bytes in these columns, too."""
    metadata_prefix: str = METADATA_PREFIX
    """Prefix of metadata columns, where records have columns of their own."""
    access: StoreAccess = StoreAccess.DIRECT

    @property
    def typed_topic(self) -> str:
        """The one topic whose schema gives the columns."""
        if not isinstance(self.subscription, Subscribe) or len(self.subscription.topics) != 1:
            raise Misconfigured("schema=registry is for one topic; do=name it with the option topic")
        return self.subscription.topics[0]


def chosen_agents(options: Mapping[str, str]) -> AgentAddress:
    """Addresses of agents. Jobs of Kafka's connector name Kafka's ports: agents are on the same hosts."""
    configured = options.get("agents") or os.environ.get(AGENTS_VARIABLE)
    return with_login(configured or _beside(options.get(BOOTSTRAP, "")) or DEFAULT_AGENTS, options)


def _beside(bootstrap: str) -> str:
    """`PLAINTEXT://one:9092,two` becomes `one:8080,two:8080`."""
    addresses = [address.rpartition("//")[2].strip() for address in bootstrap.split(",")]
    hosts = [re.sub(r":\d+$", "", address) for address in addresses]
    return ",".join(f"{host}:{HTTP_PORT}" for host in hosts if host)


def read_options(given: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """Understand the options of a batch or a stream (None: not known yet which); raises `Misconfigured`."""
    options = {name.lower(): value for name, value in given.items()}
    _check_names(given)
    return ReadOptions(
        agents=chosen_agents(options),
        subscription=_subscription(options),
        start=_offset_limit(options, "starting", UniformOffset(LATEST if streaming else EARLIEST)),
        end=_end(options, streaming),
        late_start_is_latest=_late_start_is_latest(options),
        max_records=_number(options, "maxOffsetsPerTrigger") or _number(options, "maxRecordsPerTrigger"),
        max_bytes=_number(options, "maxBytesPerTrigger"),
        min_records=_number(options, "minOffsetsPerTrigger"),
        max_delay_ms=_delay_ms(options),
        min_partitions=_number(options, "minPartitions") or 1,
        max_split_records=_number(options, "maxRecordsPerPartition"),
        split_bytes=_number(options, "maxSplitBytes") or DEFAULT_SPLIT_BYTES,
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        include_headers=_flag(options, "includeHeaders", default=False),
        typed=_is_typed(options),
        keep_errors=_decode_errors(options) != "fail",
        keep_values=_decode_errors(options) == "bytes",
        metadata_prefix=_metadata_prefix(options),
        access=_store_access(options),
    )


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _KNOWN}
    for name in given:
        if name.lower() not in known and not name.lower().startswith(_IGNORED):
            close = difflib.get_close_matches(name.lower(), known, n=1)
            meant = f"did you mean {known[close[0]]}" if close else f"known are {', '.join(_KNOWN)}"
            raise Misconfigured(f"unknown option; option={name} do={meant}")


def _subscription(options: Mapping[str, str]) -> Subscription:
    named = [name for name in _SUBSCRIPTIONS if options.get(name.lower())]
    if len(named) != 1:
        detail = f"given={','.join(named)}" if named else "given=none"
        raise Misconfigured(
            f"one of the options {', '.join(_SUBSCRIPTIONS)} is required; {detail}"
            ' do=give one of them, such as .option("topic", "orders")'
        )
    (name,), text = named, options[named[0].lower()]
    if name == "subscribePattern":
        return SubscribePattern(text)
    if name == "assign":
        return Assign(_assigned(text))
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise Misconfigured(f"no topic is named; option={name} value={text!r} do=give names, with commas between")
    return Subscribe(topics)


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    parsed = _json(text, "assign")
    try:
        partitions = [TopicPartition(topic, int(number)) for topic, numbers in parsed.items() for number in numbers]
    except (TypeError, ValueError):
        raise _malformed("assign", text, '{"orders":[0,1]}') from None
    if not partitions:
        raise Misconfigured('no partition is named; option=assign do=write it like {"orders":[0,1]}')
    return tuple(dict.fromkeys(partitions))


def _offset_limit(options: Mapping[str, str], which: str, default: OffsetLimit) -> OffsetLimit:
    """Times go before offsets, one time for all before one for each, as in Kafka's connector."""
    if (time_ms := _number(options, f"{which}Timestamp", least=0)) is not None:
        return SpecificTimestamps({}, time_ms)
    name = f"{which}OffsetsByTimestamp"
    if (text := options.get(name.lower())) is not None:
        return SpecificTimestamps(_by_partition(text, name))
    name = f"{which}Offsets"
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() in ("earliest", "latest"):
        return UniformOffset(EARLIEST if text.strip().lower() == "earliest" else LATEST)
    return SpecificOffsets(_by_partition(text, name))


def _end(options: Mapping[str, str], streaming: bool | None) -> OffsetLimit:
    end = _offset_limit(options, "ending", UniformOffset(LATEST))
    if streaming and any(name.startswith("ending") for name in options):
        raise Misconfigured("a stream has no end; do=leave ending… out, or use trigger(availableNow=True)")
    if end == UniformOffset(EARLIEST) or (isinstance(end, SpecificOffsets) and EARLIEST in end.offsets.values()):
        raise Misconfigured("a read can't end at earliest; do=give endingOffsets a number or latest")
    return end


def _by_partition(text: str, name: str) -> dict[TopicPartition, int]:
    parsed = _json(text, name)
    try:
        offsets = {
            TopicPartition(topic, int(number)): int(offset)
            for topic, numbered in parsed.items()
            for number, offset in numbered.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise _malformed(name, text, '{"orders":{"0":23,"1":-2}}') from None
    if any(offset < EARLIEST for offset in offsets.values()):
        raise Misconfigured(f"an offset is negative; option={name} do=give a number, -2 (earliest) or -1 (latest)")
    return offsets


def _json(text: str, name: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise _malformed(name, text, 'earliest, latest or {"orders":{"0":23}}')
    return parsed


def _malformed(name: str, text: str, form: str) -> Misconfigured:
    return Misconfigured(f"an option can't be read; option={name} value={text[:80]!r} do=write it like {form}")


def _number(options: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < least:
        raise Misconfigured(f"not a number; option={name} value={text!r} do=give a whole one of at least {least}")
    return int(text)


def _delay_ms(options: Mapping[str, str]) -> int:
    """A number alone is milliseconds, as Spark has it."""
    text = options.get("maxtriggerdelay", str(DEFAULT_TRIGGER_DELAY_MS)).strip()
    try:
        return int(text) if text.isdecimal() else parse_duration_ms(text)
    except ValueError:
        raise Misconfigured(
            f"not a duration; option=maxTriggerDelay value={text!r} do=write it like 30s or 15m"
        ) from None


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise Misconfigured(f"neither true nor false; option={name} value={text!r} do=give one of these two")
    return text == "true"


def _store_access(options: Mapping[str, str]) -> StoreAccess:
    text = options.get("storeaccess", StoreAccess.DIRECT).strip().lower()
    if text not in list(StoreAccess):
        raise Misconfigured(f"no such access; option=storeAccess value={text!r} do=one of {', '.join(StoreAccess)}")
    return StoreAccess(text)


def _late_start_is_latest(options: Mapping[str, str]) -> bool:
    text = options.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if text not in ("error", "latest"):
        name = "startingOffsetsByTimestampStrategy"
        raise Misconfigured(f"unknown strategy; option={name} value={text!r} do=error or latest")
    return text == "latest"


def _is_typed(options: Mapping[str, str]) -> bool:
    text = options.get("schema", "").strip().lower()
    if text not in ("", "registry"):
        raise Misconfigured(
            f"unknown schema; option=schema value={text!r} do=give registry, or use .schema(...) for columns"
        )
    return text == "registry"


def _decode_errors(options: Mapping[str, str]) -> str:
    text = options.get("decodeerrors", "fail").strip().lower()
    if text not in ("fail", "columns", "bytes"):
        raise Misconfigured(f"unknown value; option=decodeErrors value={text!r} do=fail, columns or bytes")
    if text != "fail" and not _is_typed(options):
        raise Misconfigured("nothing is decoded; option=decodeErrors do=set schema=registry, or leave it out")
    return text


def _metadata_prefix(options: Mapping[str, str]) -> str:
    prefix = options.get("metadataprefix", METADATA_PREFIX)
    if not prefix:
        raise Misconfigured("a prefix has at least one character; option=metadataPrefix do=give one, such as _record_")
    if prefix != METADATA_PREFIX and not _is_typed(options):
        raise Misconfigured("names have no prefix; option=metadataPrefix do=set schema=registry, or leave it out")
    return prefix
