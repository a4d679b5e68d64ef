"""Table creating: what `streamhouse tables create` asks of agents, and what becomes of table and pipeline.

Owns        where a table is unless somebody says so; what is refused before anything changes; one outcome of two
            definitions
Leaves      flags to `tables`, statements and what may change to `format.lake_tables`
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

import typer

from streamhouse.cli.doors import Doors, installed
from streamhouse.cli.pipeline_asking import asked, path_of
from streamhouse.config import without_password
from streamhouse.errors import AnotherTable, Rejected
from streamhouse.format.lake_options import some_partitions
from streamhouse.format.lake_tables import TopicAsTable, differences, kept_table, statements_of
from streamhouse.model.pipeline import Wish
from streamhouse.model.table import LAKE

if TYPE_CHECKING:
    from streamhouse.client.http import Http

FORMATS: Final = tuple(each.value for each in LAKE)
FOLDER: Final = "lake"
"""Of tables that nobody named a place for. In a store, agents look only at names that begin otherwise."""
OBJECTS: Final = "objects"
"""The store in an agent's data folder, where it wasn't told of another."""
PLACES: Final = "a folder or s3://bucket/prefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """What became of table and pipeline: created, changed or unchanged."""

    outcome: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What agents keep by this name: a table, and the pipeline that fills it."""

    table: Mapping[str, Any] | None
    pipeline: Mapping[str, Any] | None


async def create_table(doors: Doors, address: str, wanted: TopicAsTable) -> Created:
    """Have agents keep it; `location` may be empty. Raises `Rejected` before anything is changed."""
    async with doors.http(address) as http:
        known = await _known(http, wanted)
        kept = kept_table(known.table, known.pipeline) if known.table else None
        place = wanted.location or (kept.location if kept else "") or default_location(await _store(http), wanted.name)
        wanted = replace(wanted, location=place)
        if kept is not None:
            wanted = fitting(kept, wanted)
        if known.table is None or known.pipeline is None:
            await _check_columns(doors, address, wanted)
        return Created(outcome=await _applied(doors, http, wanted, known), location=place)


# --- what is there


async def _known(http: "Http", wanted: TopicAsTable) -> Known:
    tables = {each["name"]: each for each in (await asked(http, "GET", "/v1/tables"))["tables"]}
    if tables.get(wanted.topic, {}).get("connector") != "topic":
        raise Rejected(f"no such topic; topic={wanted.topic} do=streamhouse topics create {wanted.topic}")
    table = tables.get(wanted.name)
    if table is not None and table["connector"] not in FORMATS:
        raise Rejected(f"the name is taken; name={wanted.name} by={table['connector']} do=choose another")
    if table is not None and table.get("columns") is not None:
        raise Rejected(
            f"it was declared with its columns; table={wanted.name} do=change it in SQL, or choose another name"
        )
    pipelines = (await asked(http, "GET", "/v1/pipelines"))["pipelines"]
    return Known(table=table, pipeline=_writer(wanted.name, pipelines))


def _writer(name: str, pipelines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    for each in pipelines:
        if each["name"] == name and each.get("target") != name:
            raise Rejected(f"a pipeline has this name, and writes elsewhere; name={name} target={each.get('target')}")
        if each["name"] != name and each.get("target") == name:
            raise Rejected(f"another pipeline writes it; table={name} pipeline={each['name']} do=choose another name")
    return next((each for each in pipelines if each["name"] == name), None)


def fitting(kept: TopicAsTable, wanted: TopicAsTable) -> TopicAsTable:
    """What is wanted of a table that is there; raises `Rejected` where it would have to be another one."""
    found = differences(kept, wanted)
    if found:
        raise AnotherTable(wanted.name, found)
    if kept.topic and wanted.starting is not None and wanted.starting != (kept.starting or "earliest"):
        raise Rejected(
            f"it has begun already; table={wanted.name}"
            f" do=streamhouse pipelines restart {wanted.name} --from {wanted.starting}"
        )
    return replace(wanted, starting=kept.starting) if kept.topic else wanted


# --- where


def whole_location(given: str) -> str:
    """What --location means from wherever it is read: somebody else writes there."""
    parts = urlsplit(given)
    if "://" not in given:
        return str(Path(given).expanduser().resolve())
    if parts.scheme == "file" and not parts.netloc and os.path.isabs(unquote(parts.path)):
        return os.path.normpath(unquote(parts.path))
    if parts.scheme == "s3" and parts.netloc and not (parts.query or parts.fragment or "@" in parts.netloc):
        return given.rstrip("/")
    raise typer.BadParameter(f"{without_password(given)!r} can't be; it may be {PLACES}", param_hint="--location")


def default_location(store: str, name: str) -> str:
    """Within the store of agents, or beside it where that is in their data folder; raises `Rejected` for the rest."""
    parts = urlsplit(store)
    if parts.scheme == "file":
        folder = Path("/" + unquote(parts.path).strip("/"))
        return str((folder.parent if folder.name == OBJECTS else folder) / FOLDER / name)
    if parts.scheme == "s3" and not (parts.query or parts.fragment or "@" in parts.netloc):
        return f"{store.rstrip('/')}/{FOLDER}/{name}"
    raise Rejected(
        f"lake tables can't be where agents store records; store={without_password(store)} do=say --location, {PLACES}"
    )


async def _store(http: "Http") -> str:
    return str((await asked(http, "POST", "/v1/read-plans", {"topics": []}))["store"])


# --- columns


async def _check_columns(doors: Doors, address: str, wanted: TopicAsTable) -> None:
    """A key or a partition of no column fails whenever it is tried; where columns aren't known yet, nobody can say."""
    given = wanted.options.get("partition_by")
    partitions = some_partitions(given) if given else ()
    needed = [("--key", name) for name in wanted.key] + [("--partition-by", each.column) for each in partitions]
    if not needed:
        return
    columns = await asyncio.to_thread(doors.topic_columns, address, wanted.topic)
    for flag, name in needed:
        if columns is not None and name not in columns:
            raise Rejected(
                f"{flag} names no column of the topic; column={name} topic={wanted.topic} columns={', '.join(columns)}"
            )


# --- both definitions


async def _applied(doors: Doors, http: "Http", wanted: TopicAsTable, known: Known) -> str:
    with installed("lake"):
        from streamhouse.spark.pipelines.defining import changes_of

    applier = doors.applier(http, wanted.starting)
    became: dict[str, str] = {}
    for change in changes_of(Path("table.sql"), statements_of(wanted)):
        outcome = await applier.apply(change)
        if outcome.outcome == "refused":
            if became.get("table") == "created":  # a table that nobody will ever write
                await asked(http, "DELETE", f"/v1/tables/{quote(wanted.name, safe='')}")
            raise Rejected(f"{outcome.what} {outcome.name}: {outcome.why}")
        became[outcome.what] = outcome.outcome
    # A pipeline reads its table's definition when it starts; one that is paused will do so anyway.
    is_paused = known.pipeline is not None and known.pipeline.get("wish") == Wish.PAUSE
    if became["pipeline"] == "unchanged" and became["table"] != "unchanged" and not is_paused:
        await asked(http, "POST", f"{path_of(wanted.name)}/restart", {"from": None})
    return together(became["table"], became["pipeline"])


def together(table: str, pipeline: str) -> str:
    return table if table == pipeline else "changed"
