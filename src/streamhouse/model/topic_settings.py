"""Topic settings: Kafka's settings of topics, with type, default and description.

Owns        the settings, checks of their values, and which are accepted for compatibility only
Leaves      the effective `TopicConfig` to `topic`; applying it to `broker`; tables to `table`
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from streamhouse.model.table import (
    APPEND,
    COMMIT_INTERVAL_MS,
    FORMATS,
    NO_TABLE,
    UPSERT,
    parse_key,
    parse_location,
    parse_partitions_if_any,
    parse_table_name,
)

MAX_LONG: Final = 2**63 - 1
MAX_INT: Final = 2**31 - 1
DAY_MS: Final = 24 * 3600 * 1000

POLICIES: Final = ("delete", "compact")
CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

REPLICATION_FACTOR: Final = "streamhouse.replication.factor"
MAX_REPLICATION: Final = 32

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")
_REPLICA: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")


class SettingType(Enum):
    """The type of a setting in Kafka's terms, which tools use for display and editing."""

    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    """A topic setting. `synonym` is Kafka's name of the broker setting with the default of all topics; empty if there
    is none."""

    name: str
    type: SettingType
    default: str
    parse: Callable[[str], object]
    synonym: str
    about: str


def whole(low: int, high: int) -> Callable[[str], int]:
    """A parser for whole numbers in this range; it raises `ValueError` for anything else."""

    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text.strip()):
            raise ValueError("must be a whole number")
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"must lie between {low} and {high}")
        return value

    return parse


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("must lie between 0 and 1")
    return value


def switch(text: str) -> bool:
    """Parse true or false; raises `ValueError` for anything else."""
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.strip().lower() == "true"


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return text

    return parse


def split_list(text: str) -> list[str]:
    """The items of a comma-separated list; none for an empty text."""
    return [part.strip() for part in text.split(",")] if text.strip() else []


def _policies(text: str) -> list[str]:
    chosen = split_list(text)
    if any(part not in POLICIES for part in chosen) or len(set(chosen)) != len(chosen):
        raise ValueError("must be delete, compact, both with a comma, or nothing: then records stay forever")
    return chosen


def _throttled(text: str) -> list[str]:
    chosen = split_list(text)
    if chosen != ["*"] and any(not _REPLICA.fullmatch(part) for part in chosen):
        raise ValueError("must be *, or PARTITION:BROKER with commas between, or nothing")
    return chosen


def _long(name: str, default: int, synonym: str, about: str, *, low: int = 0) -> TopicSetting:
    return TopicSetting(
        name=name,
        type=SettingType.LONG,
        default=str(default),
        parse=whole(low, MAX_LONG),
        synonym=synonym,
        about=about,
    )


def _int(name: str, default: int, synonym: str, about: str, *, low: int = 0, high: int = MAX_INT) -> TopicSetting:
    return TopicSetting(
        name=name, type=SettingType.INT, default=str(default), parse=whole(low, high), synonym=synonym, about=about
    )


def _boolean(
    name: str, default: str, synonym: str, about: str, *, parse: Callable[[str], object] = switch
) -> TopicSetting:
    return TopicSetting(name=name, type=SettingType.BOOLEAN, default=default, parse=parse, synonym=synonym, about=about)


def _string(name: str, default: str, synonym: str, about: str, *allowed: str) -> TopicSetting:
    return TopicSetting(
        name=name, type=SettingType.STRING, default=default, parse=_one_of(*allowed), synonym=synonym, about=about
    )


def _text(
    name: str, synonym: str, about: str, parse: Callable[[str], object], *, kind: SettingType = SettingType.STRING
) -> TopicSetting:
    """A setting whose default is an empty text."""
    return TopicSetting(name=name, type=kind, default="", parse=parse, synonym=synonym, about=about)


