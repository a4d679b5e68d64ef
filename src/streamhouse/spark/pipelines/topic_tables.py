"""Lake tables of topics: creates and drops them with the pipelines that fill them, and follows topic settings.

Data path   `tables create`, `table.format` of topics -> **topic_tables** -> agents; then a supervisor runs the
            pipeline
Owns        requests, default locations, required columns; when topics are reconciled, and reporting each error once
Leaves      the plan to `sql.lake_reconciliation`, statements to `sql.lake_tables`, flags to the command line

Any number of supervisors reconcile at once: creating a table again or dropping it again changes nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from streamhouse.client.http import Http
from streamhouse.clock import Clock, Ids
from streamhouse.config import without_password
from streamhouse.errors import Rejected, Retriable, StreamhouseError
from streamhouse.model.pipeline import DesiredState
from streamhouse.model.table import lake_folder, parse_partitions
from streamhouse.spark.agents.definition_applier import DefinitionApplier
from streamhouse.spark.agents.resources import decode_response
from streamhouse.sql.definitions import changes_of
from streamhouse.sql.lake_reconciliation import (
    KnownTable,
    StoredDefinitions,
    lookup_table,
    reconcile,
    with_stored_values,
)
from streamhouse.sql.lake_tables import LakeTableSpec, statements_of

NOT_FOUND: Final = 404

Columns = Callable[[str], tuple[str, ...] | None]
"""The columns of a topic, None before anybody can know. It may block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """What became of table and pipeline: created, changed or unchanged."""

    outcome: str
    location: str


async def create_table(http: Http, wanted: LakeTableSpec, columns: Columns) -> Created:
    """Have agents keep it; `location` may be empty. Raises `Rejected` before anything is changed."""
    known = lookup_table(wanted, await kept_by(http))
    if (there := known.spec) is not None:
        wanted = with_stored_values(there, wanted)
    if not wanted.location:
        wanted = replace(wanted, location=default_location(await _store(http), wanted))
    if known.table is None or known.pipeline is None:
        await _check_columns(wanted, columns)
    return Created(outcome=await _applied(http, wanted, known), location=wanted.location)


async def drop_table(http: Http, name: str, *, pipeline: str | None) -> None:
    """Have agents forget a table and the pipeline that fills it, which may have happened already. Files stay."""
    paths = [path_of("pipelines", pipeline)] if pipeline else []
    for path in (*paths, path_of("tables", name)):
        answer = await http.ask("DELETE", path)
        if answer.status != NOT_FOUND:
            decode_response(answer)


async def kept_by(http: Http) -> StoredDefinitions:
    """Every table and pipeline."""
    tables = await send(http, "GET", "/v1/tables")
    pipelines = await send(http, "GET", "/v1/pipelines")
    return StoredDefinitions(
        tables={each["name"]: each for each in tables["tables"]},
        pipelines={each["name"]: each for each in pipelines["pipelines"]},
    )


async def send(http: Http, method: str, path: str, body: object = None) -> dict[str, Any]:
    """What an agent answers; raises `Rejected` or `Unavailable` with its words where it refuses."""
    return decode_response(await http.ask(method, path, body=body))


def path_of(what: str, name: str) -> str:
    return f"/v1/{what}/{quote(name, safe='')}"


# --- where


def default_location(store: str, wanted: LakeTableSpec) -> str:
    """Within the store of agents, or beside it where that is in their data folder; raises `Rejected` for the rest."""
    if folder := lake_folder(store):
        return f"{folder}/{wanted.name}"
    say = f"set table.location of {wanted.settings_of}," if wanted.settings_of else "say --location,"
    raise Rejected(
        f"lake tables can't be where agents store records; store={without_password(store)}"
        f" do={say} a folder or s3://bucket/prefix"
    )


async def _store(http: Http) -> str:
    return str((await send(http, "POST", "/v1/read-plans", {"topics": []}))["store"])


# --- columns


