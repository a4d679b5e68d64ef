"""Login with a password and with an API key; what is kept of it; the rights of who is logged in."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.secure_agent import PASSWORD, SecureAgent

from .conftest import PAGES, fill, opened

pytestmark = pytest.mark.timeout(120)
ADMIN = ("admin", PASSWORD)
ALICE = ("alice", "a password of hers")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureAgent]:
    agent = SecureAgent(tmp_path_factory.mktemp("login"), "SASL_PLAINTEXT", {"http.protocol": "SASL_PLAINTEXT"})
    with agent.live, httpx.Client(base_url=f"http://{agent.live.http}", auth=ADMIN) as http:
        fill(f"http://{agent.live.http}", auth=ADMIN)
        http.post("/v1/users", json={"name": ALICE[0], "password": ALICE[1]}).raise_for_status()
        rule = {"principal": "User:alice", "operation": "read", "resource_type": "topic", "name": "orders"}
        http.post("/v1/acls", json={"acls": [rule]}).raise_for_status()
        yield agent


@pytest.fixture
def address(secure: SecureAgent) -> str:
    return f"http://{secure.live.http}"


@pytest_asyncio.fixture(loop_scope="session")
async def page(address: str, browser: Browser) -> AsyncIterator[Page]:
    async with opened(browser, address, refusals=(401, 403)) as page:
        yield page


async def log_in(page: Page, user: str, password: str) -> None:
    await page.get_by_label("User").fill(user)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Log in").click()


async def test_a_deep_link_leads_to_the_login_and_then_to_its_page(address: str, page: Page) -> None:
    await page.goto(f"{address}/console/topics/orders?tab=settings")
    await log_in(page, "admin", "wrong")
    await expect(page.get_by_role("alert")).to_have_text("Wrong user, password or key.")
    await log_in(page, *ADMIN)
    await expect(page.locator("main h1")).to_have_text("orders")
    await page.reload()
    await expect(page.locator("main h1")).to_have_text("orders")


async def test_every_page_works_for_an_administrator(address: str, page: Page) -> None:
    await page.goto(address)
    await log_in(page, *ADMIN)
    for place, name in enumerate(PAGES):
        await page.locator("nav[aria-label=Pages] a").nth(place).click()
        await page.wait_for_url(f"{address}/console/{name}")
        await expect(page.locator("main h1")).to_be_visible()
    for tab in ("users", "keys", "acls", "roles", "quotas"):
        await page.goto(f"{address}/console/security?tab={tab}")
        await expect(page.locator("main table")).to_be_visible()
    assert await page.get_by_role("alert").count() == 0


async def test_the_password_is_not_kept_and_logging_out_revokes_the_key(address: str, page: Page) -> None:
    await page.goto(address)
    await log_in(page, *ADMIN)
    await expect(page.locator("main h1")).to_have_text("Overview")
    kept = json.loads(await page.evaluate("JSON.stringify({...sessionStorage, ...localStorage})"))
    assert PASSWORD not in json.dumps(kept)
    token = json.loads(kept["streamhouse.login"])["token"]
    assert await page.context.cookies() == []
    async with httpx.AsyncClient(base_url=address, verify=False) as http:
        headers = {"authorization": f"Bearer {token}"}
        assert (await http.get("/v1/whoami", headers=headers)).status_code == 200
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_role("button", name="Log in")).to_be_visible()
        assert (await http.get("/v1/whoami", headers=headers)).status_code == 401


async def test_a_user_sees_what_rules_allow_and_is_told_what_they_do_not(address: str, page: Page) -> None:
    await page.goto(f"{address}/console/topics")
    await log_in(page, *ALICE)
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("link", name="orders").click()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.locator("dialog input").fill("orders")
    await page.locator("dialog").get_by_role("button", name="Delete").click()
    await expect(page.locator("dialog [role=alert]")).to_contain_text("Not allowed")
    await page.goto(f"{address}/console/agents")
    await expect(page.get_by_role("alert").first).to_contain_text("Not allowed")
    await page.goto(f"{address}/console/overview")
    await expect(page.get_by_role("alert")).to_contain_text(["Not allowed"])
    await expect(page.get_by_role("alert")).not_to_contain_text("not authorised")  # it is said once
    await expect(page.locator(".tile")).to_have_count(0)
    await page.locator("main").get_by_role("link", name="Groups").click()
    await expect(page.locator("main")).to_contain_text("no consumer groups that you may see")


async def test_a_user_makes_a_key_that_outlives_the_login_with_the_password(address: str, page: Page) -> None:
    await page.goto(f"{address}/console/security?tab=keys")
    await log_in(page, *ALICE)
    await page.get_by_role("button", name="Create a key").click()
    create = page.locator("dialog").get_by_role("button", name="Create", exact=True)
    await create.click()
    await expect(page.locator("dialog [role=alert]")).to_contain_text("Not allowed")
    password = page.locator("dialog").get_by_label("Your password")
    await password.fill("wrong")
    await create.click()
    await expect(page.locator("dialog [role=alert]")).to_contain_text("wrong")
    await password.fill(ALICE[1])
    await create.click()
    await expect(page.get_by_label("API key", exact=True)).to_have_value(re.compile("^shk_"))


async def test_an_api_key_logs_in(address: str, page: Page) -> None:
    async with httpx.AsyncClient(base_url=address, verify=False) as http:
        key = (await http.post("/v1/keys", json={"description": "for a test"}, auth=ALICE)).json()["api_key"]
    await page.goto(f"{address}/console/security")
    await page.get_by_role("button", name="Use an API key").click()
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.locator("main code").first).to_have_text("User:alice")


async def test_a_tab_that_is_read_only_offers_and_sends_no_changes(address: str, page: Page) -> None:
    sent: list[str] = []
    await page.goto(f"{address}/console/topics/orders")
    await log_in(page, *ADMIN)
    await expect(page.get_by_role("button", name="Delete", exact=True)).to_be_visible()
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox").fill("read only")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("read only", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Delete", exact=True)).to_be_hidden()
    page.on("request", lambda request: sent.append(request.method) if request.method != "GET" else None)
    await page.reload()
    await expect(page.get_by_role("button", name="Produce a record")).to_be_hidden()
    refused = await page.evaluate(
        """async () => {
            const app = document.querySelector("script[type=module]").src;
            const { remove } = await import(new URL("lib/api.js", app));
            return remove("/v1/topics/orders").catch((error) => error.message);
        }"""
    )
    assert "read-only" in refused
    assert sent == []


async def test_copied_commands_log_in(address: str, page: Page) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto(f"{address}/console/topics/orders?tab=records&partition=1&from=offset&offset=7")
    await log_in(page, *ADMIN)
    await page.locator("tbody tr").first.click()

    async def copied(name: str) -> str:
        await page.get_by_role("button", name=name, exact=True).click()
        await expect(page.locator(".toasts")).to_contain_text("Copied.")
        return str(await page.evaluate("navigator.clipboard.readText()"))

    curl = shlex.split(await copied("curl"))
    assert curl[:4] == ["curl", "-sf", "-u", ADMIN[0]]
    async with httpx.AsyncClient(auth=ADMIN) as http:
        (record,) = (await http.get(curl[4])).json()["records"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("STREAMHOUSE_")}
    environment = {**inherited, "STREAMHOUSE_USER": ADMIN[0], "STREAMHOUSE_PASSWORD": ADMIN[1]}
    script = await copied("Python")
    running = partial(subprocess.run, env=environment, capture_output=True, text=True, check=False, timeout=60)
    done = await asyncio.to_thread(running, [sys.executable, "-c", script])
    assert done.returncode == 0, done.stderr
    assert f"offset={record['offset']}" in done.stdout
