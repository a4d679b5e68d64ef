"""The console while agents of a cluster are killed: leases are seen to move, and no page ends."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, expect

from tests.crash.pair import SETTINGS
from tests.stores.postgres.conftest import databases, empty_database
from tests.support.agent import LiveAgent

from .conftest import opened

__all__ = ["databases", "empty_database"]

pytestmark = [pytest.mark.crash, pytest.mark.postgres, pytest.mark.timeout(240)]


@pytest.fixture
def agents(tmp_path: Path, empty_database: str) -> Iterator[list[LiveAgent]]:
    flags = ["--metadata", empty_database, "--store", f"file://{tmp_path}/bucket", "--set", "wal.kind=object"]
    for setting in SETTINGS:
        flags += ["--set", setting]
    with ExitStack() as stack:
        yield [stack.enter_context(LiveAgent(tmp_path / f"agent{number}", *flags)) for number in range(3)]


async def test_leases_of_a_killed_agent_are_seen_to_move(agents: list[LiveAgent], browser: Browser) -> None:
    origin = f"http://{agents[0].http}"
    async with httpx.AsyncClient(base_url=origin, timeout=30) as http:
        (await http.post("/v1/topics", json={"name": "orders", "partitions": 12})).raise_for_status()
        for partition in range(12):
            body = {"records": [{"value": 1, "partition": partition}]}
            (await http.post("/v1/topics/orders/records", json=body)).raise_for_status()
    async with opened(browser, origin) as page:
        await page.goto(f"{origin}/console/agents")
        await expect(page.locator("tbody tr", has_text="live")).to_have_count(3)
        agents[2].kill()
        moves = page.locator("section", has_text="Leases that moved").locator("tbody tr")
        await expect(moves.first).to_be_visible(timeout=60_000)
        await page.goto(origin)
        await expect(page.locator(".tile", has_text="Agents")).to_contain_text("2 live", timeout=30_000)
        await expect(page.locator(".u-wrap").first).to_be_visible()