async def _check_columns(wanted: LakeTableSpec, columns: Columns) -> None:
    """A key or a partition of no column fails whenever it is tried; where columns aren't known yet, nobody can say."""
    given = wanted.options.get("partition_by")
    partitions = parse_partitions(given) if given else ()
    key, partition_by = ("table.key", "table.partition.by") if wanted.settings_of else ("--key", "--partition-by")
    needed = [(key, name) for name in wanted.key] + [(partition_by, each.column) for each in partitions]
    found = await asyncio.to_thread(columns, wanted.topic) if needed else None
    for word, name in needed:
        if found is not None and name not in found:
            raise Rejected(
                f"{word} names no column of the topic; column={name} topic={wanted.topic} columns={', '.join(found)}"
            )


# --- both definitions


async def _applied(http: Http, wanted: LakeTableSpec, known: KnownTable) -> str:
    applier = DefinitionApplier(http, begin=wanted.starting)
    became: dict[str, str] = {}
    for change in changes_of(Path("table.sql"), statements_of(wanted)):
        outcome = await applier.apply(change)
        if outcome.outcome == "refused":
            if became.get("table") == "created":  # a table that nobody will ever write
                await send(http, "DELETE", path_of("tables", wanted.name))
            raise Rejected(f"{outcome.what} {outcome.name}: {outcome.why}")
        became[outcome.what] = outcome.outcome
    # A pipeline reads its table's definition when it starts; one that is paused will do so anyway.
    is_paused = known.pipeline is not None and known.pipeline.get("wish") == DesiredState.PAUSE
    if became["pipeline"] == "unchanged" and became["table"] != "unchanged" and not is_paused:
        await send(http, "POST", f"{path_of('pipelines', wanted.name)}/restart", {"from": None})
    return together(became["table"], became["pipeline"])


def together(table: str, pipeline: str) -> str:
    return table if table == pipeline else "changed"


log = logging.getLogger(__name__)

RETRY_REJECTED_S: Final = 60.0
"""What agents, or the columns of a topic, have refused is asked for again after so long, or when it is changed."""

StatusCallback = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RejectedTable:
    """A table that could not be made."""

    wanted: LakeTableSpec
    why: str
    again_at: float


class TopicTableReconciler:
    """`run` goes on until it is cancelled."""

    def __init__(
        self,
        http: Http,
        columns: Columns,
        *,
        every_s: float,
        clock: Clock,
        ids: Ids,
        news: StatusCallback = lambda name, text: None,
    ) -> None:
        self._http, self._columns, self._every_s = http, columns, every_s
        self._clock, self._ids, self._news = clock, ids, news
        self._unwanted: frozenset[str] = frozenset()
        self._refused: dict[str, _RejectedTable] = {}
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
        topics = (await send(self._http, "GET", "/v1/topics"))["topics"]  # last: no setting is older than its table
        decision = reconcile(topics, kept, unwanted_before=self._unwanted)
        self._unwanted = decision.unwanted
        refused = {**decision.refused, **await self._drop(decision.drop, kept)}
        self._refused = {each.topic: self._refused[each.topic] for each in decision.make if each.topic in self._refused}
        for wanted in decision.make:
            await self._make(wanted)
        self._say({**refused, **{topic: each.why for topic, each in self._refused.items()}})

    async def _drop(self, names: Iterable[str], kept: StoredDefinitions) -> dict[str, str]:
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

    async def _make(self, wanted: LakeTableSpec) -> None:
        before, now = self._refused.get(wanted.topic), self._clock.monotonic()
        if before is not None and before.wanted == wanted and now < before.again_at:
            return
        try:
            created = await create_table(self._http, wanted, self._columns)
        except Retriable:
            raise
        except StreamhouseError as error:  # one topic's trouble is not the next one's
            self._refused[wanted.topic] = _RejectedTable(wanted=wanted, why=str(error), again_at=now + RETRY_REJECTED_S)
            return
        self._refused.pop(wanted.topic, None)
        self._news(wanted.name, f"{created.outcome} by the settings of {wanted.topic}; location={created.location}")

    def _say(self, refused: Mapping[str, str]) -> None:
        """Once, until it is another reason."""
        for topic, why in refused.items():
            if self._said.get(topic) != why:
                self._news(topic, f"is not the table that its settings ask for: {why}")
        self._said = refused
