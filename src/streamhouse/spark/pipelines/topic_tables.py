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
"""The columns of a topic, None while they are unknown. May block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """The outcome for table and pipeline: created, changed or unchanged."""

    outcome: str
    location: str


async def create_table(http: Http, spec: LakeTableSpec, columns: Columns) -> Created:
    """Store the definitions with agents; `location` may be empty. Raises `Rejected` before anything is changed."""
    known = lookup_table(spec, await kept_by(http))
    if (stored := known.spec) is not None:
        spec = with_stored_values(stored, spec)
    if not spec.location:
        spec = replace(spec, location=default_location(await _store(http), spec))
    if known.table is None or known.pipeline is None:
        await _check_columns(spec, columns)
    return Created(outcome=await _applied(http, spec, known), location=spec.location)


async def drop_table(http: Http, name: str, *, pipeline: str | None) -> None:
    """Drop a table and the pipeline that fills it; no error if they don't exist. Files stay."""
    paths = [path_of("pipelines", pipeline)] if pipeline else []
    for path in (*paths, path_of("tables", name)):
        response = await http.send("DELETE", path)
        if response.status != NOT_FOUND:
            decode_response(response)


async def kept_by(http: Http) -> StoredDefinitions:
    """Every table and pipeline."""
    tables = await send(http, "GET", "/v1/tables")
    pipelines = await send(http, "GET", "/v1/pipelines")
    return StoredDefinitions(
        tables={each["name"]: each for each in tables["tables"]},
        pipelines={each["name"]: each for each in pipelines["pipelines"]},
    )


async def send(http: Http, method: str, path: str, body: object = None) -> dict[str, Any]:
    """The decoded response of an agent; raises `Rejected` or `Unavailable` with its message."""
    return decode_response(await http.send(method, path, body=body))


def path_of(what: str, name: str) -> str:
    return f"/v1/{what}/{quote(name, safe='')}"


# --- where


def default_location(store: str, spec: LakeTableSpec) -> str:
    """Within the store of agents, or beside it where that is in their data folder; raises `Rejected` for the rest."""
    if folder := lake_folder(store):
        return f"{folder}/{spec.name}"
    remedy = f"set table.location of {spec.settings_of}," if spec.settings_of else "give --location,"
    raise Rejected(
        f"lake tables can't be where agents store records; store={without_password(store)}"
        f" do={remedy} a folder or s3://bucket/prefix"
    )


async def _store(http: Http) -> str:
    return str((await send(http, "POST", "/v1/read-plans", {"topics": []}))["store"])


# --- columns


async def _check_columns(spec: LakeTableSpec, columns: Columns) -> None:
    """Raise `Rejected` for a key or partition of a column that doesn't exist. Passes while columns are unknown."""
    given = spec.options.get("partition_by")
    partitions = parse_partitions(given) if given else ()
    key, partition_by = ("table.key", "table.partition.by") if spec.settings_of else ("--key", "--partition-by")
    needed = [(key, name) for name in spec.key] + [(partition_by, each.column) for each in partitions]
    known = await asyncio.to_thread(columns, spec.topic) if needed else None
    for word, name in needed:
        if known is not None and name not in known:
            raise Rejected(
                f"{word} names no column of the topic; column={name} topic={spec.topic} columns={', '.join(known)}"
            )


# --- both definitions


async def _applied(http: Http, spec: LakeTableSpec, known: KnownTable) -> str:
    applier = DefinitionApplier(http, begin=spec.starting)
    outcomes: dict[str, str] = {}
    for change in changes_of(Path("table.sql"), statements_of(spec)):
        outcome = await applier.apply(change)
        if outcome.outcome == "refused":
            if outcomes.get("table") == "created":  # a table that no pipeline writes
                await send(http, "DELETE", path_of("tables", spec.name))
            raise Rejected(f"{outcome.what} {outcome.name}: {outcome.why}")
        outcomes[outcome.what] = outcome.outcome
    # A pipeline reads its table's definition when it starts; one that is paused will do so anyway.
    is_paused = known.pipeline is not None and known.pipeline.get("wish") == DesiredState.PAUSE
    if outcomes["pipeline"] == "unchanged" and outcomes["table"] != "unchanged" and not is_paused:
        await send(http, "POST", f"{path_of('pipelines', spec.name)}/restart", {"from": None})
    return together(outcomes["table"], outcomes["pipeline"])


def together(table: str, pipeline: str) -> str:
    return table if table == pipeline else "changed"


log = logging.getLogger(__name__)

RETRY_REJECTED_S: Final = 60.0
"""A rejected table is retried after so long, or when its settings change."""

StatusCallback = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RejectedTable:
    """A table that could not be created."""

    spec: LakeTableSpec
    why: str
    again_at: float


class TopicTableReconciler:
    """`run` reconciles until it is cancelled."""

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
        self._reported: Mapping[str, str] = {}
        self._is_away = False

    def __repr__(self) -> str:
        return f"<TopicTableReconciler every_s={self._every_s} refused={list(self._reported)}>"

    async def run(self) -> None:
        while True:
            try:
                await self.reconcile_once()
                self._is_away = False
            except StreamhouseError as error:
                if not self._is_away:
                    log.warning("topic settings can't be read now; error=%s", error)
                self._is_away = True
            await self._clock.sleep(self._ids.jitter(self._every_s))

    async def reconcile_once(self) -> None:
        """Reconcile all topics once."""
        kept = await kept_by(self._http)
        topics = (await send(self._http, "GET", "/v1/topics"))["topics"]  # last: no setting is older than its table
        plan = reconcile(topics, kept, unwanted_before=self._unwanted)
        self._unwanted = plan.unwanted
        refused = {**plan.refused, **await self._drop(plan.drop, kept)}
        self._refused = {each.topic: self._refused[each.topic] for each in plan.make if each.topic in self._refused}
        for spec in plan.make:
            await self._make(spec)
        self._report_errors({**refused, **{topic: each.why for topic, each in self._refused.items()}})

    async def _drop(self, names: Iterable[str], kept: StoredDefinitions) -> dict[str, str]:
        """Returns which could not be dropped, and why; the next round retries."""
        refused: dict[str, str] = {}
        for name in names:
            is_written = kept.pipelines.get(name, {}).get("target") == name
            try:
                await drop_table(self._http, name, pipeline=name if is_written else None)
            except Rejected as error:
                refused[name] = str(error)
            else:
                self._news(name, "dropped: its topic's settings no longer require it; files stay")
        return refused

    async def _make(self, spec: LakeTableSpec) -> None:
        before, now = self._refused.get(spec.topic), self._clock.monotonic()
        if before is not None and before.spec == spec and now < before.again_at:
            return
        try:
            created = await create_table(self._http, spec, self._columns)
        except Retriable:
            raise
        except StreamhouseError as error:  # one topic's trouble is not the next one's
            self._refused[spec.topic] = _RejectedTable(spec=spec, why=str(error), again_at=now + RETRY_REJECTED_S)
            return
        self._refused.pop(spec.topic, None)
        self._news(spec.name, f"{created.outcome} by the settings of {spec.topic}; location={created.location}")

    def _report_errors(self, refused: Mapping[str, str]) -> None:
        """Report each reason once."""
        for topic, why in refused.items():
            if self._reported.get(topic) != why:
                self._news(topic, f"is not the table that its settings require: {why}")
        self._reported = refused
