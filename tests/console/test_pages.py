"""The console in a real browser against a live agent: every page, links, keys, records, changes, hostile contents."""

import asyncio
import base64
import json
import re
from typing import Any

import httpx
import pyarrow
import pytest
from confluent_kafka import Producer
from playwright.async_api import Browser, Page, Route, expect
from pyarrow import parquet

from tests.support.agent import LiveAgent

from .conftest import HOSTILE, LONG, PAGES, opened

pytestmark = pytest.mark.timeout(120)


async def test_the_navigation_leads_to_every_page_and_back(origin: str, page: Page) -> None:
    await page.goto(origin)
    links = page.locator("nav[aria-label=Pages] a")
    await expect(links).to_have_count(11)
    names = ["Overview", "Topics", "Groups", "Schemas", "Transactions", "Pipelines", "SQL", "Tables", "Agents"]
    assert [name.strip() for name in await links.all_inner_texts()] == [*names, "Security", "Settings"]
    for place, name in enumerate(PAGES):
        await links.nth(place).click()
        await expect(page).to_have_url(f"{origin}/console/{name}")
        await expect(page.locator("main h1")).to_be_visible()
    await page.go_back()
    await expect(page.locator("main h1")).to_have_text("Security")
    await page.reload()
    await expect(page.locator("main h1")).to_have_text("Security")
    await page.go_forward()
    await expect(page.locator("main h1")).to_have_text("Settings")


async def test_a_browser_without_a_locale_shows_the_pages(origin: str, page: Page) -> None:
    posix = "Object.defineProperty(Navigator.prototype, 'language', { get: () => 'en-US@posix', configurable: true })"
    await page.add_init_script(posix)
    await page.goto(origin)
    await expect(page.locator(".u-wrap")).to_have_count(4)


async def test_the_overview_shows_figures_agents_and_findings(origin: str, page: Page) -> None:
    await page.goto(origin)
    await expect(page.locator(".u-wrap")).to_have_count(4)
    await expect(page.locator(".tile", has_text="Agents")).to_contain_text("1 live")
    doctor = page.locator("section", has_text="Doctor")
    await doctor.locator("summary").click()
    await expect(doctor.locator("li").first).to_be_visible()
    await doctor.get_by_role("button", name="Look now").click()
    await expect(doctor.locator("header")).to_contain_text("as of")


async def test_keys_lead_everywhere(origin: str, page: Page) -> None:
    await page.goto(f"{origin}/console/overview")
    await expect(page.locator("main h1")).to_have_text("Overview")
    await page.keyboard.press("g")
    await page.keyboard.press("t")
    await expect(page.locator("main h1")).to_have_text("Topics")
    await page.keyboard.press("/")
    await page.keyboard.type("pay")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page).to_have_url(re.compile(r"q=pay"))
    await page.keyboard.press("Control+k")
    await page.keyboard.type("no such name")
    await page.keyboard.press("Enter")
    await expect(page.locator("dialog.palette")).to_contain_text("Nothing is called like this.")
    await page.keyboard.press("Control+a")
    await page.keyboard.type("billing")
    await expect(page.get_by_role("option", name="billing")).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(page.locator("main h1")).to_contain_text("billing")


KEYS_AT_ONCE = """async () => {
    const press = (key, more) => (document.activeElement ?? document).dispatchEvent(
        new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
    press("k", { ctrlKey: true });
    await null;  // as between two events
    await null;
    return document.activeElement.getAttribute("role");
}"""


async def test_the_palette_has_the_focus_before_the_next_key(origin: str, page: Page) -> None:
    await page.goto(f"{origin}/console/settings")
    await expect(page.locator("main h1")).to_have_text("Settings")
    assert await page.evaluate(KEYS_AT_ONCE) == "combobox"


async def test_the_palette_finds_words_whatever_signs_are_between_them(origin: str, page: Page) -> None:
    await page.goto(f"{origin}/console/topics")
    await expect(page.locator("main h1")).to_have_text("Topics")
    for text, name in (("read-only", "Read only"), ("read only", "Read only"), ("a-long name.that", LONG)):
        await page.keyboard.press("Control+k")
        await page.keyboard.type(text)
        await expect(page.locator("dialog [role=option]", has_text=name)).to_be_visible()
        await page.keyboard.press("Escape")


