"""Views over HTTP: filled by a supervisor, looked up by key, read page by page."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from streamhouse.broker.broker import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A view that somebody fills."""

    http: httpx.AsyncClient
    epoch: int
    query: str

    async def tell(self, batch: int, *rows: dict[str, Any], **reported: Any) -> httpx.Response:
        upserts = [{"key": [row["shop"], row["id"]], "row": row} for row in rows]
        body = {"epoch": self.epoch, "query": self.query, "batch": batch, "fresh_at_ms": 1000 + batch, **reported}
        return await self.http.post("/v1/views/totals/rows", json={"upserts": upserts, **body})

    async def rows(self, **params: Any) -> httpx.Response:
        return await self.http.get("/v1/views/totals/rows", params=params)


@pytest.fixture
async def view(http: httpx.AsyncClient) -> Kept:
    body = {
        "kind": "view",
        "text": "CREATE MATERIALIZED VIEW totals KEY (shop, id) AS SELECT …",
        "key": ["shop", "id"],
        "columns": [{"name": "shop", "type": "STRING"}, {"name": "id", "type": "BIGINT"}],
    }
    made = (await http.put("/v1/pipelines/totals", json=body)).json()["pipeline"]
    [given] = (await http.post("/v1/supervisors/anna/heartbeat", json={"host": "h", "slots": 1})).json()["assigned"]
    return Kept(http=http, epoch=given["epoch"], query=made["query_id"])


async def test_a_view_is_filled_and_looked_up_by_key(view: Kept) -> None:
    empty = (await view.http.get("/v1/views/totals")).json()
    assert (empty["rows"], empty["fresh_at_ms"], empty["batch"]) == (0, None, None)
    rows = [{"shop": "a", "id": 1, "sum": 2.5}, {"shop": "b", "id": 1, "sum": None}]
    assert (await view.tell(0, *rows)).json() == {"rows": 2, "batch": 0, "whole": True}
    result = await view.rows(shop="b", id="1")
    assert result.json() == {"row": rows[1], "fresh_at_ms": 1000}
    assert (await view.rows(shop="c", id=1)).status_code == 404
    response = (await view.http.get("/v1/views/totals")).json()
    assert (response["rows"], response["fresh_at_ms"], response["batch"], response["key"]) == (
        2,
        1000,
        0,
        ["shop", "id"],
    )
    assert response["status"]["phase"] == "starting"
    assert (await view.http.get("/v1/views")).json() == {"views": [response]}


async def test_a_key_is_given_wholly_or_not_at_all(view: Kept) -> None:
    await view.tell(0, {"shop": "a", "id": 1})
    partly = await view.rows(shop="a")
    assert partly.status_code == 400
    assert "missing=id" in partly.json()["detail"]
    assert (await view.rows(shop="a", id=1, more=2)).status_code == 400
    assert (await view.rows(sum=1)).status_code == 400


@pytest.mark.parametrize(
    ("kept", "requested"),
    [
        ("2026-11-15T10:01:00Z", "2026-11-15T10:01:00.000Z"),
        ("2026-11-15T10:01:00Z", "2026-11-15T11:01:00+01:00"),
        ("2026-11-15T10:01:00Z", "2026-11-15 10:01:00"),
        ("2026-11-15T10:01:00.5Z", "2026-11-15T10:01:00.500Z"),
        ("soon", "soon"),
    ],
)
async def test_a_time_is_the_same_however_it_is_written(http: httpx.AsyncClient, kept: str, requested: str) -> None:
    columns = [{"name": "minute", "type": "timestamp"}]
    expected = {"kind": "view", "text": "CREATE MATERIALIZED VIEW v …", "key": ["minute"], "columns": columns}
    made = (await http.put("/v1/pipelines/v", json=expected)).json()["pipeline"]
    [given] = (await http.post("/v1/supervisors/anna/heartbeat", json={"host": "h", "slots": 1})).json()["assigned"]
    upserts = [{"key": [kept], "row": {"minute": kept}}]
    body = {"epoch": given["epoch"], "query": made["query_id"], "batch": 0, "fresh_at_ms": 1, "upserts": upserts}
    assert (await http.post("/v1/views/v/rows", json=body)).status_code == 200
    assert (await http.get("/v1/views/v/rows", params={"minute": requested})).json()["row"] == {"minute": kept}


async def test_pages_follow_the_order_of_keys(view: Kept) -> None:
    rows = [{"shop": shop, "id": number} for shop in ("a", "b") for number in (-1, 2, 10)]
    await view.tell(0, *reversed(rows))
    first = (await view.rows(limit=4)).json()
    assert first["rows"] == rows[:4]
    rest = (await view.rows(limit=4, cursor=first["cursor"])).json()
    assert (rest["rows"], rest["cursor"], rest["fresh_at_ms"]) == (rows[4:], None, 1000)
    assert (await view.rows(cursor="nonsense!")).status_code == 422


async def test_a_batch_counts_once_and_only_from_the_owner(view: Kept) -> None:
    await view.tell(0, {"shop": "a", "id": 1, "sum": 1})
    await view.tell(0, {"shop": "a", "id": 1, "sum": 2})
    assert (await view.rows(shop="a", id=1)).json()["row"]["sum"] == 1
    assert (await view.tell(1, part=1, parts=2)).status_code == 409
    assert (await view.tell(1, part=2, parts=2)).status_code == 422
    moved = await view.tell(1, epoch=view.epoch + 1)
    assert (moved.status_code, moved.json()["title"]) == (409, "PipelineMoved")
    await view.http.delete("/v1/supervisors/anna")
    assert (await view.tell(1)).status_code == 409
    assert (await view.http.post("/v1/supervisors/bert/heartbeat", json={"host": "h", "slots": 1})).json()["assigned"]
    assert (await view.tell(1)).json()["title"] == "PipelineMoved"  # the new owner has told nothing yet


async def test_rows_and_keys_have_limits_with_names(view: Kept, broker: Broker) -> None:
    limits = broker.settings.views
    wide = await view.tell(0, {"shop": "a", "id": 1, "text": "x" * limits.max_row_bytes})
    assert (wide.status_code, "setting=views.max_row_bytes" in wide.text) == (422, True)
    long = await view.tell(0, {"shop": "a" * limits.max_key_bytes, "id": 1})
    assert (long.status_code, "setting=views.max_key_bytes" in long.text) == (422, True)
    short = await view.tell(0, deletes=[["a"]])
    assert (short.status_code, "columns=2" in short.text) == (422, True)


async def test_only_views_are_views(view: Kept) -> None:
    await view.http.put("/v1/pipelines/revenue", json={"kind": "sql", "text": "…"})
    assert (await view.http.get("/v1/views/revenue")).status_code == 404
    assert (await view.http.get("/v1/views/revenue/rows")).status_code == 404
    await view.http.delete("/v1/pipelines/totals")
    assert (await view.rows()).status_code == 404
