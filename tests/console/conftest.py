"""A live agent with a few topics, and a browser that notices what a page must never do.

One browser for all tests of a worker, each with a context of its own: so they run on one event loop.
"""

import inspect
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright

from tests.support.agent import LiveAgent
from tests.support.browser import FLAGS, find_browser

SETTINGS: Final = ("--set", "groups.initial_rebalance_delay_s=0", "--set", "http.console_tail_records=5")
HOSTILE: Final = "<img src=x onerror=\"document.title='hacked'\">"
LONG: Final = "a-long-name.that-somebody-generated." + 180 * "x"
PAGES: Final = (
    "overview", "topics", "groups", "schemas", "transactions", "pipelines", "sql", "tables", "agents", "security",
    "settings",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_here = Path(__file__).parent in item.path.parents
        if is_here and isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.function):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("console") / "data", *SETTINGS) as agent:
        fill(f"http://{agent.http}")
        yield agent


@pytest.fixture
def origin(agent: LiveAgent) -> str:
    return f"http://{agent.http}"


def fill(address: str, **options: Any) -> None:
    """Topics, records, schemas and groups, some of them with names and contents that try to be HTML."""
    with httpx.Client(base_url=address, timeout=30, **options) as http:
        for name, partitions in (("orders", 3), ("payments", 1), (LONG, 1)):
            http.post("/v1/topics", json={"name": name, "partitions": partitions}).raise_for_status()
        records = [
            {"key": f"customer-{number}", "value": {"id": number, "items": [{"sku": "a"}]}, "partition": number % 3}
            for number in range(300)
        ]
        http.post("/v1/topics/orders/records", json={"records": records}).raise_for_status()
        hostile = {"key": HOSTILE, "value": HOSTILE, "headers": [{"name": HOSTILE, "value": HOSTILE}]}
        http.post("/v1/topics/payments/records", json={"records": [hostile]}).raise_for_status()
        schema = {"schema": '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'}
        http.post("/subjects/orders-value/versions", json=schema).raise_for_status()
        reset = {"to": "earliest", "topics": [{"topic": "orders"}]}
        http.post("/v1/groups/billing/reset", json=reset).raise_for_status()
        http.post(f"/v1/groups/{HOSTILE}/reset", json=reset).raise_for_status()


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    found = find_browser()
    if found is None:
        pytest.skip("there is no Chromium here, and none could be fetched")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=found.program, args=FLAGS, env={**os.environ, **found.environment}
        )
        yield browser
        await browser.close()


@asynccontextmanager
async def opened(
    browser: Browser, origin: str, *, refusals: tuple[int, ...] = (), **options: Any
) -> AsyncIterator[Page]:
    """A page; at its end nothing has failed on it, and nothing went to another host. `refusals`: statuses that it may
    be answered with."""
    context = await browser.new_context(locale="en-US", **options)
    page = await context.new_page()
    noticed: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        is_expected = any(f"status of {status}" in message.text for status in refusals)
        if message.type in ("error", "warning") and not is_expected:
            noticed.append(f"{message.type}: {message.text}")

    def on_request(request: Request) -> None:
        if not request.url.startswith((f"{origin}/", "blob:", "data:")):
            noticed.append(f"request to {request.url}")

    page.on("console", on_console)
    page.on("request", on_request)
    page.on("pageerror", lambda error: noticed.append(f"error {error}"))
    yield page
    assert noticed == [], noticed
    assert await page.title() != "hacked"
    await context.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def page(origin: str, browser: Browser) -> AsyncIterator[Page]:
    async with opened(browser, origin) as page:
        yield page