_HONOURED: Final = (
    TopicSetting(
        name="cleanup.policy",
        type=SettingType.LIST,
        default="delete",
        parse=_policies,
        synonym="log.cleanup.policy",
        about="what happens to old records: delete, compact, or both; empty: they stay forever",
    ),
    _long(
        "retention.ms",
        7 * DAY_MS,
        "log.retention.ms",
        "records older than this may be deleted; -1 keeps them forever",
        low=-1,
    ),
    _long(
        "retention.bytes",
        -1,
        "log.retention.bytes",
        "the oldest records of a partition larger than this may be deleted; -1 sets no limit",
        low=-1,
    ),
    _int(
        "max.message.bytes",
        1024 * 1024 + 12,
        "message.max.bytes",
        "largest record batch that is accepted, as sent (compressed)",
    ),
    _string(
        "message.timestamp.type",
        "CreateTime",
        "log.message.timestamp.type",
        "whether records keep the producer's timestamp or get the agent's",
        "CreateTime",
        "LogAppendTime",
    ),
    _long(
        "message.timestamp.before.max.ms",
        MAX_LONG,
        "log.message.timestamp.before.max.ms",
        "how far a producer's timestamp may lie behind the agent's clock",
    ),
    _long(
        "message.timestamp.after.max.ms",
        3600 * 1000,
        "log.message.timestamp.after.max.ms",
        "how far a producer's timestamp may lie ahead of the agent's clock",
    ),
)

_CHECKS: Final = ("false", "true", "id", "subject")
_CHECKED: Final = (
    "must begin with a schema id (a zero byte and four bytes) that the registry knows: id, or true; that belongs to "
    "the subject {subject}: subject; false: anything goes"
)

_FOR_SCHEMAS: Final = (
    _string(
        "streamhouse.schema.validation",
        "false",
        "streamhouse.schema.validation",
        "values of records, unless null, " + _CHECKED.format(subject="TOPIC-value"),
        *_CHECKS,
    ),
    _string(
        "streamhouse.schema.validation.key",
        "false",
        "streamhouse.schema.validation.key",
        "keys of records, unless null, " + _CHECKED.format(subject="TOPIC-key"),
        *_CHECKS,
    ),
    _boolean(
        "confluent.value.schema.validation",
        "false",
        "confluent.value.schema.validation",
        "true is the same as streamhouse.schema.validation=subject",
    ),
    _boolean(
        "confluent.key.schema.validation",
        "false",
        "confluent.key.schema.validation",
        "true is the same as streamhouse.schema.validation.key=subject",
    ),
)

_FOR_COMPACTION: Final = (
    _long(
        "delete.retention.ms",
        DAY_MS,
        "log.cleaner.delete.retention.ms",
        "how long a record without a value stays after its first compaction, so that readers learn of the deletion",
    ),
    _long(
        "min.compaction.lag.ms",
        0,
        "log.cleaner.min.compaction.lag.ms",
        "how long a record stays as it is at least, in a compacted topic",
    ),
    _long(
        "max.compaction.lag.ms",
        MAX_LONG,
        "log.cleaner.max.compaction.lag.ms",
        "after how long a record of a compacted topic is compacted at the latest, give or take the agent's setting "
        "compaction.interval_s",
        low=1,
    ),
    TopicSetting(
        name="min.cleanable.dirty.ratio",
        type=SettingType.DOUBLE,
        default="0.5",
        parse=_share,
        synonym="log.cleaner.min.cleanable.ratio",
        about="the share of a compacted topic's bytes that must be new before it is compacted again",
    ),
)

_FOR_TABLES: Final = (
    _string(
        "table.format",
        NO_TABLE,
        "table.format",
        "the topic is also a table that other engines read, of this format; a supervisor (`streamhouse pipelines run`) "
        "writes it",
        *FORMATS,
    ),
    _text(
        "table.name",
        "table.name",
        "what the table is called; empty: TOPIC_lake, where dots and dashes are underscores",
        parse_table_name,
    ),
    _string(
        "table.mode",
        APPEND,
        "table.mode",
        "append: every record that has a value is a row; upsert: rows replace and delete each other by table.key",
        APPEND,
        UPSERT,
    ),
    _text(
        "table.key",
        "table.key",
        "columns that tell rows apart, with commas between, for table.mode=upsert",
        parse_key,
        kind=SettingType.LIST,
    ),
    _text(
        "table.partition.by",
        "table.partition.by",
        "by what the table is partitioned: country, day(ts), for Iceberg also bucket(16, id); empty: not at all",
        parse_partitions_if_any,
    ),
    _text(
        "table.location",
        "table.location",
        "where the table is: a folder's path from the root, or s3://bucket/prefix; empty: lake/NAME beside the records",
        parse_location,
    ),
    _long(
        "table.commit.interval.ms",
        COMMIT_INTERVAL_MS,
        "table.commit.interval.ms",
        "time between commits of the table: how fresh it is, and how many files it has",
        low=100,
    ),
)