async def test_a_phone_shows_what_a_setting_means_without_scrolling(origin: str, browser: Browser) -> None:
    async with opened(browser, origin, viewport={"width": 390, "height": 780}) as page:
        await page.goto(f"{origin}/console/settings?q=flush.age_s")
        meaning = page.locator("tbody tr").get_by_text("longest time until a record is flushed", exact=False)
        await expect(meaning.locator("visible=true")).to_have_count(1)
        await expect(meaning.locator("visible=true")).to_be_in_viewport(ratio=0.9)


async def test_enter_before_the_palette_knows_the_names_chooses_when_it_does(origin: str, page: Page) -> None:
    is_confirmed = asyncio.Event()

    async def answer_late(route: Route) -> None:
        await is_confirmed.wait()
        await route.continue_()

    await page.goto(f"{origin}/console/settings")
    await expect(page.locator("main h1")).to_have_text("Settings")
    await page.route("**/v1/groups", answer_late)
    await page.keyboard.press("Control+k")
    await page.keyboard.type("billing")
    await page.keyboard.press("Enter")
    await expect(page.locator("dialog.palette")).to_contain_text("Loading")
    is_confirmed.set()
    await expect(page.locator("main h1")).to_contain_text("billing")


async def test_a_topic_is_created_changed_and_deleted_after_questions(origin: str, page: Page) -> None:
    await page.goto(f"{origin}/console/topics")
    await page.get_by_role("button", name="Create a topic").click()
    await page.get_by_label("Name").fill("made-here")
    await page.get_by_role("button", name="Create", exact=True).click()
    await expect(page.locator("main h1")).to_have_text("made-here")
    await page.get_by_role("link", name="Settings", exact=True).last.click()
    await page.get_by_role("button", name="Change retention.ms").click()
    await page.locator("dialog input").fill("3600000")
    await page.get_by_role("button", name="Continue").click()
    await page.get_by_role("button", name="Change", exact=True).last.click()
    await expect(page.locator(".toasts")).to_contain_text("retention.ms changed")
    async with httpx.AsyncClient(base_url=origin) as http:
        assert (await http.get("/v1/topics/made-here")).json()["settings"] == {"retention.ms": "3600000"}
    await page.get_by_role("button", name="Delete", exact=True).click()
    confirm = page.locator("dialog").get_by_role("button", name="Delete")
    await expect(confirm).to_be_disabled()
    await page.locator("dialog input").fill("made-here")
    await confirm.click()
    await expect(page).to_have_url(f"{origin}/console/topics")
    async with httpx.AsyncClient(base_url=origin) as http:
        assert (await http.get("/v1/topics/made-here")).status_code == 404


async def test_records_are_browsed_older_and_looked_at(origin: str, page: Page) -> None:
    await page.goto(f"{origin}/console/topics/orders?tab=records&partition=0")
    rows = page.locator("tbody tr")
    await expect(rows.first).to_contain_text("99")
    await expect(rows).to_have_count(50)
    await page.get_by_role("button", name="Older").click()
    await expect(rows.first).to_contain_text("49")
    await expect(page.get_by_role("button", name="Older")).to_have_count(0)
    await page.go_back()
    await expect(rows.first).to_contain_text("99")
    await rows.first.click()
    await expect(page.locator(".tree")).to_contain_text('sku: "a"')
    await page.get_by_role("button", name="Hex").first.click()
    await expect(page.locator(".hex")).to_contain_text("00000000  7b 22 69 64")


