"""Rows of pipelines: conversion of tables, pipelines, views and workers to rows and back.

Data path   between the engines and `procedures`
Owns        both directions
Leaves      column names to `sql/`
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

import msgspec

from streamhouse.format.metadata_values import view_lookup_key, view_sort_key
from streamhouse.model.access import Principal
from streamhouse.model.pipeline import (
    Definition,
    DesiredState,
    Kind,
    Ownership,
    Phase,
    Pipeline,
    PipelineName,
    PipelineVersion,
    Shape,
    SqlWorker,
    Status,
    StoredPipeline,
    SupervisorId,
    ViewRow,
    ViewState,
    WorkerId,
)
from streamhouse.model.table import Column, Connector, Table
from streamhouse.stores.metadata.rows import Params, Row

# --- tables


def table_text(table: Table) -> str:
    """Canonical text of a definition."""
    reported = {
        "name": table.name,
        "connector": table.connector,
        "columns": _columns(table.columns),
        "key": table.key,
        "options": dict(table.options),
        "text": table.text,
    }
    return json.dumps(reported, sort_keys=True)


def table_of(row: Row) -> Table:
    reported = json.loads(row["definition"])
    return Table(
        name=reported["name"],
        connector=Connector(reported["connector"]),
        columns=_columns_of(reported["columns"]),
        key=tuple(reported["key"]),
        options=reported["options"],
        text=reported["text"],
    )


def _columns(columns: Iterable[Column] | None) -> list[list[str]] | None:
    return None if columns is None else [[column.name, column.type] for column in columns]


def _columns_of(reported: Iterable[tuple[str, str]] | None) -> tuple[Column, ...] | None:
    return None if reported is None else tuple(Column(name=name, type=kind) for name, kind in reported)


# --- pipelines


def definition_text(definition: Definition) -> str:
    reported = {
        "kind": definition.kind,
        "text": definition.text,
        "options": dict(definition.options),
        "target": definition.target,
        "key": definition.key,
        "columns": _columns(definition.columns),
        "shape": None if definition.shape is None else asdict(definition.shape),
    }
    if definition.runs_as is not None:
        reported["runs_as"] = str(definition.runs_as)
    return json.dumps(reported, sort_keys=True)


def _definition_of(name: str, text: str) -> Definition:
    reported = json.loads(text)
    shape, runs_as = reported["shape"], reported.get("runs_as")
    return Definition(
        name=PipelineName(name),
        kind=Kind(reported["kind"]),
        text=reported["text"],
        options=reported["options"],
        target=reported["target"],
        key=tuple(reported["key"]),
        columns=_columns_of(reported["columns"]),
        shape=None if shape is None else _shape_of(shape),
        runs_as=None if runs_as is None else Principal(*runs_as.split(":", 1)),
    )


def _shape_of(reported: Mapping[str, Any]) -> Shape:
    """The shape of a row; definitions of earlier versions have no signature."""
    return Shape(
        streams=tuple(reported["streams"]),
        state=tuple(reported["state"]),
        target=reported["target"],
        tables=tuple(reported.get("tables", ())),
        query=tuple(reported.get("query", ())),
        signature=reported.get("signature", ""),
    )


def pipeline_params(pipeline: Pipeline) -> Params:
    return {
        "name": pipeline.definition.name,
        "definition": definition_text(pipeline.definition),
        "revision": pipeline.revision,
        "generation": pipeline.generation,
        "query_id": pipeline.query_id,
        "starting": pipeline.starting,
        "wish": pipeline.wish,
    }


def stored_pipeline_of(row: Row, *, now_ms: int | None = None) -> StoredPipeline:
    """The pipeline of a row; with `now_ms`, an owner with an expired lease is left out."""
    owner: Ownership | None = None
    if row["owner"] is not None and (now_ms is None or now_ms < row["expires_at_ms"]):
        owner = Ownership(
            supervisor=SupervisorId(row["owner"]),
            epoch=row["epoch"],
            expires_at_ms=row["expires_at_ms"],
            host=row["host"] or "",
        )
    pipeline = Pipeline(
        definition=_definition_of(row["name"], row["definition"]),
        revision=row["revision"],
        generation=row["generation"],
        query_id=row["query_id"],
        starting=row["starting"],
        wish=DesiredState(row["wish"]),
        created_at_ms=row["created_at_ms"],
        changed_at_ms=row["changed_at_ms"],
    )
    return StoredPipeline(pipeline=pipeline, owner=owner, status=status_of(row["status"]))


def version_of(row: Row) -> PipelineVersion:
    return PipelineVersion(
        definition=_definition_of(row["name"], row["definition"]),
        revision=row["revision"],
        applied_at_ms=row["applied_at_ms"],
    )


def status_text(status: Status) -> str:
    """JSON of a status without empty fields."""
    return json.dumps({name: value for name, value in asdict(status).items() if value is not None})


def status_of(text: str) -> Status:
    reported: Mapping[str, Any] = json.loads(text)
    return Status(**{**reported, "phase": Phase(reported.get("phase", Phase.WAITING))})


# --- views


def view_params(state: ViewState) -> Params:
    columns = _columns(state.columns)
    return {
        "name": state.name,
        "query": state.query,
        "batch": state.batch,
        "parts": state.parts,
        "parts_done": state.parts_done,
        "row_count": state.rows,
        "fresh_at_ms": state.fresh_at_ms,
        "key_columns": json.dumps(state.key),
        "columns": None if columns is None else json.dumps(columns),
        "covers": state.covers,
    }


def view_of(row: Row) -> ViewState:
    return ViewState(
        name=row["name"],
        query=row["query"],
        batch=row["batch"],
        parts=row["parts"],
        parts_done=row["parts_done"],
        rows=row["row_count"],
        fresh_at_ms=row["fresh_at_ms"],
        key=tuple(json.loads(row["key_columns"])),
        columns=None if row["columns"] is None else _columns_of(json.loads(row["columns"])),
        covers=row["covers"],
    )


_PLACE_DIGITS: Final = 400
"""Hex digits of a row's sort key: rows are in the order of the first 200 bytes of their keys, then of their keys as
JSON. An index of PostgreSQL has entries of 2,704 bytes at most, and this one has the key as JSON besides, which may
have 2,000."""


def view_row_list(rows: Mapping[str, ViewRow]) -> str:
    """A JSON array for `put_view_rows`."""
    listed = [
        [by, view_sort_key(each.key)[:_PLACE_DIGITS], _json(each.key), _json(each.row), each.version]
        for by, each in rows.items()
    ]
    return _json(listed)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def view_row_of(row: Row) -> ViewRow:
    return ViewRow(key=tuple(json.loads(row["row_key"])), row=json.loads(row["row_text"]))


def rows_by_key(rows: Iterable[ViewRow]) -> list[dict[str, ViewRow]]:
    """The rows by key, to be written one mapping after the other: versions decide which row of a key stays. Of rows
    without a version, the last one of each key."""
    rounds: list[dict[str, ViewRow]] = []
    seen: Counter[str] = Counter()
    for each in rows:
        key = view_lookup_key(each.key)
        number = seen[key]
        seen[key] += each.version is not None
        if number == len(rounds):
            rounds.append({})
        rounds[number][key] = each
    return rounds


# --- workers


def worker_of(row: Row) -> SqlWorker:
    return SqlWorker(
        worker=WorkerId(row["worker"]),
        address=row["address"],
        token=row["token"],
        busy=row["busy"],
        expires_at_ms=row["expires_at_ms"],
    )
