"""External commits: the client with which the sink reads a topic's settings and commits the segments that it wrote.

Data path   sink on the driver -> **commits** -> an agent's HTTP listener -> leaders, one metadata transaction
Owns        requests and responses of commits; their retries
Leaves      the choice of an agent to `client.http`; the segments to `datasource.segment_writer`

A commit is idempotent: it is sent until an agent responds, and the same query and epoch again get the first response.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec

from streamhouse.client.http import Http, HttpResponse
from streamhouse.clock import Clock, Ids, SystemClock
from streamhouse.errors import CommitRefused, Misconfigured, Rejected, Unavailable, UnknownTopic
from streamhouse.model.names import TopicId
from streamhouse.model.replay import is_replay
from streamhouse.model.topic import TopicConfig, parse_topic_config
from streamhouse.model.topic_settings import TOPIC_SETTINGS
from streamhouse.spark.agents.address import AgentAddress, open_http
from streamhouse.spark.agents.client import MAX_CONNECTED, error_detail, error_type, run_on_loop

T = TypeVar("T")

FIRST_WAIT_S: Final = 0.1
MAX_WAIT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 60.0
"""Longer than agents retry a commit themselves (`placing.timeout_s`)."""
FRESH_S: Final = 10.0
"""How long the settings of a topic are cached, for short micro-batches. A stale value is safe: agents check a commit
against the topic's current settings."""
STORE_FRESH_S: Final = 300.0
MAX_FRESH: Final = 1000
NOT_FOUND: Final = 404
LASTING: Final = ("CheckpointMismatch", "StaleCommit")
"""Rejections that a restart of the query does not resolve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTarget:
    """A topic to write to, with its settings."""

    name: str
    topic_id: TopicId
    partitions: int
    config: TopicConfig


class RunRow(msgspec.Struct, frozen=True):
    """A partition's records in a segment; offsets [stored_base, stored_end)."""

    topic: str
    partition: int
    records: int
    stored_base: int
    stored_end: int
    position: int
    length: int
    index_position: int
    index_length: int
    max_timestamp_ms: int


class SegmentRow(msgspec.Struct, frozen=True):
    """An object that a task has stored."""

    key: str
    size_bytes: int
    created_at_ms: int
    runs: tuple[RunRow, ...]


class FenceRow(msgspec.Struct, frozen=True):
    """The owner of the commit; rejected if the pipeline has a newer owner."""

    pipeline: str
    epoch: int


class CommitRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Segments to commit, all or none; `progress` is any JSON, `covers` what it is made of (`model.replay`)."""

    query: str
    epoch: int
    segments: Sequence[SegmentRow]
    progress: Any = None
    fence: FenceRow | None = None
    covers: str | None = None


class CommittedRange(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    base: int
    end: int


class CommitResult(msgspec.Struct, frozen=True):
    """The offsets that partitions got; `replayed`: an earlier attempt had succeeded."""

    placed: list[CommittedRange]
    replayed: bool


class _LastCommit(msgspec.Struct, frozen=True):
    epoch: int
    covers: str | None = None


class _Topic(msgspec.Struct, frozen=True):
    name: str
    id: str
    partitions: int
    effective_settings: dict[str, str]


class CommitSettings(msgspec.Struct, frozen=True):
    """Where segments are to be stored, and how many runs one commit may have; None from an old agent."""

    store: str
    max_commit_runs: int | None = None


@lru_cache(maxsize=MAX_CONNECTED)
def commit_client(address: AgentAddress) -> "CommitClient":
    """The client of an address, for `run_on_loop`. Cached, because Spark's Python workers serve many tasks."""
    return run_on_loop(_connect(address))


async def _connect(address: AgentAddress) -> "CommitClient":
    return CommitClient(open_http(address, timeout_s=REQUEST_TIMEOUT_S), clock=SystemClock(), ids=Ids())


