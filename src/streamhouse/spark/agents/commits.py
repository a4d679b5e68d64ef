"""Placing: what the sink asks of agents: what a topic demands of its records, and that segments become part of it.

Data path   sink on the driver -> **placing** -> an agent's HTTP listener -> leaders, one metadata transaction
Owns        the shapes of these questions and answers; patience with agents that are away; what errors tell people
Leaves      finding an agent that answers to `client.http`; the segments to `writing`

A commit is asked for until somebody answers: the same query and epoch again is answered as the first time.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec

from streamhouse.client.http import Http, HttpResponse
from streamhouse.client.loop_thread import LoopThread
from streamhouse.clock import Clock, Ids, SystemClock
from streamhouse.errors import CommitRefused, Misconfigured, Rejected, Unavailable, UnknownTopic
from streamhouse.model.names import TopicId
from streamhouse.model.replay import is_replay
from streamhouse.model.topic import TopicConfig, parse_topic_config
from streamhouse.model.topic_settings import TOPIC_SETTINGS
from streamhouse.spark.agents.client import error_detail, error_type

T = TypeVar("T")

FIRST_WAIT_S: Final = 0.1
MAX_WAIT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 60.0
"""Longer than agents try a commit themselves (`placing.timeout_s`)."""
MAX_CONNECTED: Final = 8
FRESH_S: Final = 10.0
"""For so long an answer about a topic holds: quick micro-batches ask once for many. What it says is only help: agents
judge a commit by what the topic is then."""
STORE_FRESH_S: Final = 300.0
MAX_FRESH: Final = 1000
NOT_FOUND: Final = 404
LASTING: Final = ("CheckpointMismatch", "StaleCommit")
"""Refusals that stay so however often a query is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTarget:
    """A topic to write to, and what it demands."""

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
    """Whose commit it is; refused where another one owns the pipeline by now."""

    pipeline: str
    epoch: int


class CommitRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to be placed, all or nothing; `progress` is any JSON, `covers` what it is made of (`model.replay`)."""

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
    """Which offsets partitions got; `replayed`: an earlier try had succeeded."""

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
    """Where segments are to be stored, and how many runs one commit may have; None: the agents don't say."""

    store: str
    max_commit_runs: int | None = None


class Connected(NamedTuple):
    """Agents, and the thread whose event loop talks to them."""

    loop: LoopThread
    agents: "CommitClient"


@lru_cache(maxsize=MAX_CONNECTED)
def connected(address: str) -> Connected:
    """Kept for whatever the same process does next: Spark's Python workers live on."""
    loop = LoopThread(name="streamhouse-placing")
    return Connected(loop, loop.run(_connect(address)))


async def _connect(address: str) -> "CommitClient":
    return CommitClient(Http(address, timeout_s=REQUEST_TIMEOUT_S), clock=SystemClock(), ids=Ids())