_NO_EFFECT: Final = "accepted for compatibility, without effect: "
_AGENT_SEALS: Final = _NO_EFFECT + "segments end where the agent's settings flush.segment_bytes and flush.age_s say"
_AGENT_SYNCS: Final = _NO_EFFECT + "when an append is durable is said by the agent's settings wal.fsync"
_AS_PRODUCED: Final = _NO_EFFECT + "batches stay as the producer compressed them, and segments add LZ4 where it pays"
_OWN_INDEX: Final = _NO_EFFECT + "segments carry an index of their blocks"
_NO_REPLICAS: Final = _NO_EFFECT + "the store, not replicas, makes an acknowledged record durable"
_NO_COPIES: Final = _NO_EFFECT + "no records are copied when a partition moves, so there is nothing to throttle"
_NO_TIERS: Final = _NO_EFFECT + "all records are in the object store, and there is no second tier"

_ACCEPTED: Final = (
    _string("compression.type", "producer", "compression.type", _AS_PRODUCED, *CODECS),
    _int("compression.gzip.level", -1, "compression.gzip.level", _AS_PRODUCED, low=-1, high=9),
    _int("compression.lz4.level", 9, "compression.lz4.level", _AS_PRODUCED, low=1, high=17),
    _int("compression.zstd.level", 3, "compression.zstd.level", _AS_PRODUCED, low=-131072, high=22),
    _int("min.insync.replicas", 1, "min.insync.replicas", _NO_REPLICAS, low=1),
    _boolean("unclean.leader.election.enable", "false", "unclean.leader.election.enable", _NO_REPLICAS),
    _int("segment.bytes", 1024**3, "log.segment.bytes", _AGENT_SEALS, low=14),
    _long("segment.ms", 7 * DAY_MS, "log.roll.ms", _AGENT_SEALS, low=1),
    _long("segment.jitter.ms", 0, "log.roll.jitter.ms", _AGENT_SEALS),
    _int("segment.index.bytes", 10 * 1024**2, "log.index.size.max.bytes", _OWN_INDEX, low=4),
    _int("index.interval.bytes", 4096, "log.index.interval.bytes", _OWN_INDEX),
    _long(
        "file.delete.delay.ms",
        60_000,
        "log.segment.delete.delay.ms",
        _NO_EFFECT + "objects are deleted after the agent's setting retention.grace_s",
    ),
    _long("flush.messages", MAX_LONG, "log.flush.interval.messages", _AGENT_SYNCS, low=1),
    _long("flush.ms", MAX_LONG, "log.flush.interval.ms", _AGENT_SYNCS),
    _boolean("preallocate", "false", "log.preallocate", _NO_EFFECT + "segments are objects, not files that grow"),
    _text("leader.replication.throttled.replicas", "", _NO_COPIES, _throttled, kind=SettingType.LIST),
    _text("follower.replication.throttled.replicas", "", _NO_COPIES, _throttled, kind=SettingType.LIST),
    _boolean("remote.storage.enable", "false", "remote.log.storage.system.enable", _NO_TIERS),
    _boolean("remote.log.copy.disable", "false", "", _NO_TIERS),
    _boolean("remote.log.delete.on.disable", "false", "", _NO_TIERS),
    _long("local.retention.ms", -2, "log.local.retention.ms", _NO_TIERS, low=-2),
    _long("local.retention.bytes", -2, "log.local.retention.bytes", _NO_TIERS, low=-2),
    _int(
        REPLICATION_FACTOR,
        1,
        "",
        "the replication factor that the topic was created with, or its partitions were reassigned with: tools are "
        "shown as many replicas; what makes a record durable is the store",
        low=1,
        high=MAX_REPLICATION,
    ),
)

TOPIC_SETTINGS: Final[Mapping[str, TopicSetting]] = {
    setting.name: setting for setting in (*_HONOURED, *_FOR_COMPACTION, *_FOR_SCHEMAS, *_FOR_TABLES, *_ACCEPTED)
}