class CommitClient:
    """Use it on one event loop."""

    def __init__(self, http: Http, *, clock: Clock, ids: Ids) -> None:
        self._http = http
        self._clock = clock
        self._ids = ids
        self._targets: dict[str, tuple[float, TopicTarget]] = {}
        self._settings: tuple[float, CommitSettings] | None = None
        self._latest: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<CommitClient {self._http!r}>"

    async def target(self, topic: str, *, timeout_s: float) -> TopicTarget:
        """The settings of a topic, which is created where agents auto-create topics; raises `UnknownTopic`."""
        known = self._targets.get(topic)
        if known is None or self._clock.monotonic() > known[0]:
            if len(self._targets) >= MAX_FRESH:
                self._targets.clear()
            known = self._clock.monotonic() + FRESH_S, await self._find_target(topic, timeout_s)
            self._targets[topic] = known
        return known[1]

    async def commit_settings(self, *, timeout_s: float) -> CommitSettings:
        """The settings of commits, cached."""
        if self._settings is None or self._clock.monotonic() > self._settings[0]:
            send = self._http.send
            response = await self._retry(lambda: send("POST", "/v1/read-plans", body={"topics": []}), timeout_s)
            self._settings = self._clock.monotonic() + STORE_FRESH_S, _decoded(response, CommitSettings)
        return self._settings[1]

    async def _find_target(self, topic: str, timeout_s: float) -> TopicTarget:
        path = f"/v1/topics/{quote(topic, safe='')}"
        response = await self._retry(lambda: self._http.send("GET", path), timeout_s)
        if response.status == NOT_FOUND:
            # Publishing nothing makes a topic where `topics.auto_create` allows it, as a producer's first record does.
            await self._retry(lambda: self._http.send("POST", f"{path}/records", body=b""), timeout_s)
            response = await self._retry(lambda: self._http.send("GET", path), timeout_s)
        if response.status == NOT_FOUND:
            raise UnknownTopic(
                f"{topic} do=look at the option or column topic, or create it: streamhouse topics create {topic}"
            )
        return _target(_decoded(response, _Topic))

    async def commit(self, commit: CommitRequest, *, timeout_s: float) -> CommitResult:
        """Commit segments. Raises `Unavailable` if no agent responds in time: the commit may or may not have happened,
        and is sent again, now or when the query is restarted."""
        response = await self._retry(lambda: self._http.send("POST", "/v1/commits", body=commit), timeout_s)
        if response.status >= 400:
            kind = Rejected if error_type(response) in LASTING else CommitRefused
            raise kind(f"agents reject the commit; query={commit.query} error={error_detail(response)}")
        self._note(commit.query, commit.epoch)
        return _decoded(response, CommitResult)

    async def check_empty(self, query: str, epoch: int, covers: str, *, timeout_s: float) -> None:
        """Check that an empty micro-batch, which commits nothing, doesn't have the epoch of another one.

        Raises `CheckpointMismatch`. Sends a request only for the first batch of a running query: its epochs grow.
        """
        if self._latest.get(query, -1) < epoch and query in self._latest:
            return
        response = await self._retry(lambda: self._http.send("GET", f"/v1/commits/{query}"), timeout_s)
        if response.status != NOT_FOUND:
            last = _decoded(response, _LastCommit)
            is_replay(query, batch=epoch, covers=covers, last=last.epoch, last_covers=last.covers)
        self._note(query, epoch)

    def _note(self, query: str, epoch: int) -> None:
        if len(self._latest) >= MAX_FRESH:
            self._latest.clear()
        self._latest[query] = epoch

    async def _retry(self, request: Callable[[], Awaitable[HttpResponse]], timeout_s: float) -> HttpResponse:
        """Repeat a request until an agent responds, or until the time is over."""
        deadline, longest = self._clock.monotonic() + timeout_s, FIRST_WAIT_S
        while True:
            retry_after_s = 0.0
            try:
                response = await request()
                if response.status < 500 and response.status != 429:
                    return response
                error_text, retry_after_s = error_detail(response), response.retry_after_s
            except Unavailable as error:
                error_text = str(error)
            wait_s = max(self._ids.jitter(longest), retry_after_s)
            if self._clock.monotonic() + wait_s > deadline:
                raise Unavailable(
                    f"no agent available; timeout_s={timeout_s:g} error={error_text}"
                    " do=start the query again once they do, or raise the option commitTimeout"
                )
            await self._clock.sleep(wait_s)
            longest = min(2 * longest, MAX_WAIT_S)


def _decoded(response: HttpResponse, kind: type[T]) -> T:
    if response.status >= 400:
        raise Rejected(error_detail(response))
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.DecodeError as error:
        raise Rejected(f"unexpected response of an agent; error={error} do=use the agents' version here") from None


def _target(topic: _Topic) -> TopicTarget:
    known = {name: text for name, text in topic.effective_settings.items() if name in TOPIC_SETTINGS}
    target = TopicTarget(
        name=topic.name,
        topic_id=TopicId(UUID(topic.id)),
        partitions=topic.partitions,
        config=parse_topic_config(known),
    )
    if target.config.schema_checks:
        raise Misconfigured(
            f"the topic validates schema ids at agents, which the sink bypasses; topic={topic.name}"
            " do=write to a topic without streamhouse.schema.validation"
        )
    return target