class CommitClient:
    """Use it on one event loop."""

    def __init__(self, http: Http, *, clock: Clock, ids: Ids) -> None:
        self._http = http
        self._clock = clock
        self._ids = ids
        self._targets: dict[str, tuple[float, TopicTarget]] = {}
        self._place: tuple[float, CommitSettings] | None = None
        self._latest: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<PlacingAgents {self._http!r}>"

    async def target(self, topic: str, *, timeout_s: float) -> TopicTarget:
        """What there is to know of a topic, which is made where agents do that; raises `UnknownTopic`."""
        known = self._targets.get(topic)
        if known is None or self._clock.monotonic() > known[0]:
            if len(self._targets) >= MAX_FRESH:
                self._targets.clear()
            known = self._clock.monotonic() + FRESH_S, await self._find_target(topic, timeout_s)
            self._targets[topic] = known
        return known[1]

    async def commit_settings(self, *, timeout_s: float) -> CommitSettings:
        """Where segments are to be stored, and what a commit may have."""
        if self._place is None or self._clock.monotonic() > self._place[0]:
            ask = self._http.ask
            answer = await self._patiently(lambda: ask("POST", "/v1/read-plans", body={"topics": []}), timeout_s)
            self._place = self._clock.monotonic() + STORE_FRESH_S, _decoded(answer, CommitSettings)
        return self._place[1]

    async def _find_target(self, topic: str, timeout_s: float) -> TopicTarget:
        path = f"/v1/topics/{quote(topic, safe='')}"
        answer = await self._patiently(lambda: self._http.ask("GET", path), timeout_s)
        if answer.status == NOT_FOUND:
            # Publishing nothing makes a topic where `topics.auto_create` allows it, as a producer's first record does.
            await self._patiently(lambda: self._http.ask("POST", f"{path}/records", body=b""), timeout_s)
            answer = await self._patiently(lambda: self._http.ask("GET", path), timeout_s)
        if answer.status == NOT_FOUND:
            raise UnknownTopic(
                f"{topic} do=look at the option or column topic, or create it: streamhouse topics create {topic}"
            )
        return _target(_decoded(answer, _Topic))

    async def commit(self, commit: CommitRequest, *, timeout_s: float) -> CommitResult:
        """Have segments placed; raises `Unavailable` when nobody answers in time, and it may or may not have happened:
        then it is asked for again, now or when the query is started again."""
        answer = await self._patiently(lambda: self._http.ask("POST", "/v1/commits", body=commit), timeout_s)
        if answer.status >= 400:
            kind = Rejected if error_type(answer) in LASTING else CommitRefused
            raise kind(f"agents don't place what was written; query={commit.query} why={error_detail(answer)}")
        self._note(commit.query, commit.epoch)
        return _decoded(answer, CommitResult)

    async def check_empty(self, query: str, epoch: int, covers: str, *, timeout_s: float) -> None:
        """A micro-batch without rows commits nothing, and yet may not have the number of another one.

        Raises `CheckpointMismatch`. Asks once for a query that goes on: its numbers grow.
        """
        if self._latest.get(query, -1) < epoch and query in self._latest:
            return
        answer = await self._patiently(lambda: self._http.ask("GET", f"/v1/commits/{query}"), timeout_s)
        if answer.status != NOT_FOUND:
            last = _decoded(answer, _LastCommit)
            is_replay(query, batch=epoch, covers=covers, last=last.epoch, last_covers=last.covers)
        self._note(query, epoch)

    def _note(self, query: str, epoch: int) -> None:
        if len(self._latest) >= MAX_FRESH:
            self._latest.clear()
        self._latest[query] = epoch

    async def _patiently(self, question: Callable[[], Awaitable[HttpResponse]], timeout_s: float) -> HttpResponse:
        """Ask until somebody answers, or until the time is over."""
        deadline, longest = self._clock.monotonic() + timeout_s, FIRST_WAIT_S
        while True:
            retry_after_s = 0.0
            try:
                answer = await question()
                if answer.status < 500 and answer.status != 429:
                    return answer
                why, retry_after_s = error_detail(answer), answer.retry_after_s
            except Unavailable as error:
                why = str(error)
            wait_s = max(self._ids.jitter(longest), retry_after_s)
            if self._clock.monotonic() + wait_s > deadline:
                raise Unavailable(
                    f"agents don't answer; timeout_s={timeout_s:g} why={why}"
                    " do=start the query again once they do, or raise the option commitTimeout"
                )
            await self._clock.sleep(wait_s)
            longest = min(2 * longest, MAX_WAIT_S)


def _decoded(answer: HttpResponse, kind: type[T]) -> T:
    if answer.status >= 400:
        raise Rejected(error_detail(answer))
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except msgspec.DecodeError as error:
        raise Rejected(f"unexpected answer of an agent; why={error} do=use the agents' version here") from None


def _target(told: _Topic) -> TopicTarget:
    known = {name: text for name, text in told.effective_settings.items() if name in TOPIC_SETTINGS}
    target = TopicTarget(
        name=told.name,
        topic_id=TopicId(UUID(told.id)),
        partitions=told.partitions,
        config=parse_topic_config(known),
    )
    if target.config.schema_checks:
        raise Misconfigured(
            f"the topic wants its records' schema ids judged by agents, whom the sink doesn't ask; topic={told.name}"
            " do=write to a topic without streamhouse.schema.validation"
        )
    return target