async def test_records_come_live_and_are_produced(origin: str, page: Page) -> None:
    await page.goto(f"{origin}/console/topics/orders?tab=records&from=live")
    await expect(page.locator(".more .live")).to_have_text("live")
    await page.get_by_role("button", name="Produce a record").click()
    await page.locator("dialog [name=key]").fill("by hand")
    await page.locator("dialog [name=value]").fill('{"made": "here"}')
    await page.get_by_role("button", name="Write this record").click()
    await expect(page.locator(".toasts")).to_contain_text("Written to partition")
    await expect(page.locator("tbody tr").first).to_contain_text('{"made":"here"}')
    async with httpx.AsyncClient(base_url=origin) as http:
        records = [{"value": number} for number in range(9)]
        (await http.post("/v1/topics/orders/records", json={"records": records})).raise_for_status()
    await expect(page.locator("main")).to_contain_text("stopped after 5 records of all partitions")
    await expect(page.locator(".more .live")).to_have_text("stopped at the cap")
    await page.get_by_role("button", name="Go on").click()
    await expect(page.locator(".more .live")).to_have_text("live")


async def test_a_live_tail_goes_on_behind_its_last_record_when_the_agent_is_back(origin: str, browser: Browser) -> None:
    """The first stream ends after two records, the second finds an agent that stops, the third repeats a record."""
    asked: list[str] = []

    def lines(*offsets: int, cursor: str) -> str:
        records = [
            {"partition": 0, "offset": offset, "timestamp_ms": 0, "key": None, "value": "MQ=="} for offset in offsets
        ]
        return "".join(json.dumps(each) + "\n" for each in [*records[:-1], {**records[-1], "cursor": cursor}])

    async def respond(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 2:
            await route.fulfill(status=503, json={"detail": "stopping"})
        else:
            body = lines(7, 8, cursor="first") if len(asked) == 1 else lines(8, 9, cursor="second")
            await route.fulfill(content_type="application/x-ndjson", body=body)

    async with opened(browser, origin, refusals=(503,)) as page:
        await page.route(re.compile(r"/v1/topics/orders/records\?"), respond)
        await page.goto(f"{origin}/console/topics/orders?tab=records&from=live")
        await expect(page.locator(".more .live")).to_have_text("interrupted, tries again")
        await expect(page.locator("tbody tr td:nth-child(3)")).to_have_text(["9", "8", "7"], timeout=15_000)
    assert "from=latest" in asked[0]
    assert all("cursor=first" in url for url in asked[1:3])


@pytest.mark.parametrize("name", ["overview", "agents", "groups/billing", "topics/orders"])
async def test_a_page_says_once_that_its_agent_is_away_and_goes_on_when_it_is_back(
    origin: str, page: Page, name: str
) -> None:
    await page.goto(f"{origin}/console/{name}")
    live, away = page.locator("main .live").first, page.get_by_role("alert")
    await expect(live).to_have_text("live")
    await page.evaluate("() => { there = fetch; fetch = () => Promise.reject(new TypeError('no connection')); }")
    await expect(live).to_have_text("interrupted", timeout=15_000)
    await expect(away).to_have_text(["The agent can't be reached. The console tries again."])
    await page.get_by_role("link", name="Schemas", exact=True).click()
    await expect(page.locator("main")).to_contain_text("Loading")
    await page.evaluate("() => { fetch = there; }")
    await expect(away).to_have_count(0, timeout=15_000)
    await expect(page.locator("main")).not_to_contain_text("Loading")


async def test_a_record_is_produced_by_a_schema(origin: str, page: Page) -> None:
    async with httpx.AsyncClient(base_url=origin) as http:
        schema = {"schema": '{"type": "record", "name": "Paid", "fields": [{"name": "paid", "type": "long"}]}'}
        (await http.post("/subjects/payments-value/versions", json=schema)).raise_for_status()
        await page.goto(f"{origin}/console/topics/payments?tab=records")
        await page.get_by_role("button", name="Produce a record").click()
        dialog = page.get_by_role("dialog")
        await dialog.locator("[name=key]").fill("by schema")
        await dialog.locator("[name=value]").fill('{"paid": 7}')
        await dialog.locator("[name=subject]").fill("payments-value")
        await dialog.locator("[name=format]").select_option("text")
        await dialog.get_by_role("button", name="Write this record").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("written as JSON")
        await dialog.locator("[name=format]").select_option("json")
        await dialog.get_by_role("button", name="Write this record").click()
        await expect(page.locator(".toasts")).to_contain_text("Written to partition")
        found = await http.post("/v1/topics/payments/search", json={"key": "by schema", "value_format": "schema"})
    assert [each["value"] for each in found.json()["records"]] == [{"paid": 7}]
    await page.reload()
    await expect(page.get_by_role("row", name="by schema")).to_contain_text('{"paid":7}')


async def test_the_newest_records_are_those_of_any_partition(origin: str, page: Page) -> None:
    """As many partitions as a page reads are chosen among those that have records; it says how many it left out."""
    async with httpx.AsyncClient(base_url=origin) as http:
        (await http.post("/v1/topics", json={"name": "broad", "partitions": 70})).raise_for_status()
        last = {"records": [{"value": "last", "partition": 69}]}
        (await http.post("/v1/topics/broad/records", json=last)).raise_for_status()
        await page.goto(f"{origin}/console/topics/broad?tab=records")
        await expect(page.locator("tbody tr")).to_contain_text(["last"])
        await expect(page.locator(".notice")).to_have_count(0)
        records = [{"value": number, "partition": number} for number in range(66)]
        (await http.post("/v1/topics/broad/records", json={"records": records})).raise_for_status()
    await page.reload()
    await expect(page.locator(".notice")).to_contain_text("3 partitions with records are left out")


async def test_integers_that_javascript_would_round_are_written_and_shown_as_they_are(origin: str, page: Page) -> None:
    await page.goto(f"{origin}/console/topics/payments?tab=records")
    await page.get_by_role("button", name="Produce a record").click()
    await page.locator("dialog [name=value]").fill('{"id": 9007199254740993, "small": 1}')
    await page.get_by_role("button", name="Write this record").click()
    await expect(page.locator(".toasts")).to_contain_text("Written to partition")
    await page.goto(f"{origin}/console/topics/payments?tab=search&json=id&equals=9007199254740993")
    await page.locator("tbody tr", has_text='{"id":9007199254740993').click()
    await expect(page.locator(".tree")).to_contain_text("id: 9007199254740993")


async def test_records_are_downloaded(origin: str, page: Page) -> None:
    await page.goto(f"{origin}/console/topics/orders?tab=records&partition=1")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download NDJSON").click()
    made = await download.value
    assert made.suggested_filename == "orders.ndjson"
    assert len((await made.path()).read_text().splitlines()) >= 100


async def test_records_are_downloaded_as_parquet(origin: str, page: Page) -> None:
    """Read by pyarrow, beside what the API has."""
    raw: list[dict[str, Any]] = [
        {"key": None, "value": None, "timestamp_ms": 5, "headers": [{"name": "n", "value": "ä"}]},
        {"key": "a key", "value": "/w8=", "timestamp_ms": 1_700_000_000_123},
        *({"key": f"k{number}", "value": "", "timestamp_ms": number} for number in range(300)),
    ]
    async with httpx.AsyncClient(base_url=origin) as http:
        (await http.post("/v1/topics", json={"name": "parquet", "partitions": 1})).raise_for_status()
        body = {"records": raw, "value_format": "base64"}
        (await http.post("/v1/topics/parquet/records", json=body)).raise_for_status()
    await page.goto(f"{origin}/console/topics/parquet?tab=records&partition=0")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download Parquet").click()
    made = await download.value
    assert made.suggested_filename == "parquet.parquet"
    table = parquet.read_table(await made.path())
    assert table.schema.field("timestamp").type == pyarrow.timestamp("ms", tz="UTC")
    assert table.schema.field("key").type == pyarrow.string()
    assert table.schema.field("value").type == pyarrow.binary()
    rows = table.to_pylist()
    assert [row["offset"] for row in rows] == list(range(len(raw)))
    assert [row["key"] for row in rows] == [each["key"] for each in raw]
    values = [each["value"] for each in raw]
    assert [row["value"] for row in rows] == [None if each is None else base64.b64decode(each) for each in values]
    assert [row["timestamp"].timestamp() * 1000 for row in rows] == [each["timestamp_ms"] for each in raw]
    assert [header["value"] for header in json.loads(rows[0]["headers"])] == ["ä"]
    assert {row["partition"] for row in rows} == {0}


async def test_a_pipeline_shows_its_versions_and_a_table_the_pipelines_of_it(origin: str, page: Page) -> None:
    text = "CREATE PIPELINE copies AS INSERT INTO copied SELECT * FROM STREAM(orders)"
    async with httpx.AsyncClient(base_url=origin) as http:
        body = {"kind": "sql", "text": text, "target": "copied"}
        (await http.put("/v1/pipelines/copies", json=body)).raise_for_status()
        (await http.put("/v1/pipelines/copies", json={**body, "options": {"trigger": "1 minute"}})).raise_for_status()
    versions = page.locator("section", has_text="Versions of the definition")
    await page.goto(f"{origin}/console/pipelines/copies")
    await expect(versions.locator("tbody tr")).to_have_count(2)
    await expect(versions.locator("tbody tr").first).to_contain_text(
        re.compile(r"2.*current.*User:.*another options", re.S)
    )
    await versions.get_by_role("button", name="Details").first.click()
    await expect(versions.locator(".diff .add")).to_have_text("+ trigger = 1 minute")
    rows = page.locator("section", has_text="write or read it").locator("tbody tr")
    await page.goto(f"{origin}/console/tables/orders")
    await expect(rows).to_contain_text(["reads"])
    await page.goto(f"{origin}/console/schemas/orders-value")
    await expect(page.locator("section", has_text="Used by").get_by_role("link", name="copies")).to_be_visible()


@pytest.mark.parametrize(("reported", "links"), [("http://runner:4040", 1), ("javascript:alert(1)", 0), (None, 0)])
async def test_a_pipeline_links_to_the_pages_of_spark_where_its_runner_has_them(
    origin: str, page: Page, reported: str | None, links: int
) -> None:
    async with httpx.AsyncClient(base_url=origin) as http:
        text = "CREATE PIPELINE linked AS INSERT INTO copied SELECT * FROM STREAM(orders)"
        body = {"kind": "sql", "text": text, "target": "copied"}
        (await http.put("/v1/pipelines/linked", json=body)).raise_for_status()

    async def report(route: Route) -> None:
        answer = await (await route.fetch()).json()
        answer["status"]["progress"] = {} if reported is None else {"ui": reported}
        await route.fulfill(json=answer)

    await page.route("**/v1/pipelines/linked", report)
    await page.goto(f"{origin}/console/pipelines/linked")
    details = page.locator("section", has_text="Details")
    await expect(details).to_contain_text("Runs on")
    link = details.get_by_role("link", name="Spark UI")
    await expect(link).to_have_count(links)
    if links:
        await expect(link).to_have_attribute("href", "http://runner:4040")


LAKE_TABLE = {
    "name": "sales_lake", "connector": "iceberg", "columns": [{"name": "id", "type": "BIGINT"}], "key": [],
    "options": {"location": "/lake/sales_lake"}, "text": "", "is_inferred": False,
}  # fmt: skip


async def test_a_lake_table_shows_its_snapshots_and_how_fresh_it_is(origin: str, page: Page) -> None:
    """As the pipeline that writes it reported them."""
    text = "CREATE PIPELINE sales AS INSERT INTO sales_lake SELECT * FROM STREAM(orders)"
    async with httpx.AsyncClient(base_url=origin) as http:
        body = {"kind": "sql", "text": text, "target": "sales_lake"}
        (await http.put("/v1/pipelines/sales", json=body)).raise_for_status()
        made = (await http.get("/v1/pipelines/sales")).raise_for_status().json()
    old = {"version": "41", "at_ms": 1_700_000_000_000, "operation": "append", "rows": 2, "files": 1, "size_bytes": 10}
    new = {**old, "version": "9007199254740993", "at_ms": 1_700_000_060_000, "rows": 5, "files": 2, "size_bytes": 2048}
    progress = {"generation": 1, "versions": [new, old]}
    status = {**made["status"], "progress": progress, "lag_records": 3}
    await page.route("**/v1/pipelines", lambda route: route.fulfill(json={"pipelines": [{**made, "status": status}]}))
    await page.route("**/v1/tables", lambda route: route.fulfill(json={"tables": [LAKE_TABLE]}))
    await page.route("**/v1/tables/sales_lake", lambda route: route.fulfill(json=LAKE_TABLE))
    await page.goto(f"{origin}/console/tables")
    row = page.get_by_role("row", name="sales_lake")
    await expect(row).to_contain_text(re.compile(r"iceberg.*5.*\d+ d \d+ h ago", re.S))
    await row.get_by_role("link", name="sales_lake").click()
    snapshots = page.locator("section", has_text="Snapshots")
    await expect(snapshots.locator("header")).to_contain_text("5 rows in 2 files, 2 KiB")
    await expect(snapshots.locator("tbody tr")).to_have_count(2)
    await expect(snapshots.locator("tbody tr").first).to_contain_text(re.compile(r"9007199254740993.*append.*5", re.S))


RESTARTED = """async (url) => {
    const { quantile, rate } = await import(url);
    const agent = (started, count, at_ms) => ({ at_ms, samples: { process_start_time_seconds: { "": started },
        requests_total: { "": count }, seconds_bucket: { '{le="0.1"}': count, '{le="+Inf"}': count } } });
    const point = (...counted) => ({ agents: new Map([[1, agent(...counted)]]) });
    const before = point(5, 1000, 0);
    return [rate(point(5, 1100, 10000), before, "requests_total"), rate(point(9, 50, 10000), before, "requests_total"),
        quantile(point(9, 50, 10000), before, "seconds", 0.5)];
}"""


async def test_counters_of_an_agent_that_was_started_again_begin_at_zero(origin: str, page: Page) -> None:
    await page.goto(f"{origin}/console/settings")
    app = await page.locator("script[type=module]").get_attribute("src")
    assert app is not None
    assert await page.evaluate(RESTARTED, app.replace("app.js", "lib/metrics.js")) == [10, 5, 0.05]


async def test_a_group_is_reset_after_a_preview(origin: str, page: Page) -> None:
    await page.goto(f"{origin}/console/groups/billing")
    await page.get_by_role("button", name="Reset offsets").click()
    await page.locator("dialog [name=way]").select_option("latest")
    await page.get_by_role("button", name="Preview").click()
    await expect(page.locator("dialog tbody tr")).to_have_count(3)
    await page.get_by_role("button", name="Reset 3 partitions").click()
    lag = page.locator(".tile", has=page.locator(".label", has_text=re.compile("^Lag$")))
    await expect(lag).to_contain_text(re.compile(r"Lag\s*0 records"))


@pytest.mark.parametrize("place", ["topics/payments?tab=records", "groups"])
async def test_hostile_texts_are_shown_as_they_are(origin: str, page: Page, place: str) -> None:
    await page.goto(f"{origin}/console/{place}")
    await expect(page.locator("tbody")).to_contain_text(HOSTILE)
    await page.locator("tbody tr", has_text=HOSTILE).first.click()
    await page.wait_for_timeout(300)
    assert await page.locator("img[src=x]").count() == 0
    if place == "groups":
        await page.locator("tbody a", has_text=HOSTILE).click()
        await expect(page.locator("main h1")).to_contain_text(HOSTILE)


async def test_a_record_is_searched_by_key_and_by_a_place_in_its_json(origin: str, page: Page) -> None:
    await page.goto(f"{origin}/console/topics/orders?tab=search")
    await page.locator("input[name=key]").fill("customer-7")
    await page.get_by_role("button", name="Search", exact=True).click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page).to_have_url(re.compile("key=customer-7"))
    await page.goto(f"{origin}/console/topics/orders?tab=search&json=id&equals=12")
    await expect(page.locator("tbody tr")).to_contain_text("customer-12")
    await expect(page.locator("main")).to_contain_text("Searched")


