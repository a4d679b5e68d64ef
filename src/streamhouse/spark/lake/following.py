"""Following: topics whose settings say `table.format` are lake tables, and those that a setting made end with it.

Data path   settings of topics -> **following** (in a supervisor) -> creating -> agents; then pipelines run as all do
Owns        when to look, doing what was decided, saying each thing once
Leaves      what is to be done to `format.lake_deciding`, doing it to `creating`

Any number of supervisors do this at once: the same table asked for again is unchanged, one dropped again is gone.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from streamhouse.client.http import Http
from streamhouse.clock import Clock, Ids
from streamhouse.errors import Rejected, Retriable, StreamhouseError
from streamhouse.format.lake_deciding import Kept, decide
from streamhouse.format.lake_tables import TopicAsTable
from streamhouse.spark.lake.creating import Columns, asked, create_table, drop_table, kept_by

log = logging.getLogger(__name__)

REFUSED_AGAIN_S: Final = 60.0
"""What agents, or the columns of a topic, have refused is asked for again after so long, or when it is changed."""

News = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """A table that could not be made."""

    wanted: TopicAsTable
    why: str
    again_at: float


class Following:
    """`run` goes on until it is cancelled."""

    def __init__(
        self,
        http: Http,
        columns: Columns,
        *,
        every_s: float,
        clock: Clock,
        ids: Ids,
        news: News = lambda name, text: None,
    ) -> None:
        self._http, self._columns, self._every_s = http, columns, every_s
        self._clock, self._ids, self._news = clock, ids, news
        self._unwanted: frozenset[str] = frozenset()
        self._refused: dict[str, _Refused] = {}
        self._said: Mapping[str, str] = {}
        self._is_away = False

    def __repr__(self) -> str:
        return f"<Following every_s={self._every_s} refused={list(self._said)}>"

    async def run(self) -> None:
        while True:
            try:
                await self.look()
                self._is_away = False
            except StreamhouseError as error:
                if not self._is_away:
                    log.warning("settings of topics are not looked at now; why=%s", error)
                self._is_away = True
            await self._clock.sleep(self._ids.jitter(self._every_s))

    async def look(self) -> None:
        """All topics once, in one answer."""
        kept = await kept_by(self._http)
        topics = (await asked(self._http, "GET", "/v1/topics"))["topics"]  # last: no setting is older than its table
        decision = decide(topics, kept, unwanted_before=self._unwanted)
        self._unwanted = decision.unwanted
        refused = {**decision.refused, **await self._drop(decision.drop, kept)}
        self._refused = {each.topic: self._refused[each.topic] for each in decision.make if each.topic in self._refused}
        for wanted in decision.make:
            await self._make(wanted)
        self._say({**refused, **{topic: each.why for topic, each in self._refused.items()}})

    async def _drop(self, names: Iterable[str], kept: Kept) -> dict[str, str]:
        """Returns which could not be dropped, and why; the next look tries again."""
        refused: dict[str, str] = {}
        for name in names:
            is_written = kept.pipelines.get(name, {}).get("target") == name
            try:
                await drop_table(self._http, name, pipeline=name if is_written else None)
            except Rejected as error:
                refused[name] = str(error)
            else:
                self._news(name, "dropped: its topic's settings don't ask for it any more; files stay")
        return refused

    async def _make(self, wanted: TopicAsTable) -> None:
        before, now = self._refused.get(wanted.topic), self._clock.monotonic()
        if before is not None and before.wanted == wanted and now < before.again_at:
            return
        try:
            created = await create_table(self._http, wanted, self._columns)
        except Retriable:
            raise
        except StreamhouseError as error:  # one topic's trouble is not the next one's
            self._refused[wanted.topic] = _Refused(wanted=wanted, why=str(error), again_at=now + REFUSED_AGAIN_S)
            return
        self._refused.pop(wanted.topic, None)
        self._news(wanted.name, f"{created.outcome} by the settings of {wanted.topic}; location={created.location}")

    def _say(self, refused: Mapping[str, str]) -> None:
        """Once, until it is another reason."""
        for topic, why in refused.items():
            if self._said.get(topic) != why:
                self._news(topic, f"is not the table that its settings ask for: {why}")
        self._said = refused
