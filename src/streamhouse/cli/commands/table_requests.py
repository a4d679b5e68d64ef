"""Requests of the commands `streamhouse tables …`: list, create and drop lake tables; absolute locations.

`tables.py` has the commands and their options, `sql.lake_reconciliation` decides which settings of topics are rejected.
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

LOCATIONS: Final = "a folder or s3://bucket/prefix"
NOT_CREATED: Final = "not created yet; a supervisor creates it, or reports why it can't: streamhouse pipelines run"


async def create_table(deps: Dependencies, address: str, spec: LakeTableSpec) -> "Created":
    """Create a lake table; `location` may be empty. Raises `Rejected` before anything is changed."""
    with installed("lake"):
        from streamhouse.spark.pipelines import topic_tables

    async with deps.http(address) as http:
        return await topic_tables.create_table(http, spec, partial(deps.topic_columns, address))


async def drop_table(deps: Dependencies, address: str, name: str) -> str:
    """Drop a lake table; its files stay. Return their location. Raises `Rejected` if a topic setting requires it."""
    with installed("lake"):
        from streamhouse.spark.pipelines import topic_tables

    table = find_table(await fetch_tables(deps, address), name)
    if table["asked_by"]:
        raise Rejected(
            f"the settings of its topic require it; table={name} topic={table['asked_by']}"
            f" do=streamhouse topics alter {table['asked_by']} --delete-config table.format"
        )
    async with deps.http(address) as http:
        await topic_tables.drop_table(http, name, pipeline=table["pipeline"]["name"] if table["pipeline"] else None)
    return str(table["location"])


async def fetch_tables(deps: Dependencies, address: str) -> list[dict[str, Any]]:
    """Return lake tables with their pipelines, then tables that topic settings require and that don't exist yet."""
    async with deps.http(address) as http:
        tables = (await send_request(http, "GET", "/v1/tables"))["tables"]
        pipelines = (await send_request(http, "GET", "/v1/pipelines"))["pipelines"]
        topics = (await send_request(http, "GET", "/v1/topics"))["topics"]
    kept = StoredDefinitions(
        tables={table_row["name"]: table_row for table_row in tables},
        pipelines={table_row["name"]: table_row for table_row in pipelines},
    )
    return table_list(topics, kept)


def table_list(topics: list[JsonObject], kept: StoredDefinitions) -> list[dict[str, Any]]:
    """`asked_by` is the topic whose settings require the table; `refused` is why these settings have no effect."""
    decision = reconcile(topics, kept)
    writers = {table.get("target"): table for table in kept.pipelines.values()}
    tables = [
        _table_json(table, writers.get(table["name"]), decision)
        for table in kept.tables.values()
        if table["connector"] in FORMATS
    ]
    existing_topics = {table["asked_by"] for table in tables}
    missing = [table for topic, table in decision.required.items() if topic not in existing_topics]
    return tables + [_missing_table_json(table, decision.refused.get(table.topic, NOT_CREATED)) for table in missing]


def _table_json(table: JsonObject, pipeline: JsonObject | None, decision: ReconcilePlan) -> dict[str, Any]:
    options = table.get("options") or {}
    maker = str(options.get(SETTINGS_OF, ""))
    topic = maker if maker in decision.required and decision.required[maker].name == table["name"] else None
    return {
        "name": table["name"],
        "format": table["connector"],
        "mode": options.get("mode", "append"),
        "location": options.get("location"),
        "options": options,
        "pipeline": pipeline,
        "asked_by": topic,
        "refused": decision.refused.get(topic) if topic else None,
    }


def _missing_table_json(spec: LakeTableSpec, why: str) -> dict[str, Any]:
    return {
        "name": spec.name,
        "format": spec.connector,
        "mode": spec.mode,
        "location": spec.location or None,
        "options": dict(spec.options),
        "pipeline": None,
        "asked_by": spec.topic,
        "refused": why,
    }


def find_table(tables: list[dict[str, Any]], name: str) -> dict[str, Any]:
    for table in tables:
        if table["name"] == name:
            return table
    raise Rejected(f"no such lake table; name={name}; see which there are with: streamhouse tables list")


def whole_location(location: str) -> str:
    """Make --location absolute, because another process uses it."""
    parts = urlsplit(location)
    if "://" not in location:
        return str(Path(location).expanduser().resolve())
    if parts.scheme == "file" and not parts.netloc and os.path.isabs(unquote(parts.path)):
        return os.path.normpath(unquote(parts.path))
    if parts.scheme == "s3" and parts.netloc and not (parts.query or parts.fragment or "@" in parts.netloc):
        return location.rstrip("/")
    raise typer.BadParameter(
        f"{without_password(location)!r} is not a location; give {LOCATIONS}", param_hint="--location"
    )