async def test_a_search_goes_on_where_a_full_page_ended(origin: str, page: Page) -> None:
    async with httpx.AsyncClient(base_url=origin) as http:
        (await http.post("/v1/topics", json={"name": "many", "partitions": 1})).raise_for_status()
        body = {"records": [{"value": f"needle {number}"} for number in range(600)]}
        (await http.post("/v1/topics/many/records", json=body)).raise_for_status()
    await page.goto(f"{origin}/console/topics/many?tab=search&text=needle")
    await expect(page.locator("h2")).to_have_text("500 records")
    await page.get_by_role("button", name="Go on").click()
    await expect(page.locator("h2")).to_have_text("600 records")
    await expect(page.locator("tbody tr").last).to_contain_text("needle 599")
    await expect(page.get_by_role("button", name="Go on")).to_have_count(0)


async def test_errors_of_checked_statements_are_shown_with_their_place(origin: str, page: Page) -> None:
    right = {
        "kind": "query",
        "name": "",
        "line": 1,
        "columns": [],
        "shape": None,
        "key": [],
        "problems": [],
        "notes": [],
    }
    wrong = {
        **right,
        "line": 2,
        "problems": [{"line": 2, "column": 8, "text": "no such column", "hint": "did you mean id"}],
    }
    await page.route("**/v1/sql/validate", lambda route: route.fulfill(json={"statements": [right, wrong]}))
    await page.goto(f"{origin}/console/sql?text=SELECT 1")
    await page.get_by_role("button", name="Check").click()
    await expect(page.locator(".notice.ok")).to_have_text(re.compile("line 1: nothing wrong"))
    await expect(page.get_by_role("alert")).to_contain_text("Line 2, column 8: no such columnHint: did you mean id")


