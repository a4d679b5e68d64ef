"""Write options of the sink.

Data path   `.option(...)` -> **write options** -> sink
Owns        names, forms and defaults of the sink's options
Leaves      whether the topic exists to `commits`; which columns there are to `input_rows`
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamhouse.errors import Misconfigured
from streamhouse.format.compression import Codec
from streamhouse.format.object_keys import MAX_EPOCH, is_query_id
from streamhouse.model.external_commit import QueryId
from streamhouse.spark.agents.address import LOGIN_OPTIONS, AgentAddress
from streamhouse.spark.datasource.read_options import chosen_agents
from streamhouse.spark.runtime import DEFAULT_AGENTS

KAFKA_COMPRESSION: Final = "kafka.compression.type"
"""The same choice, in jobs that come from Kafka's connector."""

KIB: Final = 1024
MIB: Final = 1024 * KIB

_KNOWN: Final = (
    "agents",
    "topic",
    "compression",
    "batchBytes",
    "segmentBytes",
    "commitTimeout",
    "queryId",
    "epochId",
    "fence",
    "progressFrom",
    "progress",
    "covers",
    *LOGIN_OPTIONS,
)
# What Spark itself hands on, and what jobs that come from Kafka's connector tune.
_IGNORED: Final = ("kafka.", "path", "checkpointlocation", "queryname", "includeheaders")
_MAX_SEGMENT_BYTES: Final = 1024 * MIB


class CommitId(NamedTuple):
    """The commit that rows belong to."""

    query: QueryId
    epoch: int


class Fence(NamedTuple):
    """A pipeline, and the epoch of its owner."""

    pipeline: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How to write; without a topic every row names its own."""

    agents: AgentAddress = DEFAULT_AGENTS
    topic: str | None = None
    codec: Codec = Codec.LZ4
    batch_bytes: int = 256 * KIB
    """Size of a batch before compression: consumers fetch and decompress whole batches."""
    segment_bytes: int = 64 * MIB
    """A task's object is ended above this, and the next one begun."""
    commit_timeout_s: float = 120.0
    """How long agents that are away are waited for before the query fails; it can be started again."""
    identity: CommitId | None = None
    """The commit of a batch, if options name one: a repeated commit is not written again."""
    fence: Fence | None = None
    """The pipeline whose owner alone may commit; others are refused."""
    progress_from: str | None = None
    """A checkpoint's folder: where a micro-batch ends in its sources is stored with its commit."""
    progress: str | None = None
    """The same as JSON, if the writer has read it."""
    covers: str | None = None
    """The offsets that the micro-batch covers, if known: the same batch id with other offsets is rejected."""
    checkpoint: str | None = None
    """The checkpoint of a stream, which has the offsets of its micro-batches."""


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Understand the options of a sink; raises `Misconfigured`."""
    _check_names(given)
    options = {name.lower(): value for name, value in given.items()}
    defaults = WriteOptions()
    return WriteOptions(
        agents=chosen_agents(options),
        topic=options.get("topic") or None,
        codec=_codec(options),
        batch_bytes=_number(options, "batchBytes", defaults.batch_bytes, least=1, most=64 * MIB),
        segment_bytes=_number(options, "segmentBytes", defaults.segment_bytes, least=1, most=_MAX_SEGMENT_BYTES),
        commit_timeout_s=_number(options, "commitTimeout", int(defaults.commit_timeout_s), least=0, most=86_400),
        identity=_commit_id(options),
        fence=_fence(options.get("fence")),
        progress_from=options.get("progressfrom") or None,
        progress=options.get("progress") or None,
        covers=options.get("covers") or None,
        checkpoint=options.get("checkpointlocation") or None,
    )


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _KNOWN}
    for name in given:
        if name.lower() not in known and not name.lower().startswith(_IGNORED):
            close = difflib.get_close_matches(name.lower(), known, n=1)
            meant = f"did you mean {known[close[0]]}" if close else f"known are {', '.join(_KNOWN)}"
            raise Misconfigured(f"unknown option of the sink; option={name} do={meant}")


def _commit_id(options: Mapping[str, str]) -> CommitId | None:
    query = options.get("queryid")
    if (query is None) != ("epochid" not in options):
        raise Misconfigured("queryId and epochId go together; do=give both, or neither")
    if query is None:
        return None
    if not is_query_id(query.lower()):
        raise Misconfigured(f"not a UUID; option=queryId value={query!r} do=make one with uuid.uuid4() and keep it")
    return CommitId(QueryId(query.lower()), _number(options, "epochId", 0, least=0, most=MAX_EPOCH))


def _fence(text: str | None) -> Fence | None:
    if text is None:
        return None
    pipeline, colon, epoch = text.rpartition(":")
    if not pipeline or not colon or not epoch.isdecimal():
        raise Misconfigured(f"not a pipeline and its epoch; option=fence value={text!r} do=write it like orders:3")
    return Fence(pipeline, int(epoch))


def _codec(options: Mapping[str, str]) -> Codec:
    text = options.get("compression", options.get(KAFKA_COMPRESSION, WriteOptions().codec.name))
    try:
        return Codec[text.strip().upper()]
    except KeyError:
        allowed = ", ".join(codec.name.lower() for codec in Codec)
        raise Misconfigured(f"unknown compression; option=compression value={text!r} do=one of {allowed}") from None


def _number(options: Mapping[str, str], name: str, default: int, *, least: int, most: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    if not text.strip().isdecimal() or not least <= int(text) <= most:
        raise Misconfigured(f"not a number in range; option={name} value={text!r} do=give {least} to {most}")
    return int(text)
