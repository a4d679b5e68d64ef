"""A view without STREAM is computed again when a table that it reads has changed."""

import json
from dataclasses import replace
from typing import Any

import pytest

from streamhouse.client.http import HttpResponse
from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.connectors import materialized_view
from streamhouse.spark.pipelines.query_builder import ViewRefresh, varies
from streamhouse.spark.query.resolver import ResolvedQuery, TableRef

FRAME: Any = object()
BASE = TableRef(name="base", table=Table(name="base", connector=Connector.VIEW, key=("k",)), is_stream=False, origin="")


def test_a_view_of_a_view_that_began_anew_or_has_other_columns_is_computed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its new query has written as many rows in a batch of the same number."""
    view: dict[str, Any] = {"batch": 0, "rows": 2, "whole": True, "fresh_at_ms": 1, "query": "a"}

    def respond(*args: Any) -> HttpResponse:
        return HttpResponse(status=200, content=json.dumps(view).encode())

    monkeypatch.setattr(materialized_view, "_send", respond)
    read = [BASE]
    refresh = ViewRefresh(lambda: ResolvedQuery(frame=FRAME, reads=tuple(read)), "nowhere:1")
    first = refresh()
    assert first.frame is FRAME
    first.on_written()
    view["fresh_at_ms"] = 2
    assert refresh().frame is None
    view["query"] = "b"
    began_anew = refresh()
    assert began_anew.frame is FRAME
    began_anew.on_written()
    assert refresh().frame is None
    read[:] = [replace(BASE, table=replace(BASE.table, columns=(Column(name="k", type="INT"),)))]
    assert refresh().frame is FRAME


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("SELECT id FROM orders WHERE at > TIMESTAMP 'today'", True),
        ("SELECT id FROM orders WHERE at > 'yesterday'", True),
        ("SELECT id, uniform(0, 9) AS n FROM orders", True),
        ("SELECT id, at > now() AS late FROM orders", True),
        ("SELECT id, todays, renowned FROM orders", False),
    ],
)
def test_a_view_by_the_clock_or_by_chance_is_computed_though_its_tables_stay(select: str, expected: bool) -> None:
    assert varies(select) is expected