async def test_a_query_that_runs_is_seen_to_run_until_it_ends_or_is_stopped(origin: str, page: Page) -> None:
    released = asyncio.Event()

    async def respond(route: Route) -> None:
        await released.wait()
        rows = {"query_id": "q", "columns": [], "rows": [], "truncated": False, "elapsed_ms": 1.0, "notes": []}
        await route.fulfill(json=rows)

    await page.route("**/v1/sql", respond)
    await page.goto(f"{origin}/console/sql?text=SELECT 1")
    await page.get_by_role("button", name="Run").click()
    await expect(page.locator(".empty")).to_contain_text("Running")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator(".empty")).to_contain_text("No result yet")
    await page.get_by_role("button", name="Run").click()
    released.set()
    await expect(page.locator("h2")).to_contain_text("0 rows")


async def test_a_refused_query_has_its_place_and_hint_and_is_saved_as_a_view_when_it_is_right(
    origin: str, browser: Browser
) -> None:
    problem = {"line": 1, "column": 8, "text": "there is no column m", "hint": "there are ms, url"}
    refusal = {"title": "BadSql", "status": 400, "detail": "there is no column m; line=1", "problems": [problem]}
    sent: list[str] = []

    async def respond(route: Route) -> None:
        sent.append(json.loads(route.request.post_data or "")["sql"])
        if len(sent) == 1:
            await route.fulfill(status=400, json=refusal)
        else:
            rows = {"query_id": "q", "columns": [], "rows": [], "truncated": False, "elapsed_ms": 1.0, "notes": []}
            await route.fulfill(json=rows)

    async with opened(browser, origin, refusals=(400,)) as page:
        await page.route("**/v1/sql", respond)
        await page.goto(f"{origin}/console/sql?text=SELECT m FROM clicks")
        await page.get_by_role("button", name="Run").click()
        alert = page.get_by_role("alert")
        await expect(alert).to_have_text("Line 1, column 8: there is no column mHint: there are ms, url")
        await page.get_by_role("button", name="Save as…").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("As").select_option("view")
        await dialog.get_by_label("Name").fill("by_url")
        await dialog.get_by_role("button", name="Save", exact=True).click()
        await expect(page.locator(".toasts")).to_contain_text("Saved as by_url.")
    assert sent == ["SELECT m FROM clicks", "CREATE MATERIALIZED VIEW by_url AS\nSELECT m FROM clicks"]


