"""Table creating: what `streamhouse tables …` asks of agents about lake tables.

Owns        what --location means; tables together with those who write them, and with the topics that ask for them
Leaves      flags to `tables`, what becomes of a table to `pipelines.topic_tables`, refusals to
            `sql.lake_reconciliation`
"""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import typer

from streamhouse.cli.commands.pipeline_requests import send_request
from streamhouse.cli.dependencies import Dependencies, installed
from streamhouse.config import without_password
from streamhouse.errors import Rejected
from streamhouse.sql.lake_reconciliation import FORMATS, JsonObject, ReconcilePlan, StoredDefinitions, reconcile
from streamhouse.sql.lake_tables import SETTINGS_OF, LakeTableSpec

if TYPE_CHECKING:
    from streamhouse.spark.pipelines.topic_tables import Created

PLACES: Final = "a folder or s3://bucket/prefix"
NOBODY_YET: Final = "it isn't made yet; a supervisor does that, or says why it can't: streamhouse pipelines run"


async def create_table(deps: Dependencies, address: str, wanted: LakeTableSpec) -> "Created":
    """Have agents keep it; `location` may be empty. Raises `Rejected` before anything is changed."""
    with installed("lake"):
        from streamhouse.spark.pipelines import topic_tables

    async with deps.http(address) as http:
        return await topic_tables.create_table(http, wanted, partial(deps.topic_columns, address))


async def drop_table(deps: Dependencies, address: str, name: str) -> str:
    """Have agents forget it; returns where its files stay. Raises `Rejected` where it would come back."""
    with installed("lake"):
        from streamhouse.spark.pipelines import topic_tables

    table = find_table(await fetch_tables(deps, address), name)
    if table["asked_by"]:
        raise Rejected(
            f"the settings of its topic ask for it; table={name} topic={table['asked_by']}"
            f" do=streamhouse topics alter {table['asked_by']} --delete-config table.format"
        )
    async with deps.http(address) as http:
        await topic_tables.drop_table(http, name, pipeline=table["pipeline"]["name"] if table["pipeline"] else None)
    return str(table["location"])


async def fetch_tables(deps: Dependencies, address: str) -> list[dict[str, Any]]:
    """Lake tables with those who write them, then those that topics ask for and that aren't there."""
    async with deps.http(address) as http:
        tables = (await send_request(http, "GET", "/v1/tables"))["tables"]
        pipelines = (await send_request(http, "GET", "/v1/pipelines"))["pipelines"]
        topics = (await send_request(http, "GET", "/v1/topics"))["topics"]
    kept = StoredDefinitions(
        tables={each["name"]: each for each in tables}, pipelines={each["name"]: each for each in pipelines}
    )
    return table_list(topics, kept)


def table_list(topics: list[JsonObject], kept: StoredDefinitions) -> list[dict[str, Any]]:
    """`asked_by`: the topic whose settings ask for it now; `refused`: why these don't get what they ask for."""
    decision = reconcile(topics, kept)
    writers = {each.get("target"): each for each in kept.pipelines.values()}
    found = [
        _table_json(each, writers.get(each["name"]), decision)
        for each in kept.tables.values()
        if each["connector"] in FORMATS
    ]
    there = {each["asked_by"] for each in found}
    missing = [each for topic, each in decision.required.items() if topic not in there]
    return found + [_table_not_found(each, decision.refused.get(each.topic, NOBODY_YET)) for each in missing]


def _table_json(table: JsonObject, pipeline: JsonObject | None, decision: ReconcilePlan) -> dict[str, Any]:
    options = table.get("options") or {}
    maker = str(options.get(SETTINGS_OF, ""))
    asked_by = maker if maker in decision.required and decision.required[maker].name == table["name"] else None
    return {
        "name": table["name"],
        "format": table["connector"],
        "mode": options.get("mode", "append"),
        "location": options.get("location"),
        "options": options,
        "pipeline": pipeline,
        "asked_by": asked_by,
        "refused": decision.refused.get(asked_by) if asked_by else None,
    }


def _table_not_found(wanted: LakeTableSpec, why: str) -> dict[str, Any]:
    return {
        "name": wanted.name,
        "format": wanted.connector,
        "mode": wanted.mode,
        "location": wanted.location or None,
        "options": dict(wanted.options),
        "pipeline": None,
        "asked_by": wanted.topic,
        "refused": why,
    }


def find_table(tables: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for table in tables:
        if table["name"] == name:
            return table
    raise Rejected(f"no such lake table; name={name}; see which there are with: streamhouse tables list")


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
