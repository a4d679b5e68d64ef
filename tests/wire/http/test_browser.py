"""A real browser: EventSource tails a topic and resumes where it was, and the page about the API works."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright

from .conftest import Site, StartSite
from .test_streams import with_topic

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
TAIL = """
    window.seen = [];
    window.source = new EventSource("/v1/topics/orders/records?from=latest");
    window.source.onmessage = (event) => window.seen.push([event.lastEventId, JSON.parse(event.data).value]);
    new Promise((resolve) => { window.source.onopen = resolve; });
"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = await browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        await browser.close()
        assert errors == []


async def publish(site: Site, *values: Any) -> None:
    response = await site.http.post("/v1/topics/orders/records", json={"records": [{"value": each} for each in values]})
    assert response.status_code == 200


async def seen(page: Page, count: int) -> list[Any]:
    """Asked from here again and again: the page's own policy forbids to evaluate text there later."""
    async with asyncio.timeout(30):
        while True:
            results: list[Any] = await page.evaluate("window.seen.map((each) => each[1])")
            if len(results) >= count:
                return results
            await asyncio.sleep(0.02)


async def test_event_source_tails_a_topic(start_site: StartSite, page: Page) -> None:
    site = await with_topic(await start_site())
    await publish(site, "before")
    await page.goto(f"http://127.0.0.1:{site.port}/docs/api")
    await page.evaluate(TAIL)
    await publish(site, "first", {"second": 2})
    assert await seen(page, 2) == ["first", {"second": 2}]
    await publish(site, 3)
    assert await seen(page, 3) == ["first", {"second": 2}, 3]


async def test_event_source_goes_on_where_it_was_when_its_stream_breaks(start_site: StartSite, page: Page) -> None:
    site = await with_topic(await start_site(reconnect_s=0.2, max_streams=1))
    await page.goto(f"http://127.0.0.1:{site.port}/docs/api")
    await page.evaluate(TAIL)
    await publish(site, 1, 2, 3)
    await seen(page, 3)
    await break_streams(site)
    await publish(site, 4, 5)
    assert sorted(await seen(page, 5)) == [1, 2, 3, 4, 5]


async def break_streams(site: Site) -> None:
    """Cut the sockets of streams, as a network does."""
    port: Any = site.agent._http
    [server] = port._server._servers
    for each in list(server.server_state.connections):
        if each.scope is not None and b"text/event-stream" in dict(each.scope["headers"]).get(b"accept", b""):
            each.transport.abort()

    async def is_back() -> bool:
        return await site.metric("streamhouse_http_streams") == 1

    await site.until(is_back)


async def test_the_page_shows_and_tries_operations(start_site: StartSite, page: Page) -> None:
    site = await with_topic(await start_site())
    await page.goto(f"http://127.0.0.1:{site.port}/docs/api#publish_records")
    await page.click("#publish_records .send")
    await page.wait_for_selector("#publish_records .status.good")
    assert (await page.inner_text("#publish_records .status")).startswith("200")
    assert len((await site.http.get("/v1/topics/orders/records")).json()["records"]) == 1
    await page.fill("#filter", "drain")
    visible: Callable[[], Any] = page.locator("#index a:visible").count
    assert await visible() == 2


async def test_a_page_of_another_site_can_neither_write_nor_read(start_site: StartSite, page: Page) -> None:
    site = await with_topic(await start_site())
    await page.goto(f"http://localhost:{site.port}/v1/topics")  # for a browser another origin than the address
    post = """(url) => fetch(url, {method: "POST", body: "x", mode: "no-cors", headers: {"content-type": "text/plain"}})
        .then(() => "sent", () => "failed")"""
    assert await page.evaluate(post, f"http://127.0.0.1:{site.port}/v1/topics/orders/records") == "sent"
    get = """(url) => fetch(url).then(() => "read", () => "failed")"""
    assert await page.evaluate(get, f"http://127.0.0.1:{site.port}/v1/topics") == "failed"
    assert (await site.http.get("/v1/topics/orders/records")).json()["records"] == []
    refused = 'streamhouse_http_requests_total{method="POST",route="unmatched",status="403"}'
    assert await site.metric(refused) == 1