async def test_an_open_transaction_is_aborted_after_a_question(agent: LiveAgent, origin: str, page: Page) -> None:
    producer = Producer({"bootstrap.servers": agent.bootstrap, "transactional.id": "stuck", "log_level": 0})
    await asyncio.to_thread(producer.init_transactions, 20)
    producer.begin_transaction()
    producer.produce("orders", b"never committed", partition=0)
    assert await asyncio.to_thread(producer.flush, 20) == 0
    await page.goto(f"{origin}/console/transactions")
    row = page.get_by_role("row", name="stuck")
    await expect(row).to_contain_text("Ongoing")
    await row.get_by_role("button", name="Abort").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("The producer stuck is fenced")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(row).to_contain_text("Ongoing")
    await row.get_by_role("button", name="Abort").click()
    await dialog.get_by_role("button", name="Abort").click()
    await expect(page.locator(".toasts")).to_contain_text("The transaction is aborted.")
    await expect(row).to_contain_text("Empty")
    await expect(row.get_by_role("button", name="Abort")).to_be_hidden()


async def test_open_transactions_are_listed_first(origin: str, page: Page) -> None:
    done = {
        "transactional_id": "a-done", "producer_id": 1234, "epoch": 5, "state": "CompleteCommit", "timeout_ms": 60_000,
        "started_at_ms": None, "open_for_ms": None, "changed_at_ms": 1_700_000_000_000, "partitions": [],
    }  # fmt: skip
    late = {**done, "transactional_id": "z-late", "state": "Ongoing", "open_for_ms": 61_000}

    async def respond(route: Route) -> None:
        found = [late] if "open_for_ms=0" in route.request.url else [done, late]
        await route.fulfill(json={"transactions": found, "cursor": None})

    await page.route("**/v1/transactions?*", respond)
    await page.goto(f"{origin}/console/transactions")
    rows = page.locator("tbody tr")
    await expect(rows).to_contain_text(["z-late", "a-done"])
    await expect(rows.first).to_contain_text("Ongoing, late")
    await expect(rows.last).to_contain_text("1234, 5")
    await page.get_by_label("State").select_option("open")
    await expect(rows).to_contain_text(["z-late"])
    await expect(rows).to_have_count(1)


async def test_a_plan_is_shown_as_text_and_a_row_of_a_result_as_a_tree(origin: str, page: Page) -> None:
    column = {"name": "plan", "type": "string"}
    responses = iter([[{"plan": "== What is read ==\ntable orders"}], [{"plan": "short"}, {"plan": {"id": 1}}]])
    result = {"query_id": "q", "columns": [column], "truncated": False, "elapsed_ms": 1.0, "notes": []}
    await page.route("**/v1/sql", lambda route: route.fulfill(json={**result, "rows": next(responses)}))
    await page.goto(f"{origin}/console/sql?text=SELECT 1")
    await page.get_by_role("button", name="Explain").click()
    await expect(page.locator("pre[tabindex]")).to_have_text("== What is read ==\ntable orders")
    await page.get_by_role("button", name="Run").click()
    row = page.locator("tbody tr").last
    button, value = await row.locator("button").bounding_box(), await row.locator(".clip").bounding_box()
    assert button is not None
    assert value is not None
    assert value["y"] < button["y"] + button["height"]  # beside it, not below
    await row.click()
    await expect(page.locator(".tree")).to_contain_text("id: 1")


async def test_a_schema_is_registered_after_its_check(origin: str, page: Page) -> None:
    await page.goto(f"{origin}/console/schemas/orders-value?tab=draft")
    draft = page.get_by_label("Schema", exact=True)
    await draft.fill('{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}')
    await page.get_by_role("button", name="Check").click()
    await expect(page.get_by_role("alert")).to_contain_text("doesn't fit")
    more = '{"name": "note", "type": ["null", "string"], "default": null}'
    await draft.fill(
        '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, %s]}' % more  # noqa: UP031
    )
    await page.get_by_role("button", name="Register").click()
    await page.locator("dialog").get_by_role("button", name="Register").click()
    await expect(page.locator(".toasts")).to_contain_text("Registered")
    await page.get_by_role("link", name="Differences").click()
    await expect(page.locator(".diff .add").first).to_be_visible()


async def test_the_theme_is_switched_and_kept(origin: str, page: Page) -> None:
    await page.goto(f"{origin}/console/topics")
    before = await page.evaluate("document.documentElement.dataset.theme")
    await page.get_by_role("button", name="Switch between dark and light").click()
    await page.reload()
    assert await page.evaluate("document.documentElement.dataset.theme") != before
