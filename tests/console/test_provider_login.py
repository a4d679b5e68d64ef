"""Login at an OpenID provider: an authorization code, PKCE, and nothing that a page of another site could use."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.support.oidc_provider import CLIENT, USER, OidcProvider, running_provider
from tests.support.secure_agent import PASSWORD, SecureAgent

pytestmark = pytest.mark.timeout(120)
ADMIN = ("admin", PASSWORD)
BUTTON = "Log in with localhost"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    with running_provider(tmp_path_factory.mktemp("provider")) as provider:
        yield provider


@pytest.fixture(scope="module")
def address(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"http.protocol": "SASL_PLAINTEXT", **provider.settings}
    agent = SecureAgent(tmp_path_factory.mktemp("code"), "SASL_PLAINTEXT", settings)
    with agent.live, httpx.Client(base_url=f"http://{agent.live.http}", auth=ADMIN) as http:
        http.post("/v1/topics", json={"name": "orders", "partitions": 1}).raise_for_status()
        rule = {"principal": f"User:{USER}", "operation": "describe", "resource_type": "topic", "name": "orders"}
        http.post("/v1/acls", json={"acls": [rule]}).raise_for_status()
        yield f"http://{agent.live.http}"


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    context = await browser.new_context(ignore_https_errors=True, locale="en-US")
    yield await context.new_page()
    await context.close()


async def test_a_user_of_the_provider_comes_back_to_the_page_that_was_wanted(
    address: str, provider: OidcProvider, page: Page
) -> None:
    await page.goto(f"{address}/console/topics?sort=-name")
    await page.get_by_role("button", name=BUTTON).click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    assert page.url == f"{address}/console/topics?sort=-name"
    query, form = provider.requested[-1], provider.exchanged[-1]
    assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
    assert query["client_id"] == CLIENT
    assert query["redirect_uri"] == form["redirect_uri"] == f"{address}/console/login"
    assert len(query["state"]) >= 43
    assert form["code_verifier"] != query["code_challenge"]
    await page.goto(f"{address}/console/security")
    await expect(page.locator("main code").first).to_have_text(f"User:{USER}")
    assert await page.context.cookies(address) == []


async def test_a_response_that_was_not_requested_logs_nobody_in(
    address: str, provider: OidcProvider, page: Page
) -> None:
    exchanged = len(provider.exchanged)
    await page.goto(f"{address}/console/login?code=stolen&state=made-up")
    await expect(page.get_by_role("alert")).to_contain_text("not begun here")
    assert len(provider.exchanged) == exchanged


async def test_a_refusal_of_the_provider_is_reported(address: str, provider: OidcProvider, page: Page) -> None:
    provider.error = "access_denied"
    try:
        await page.goto(f"{address}/console/topics")
        await page.get_by_role("button", name=BUTTON).click()
        await expect(page.get_by_role("alert")).to_contain_text("access_denied")
    finally:
        provider.error = ""


def test_a_code_without_its_verifier_is_refused(address: str, provider: OidcProvider) -> None:
    redirect = f"{address}/console/login"
    challenge = {"state": "s", "redirect_uri": redirect, "code_challenge": "of another verifier"}
    code = httpx.QueryParams(provider.authorize(challenge).partition("?")[2])["code"]
    body = {"code": code, "verifier": "v" * 43, "redirect_uri": redirect}
    assert httpx.post(f"{address}/v1/login/code", json=body).status_code == 401


def test_another_site_cannot_send_a_code(address: str) -> None:
    body = {"code": "c", "verifier": "v" * 43, "redirect_uri": "https://evil.example"}
    response = httpx.post(f"{address}/v1/login/code", json=body, headers={"origin": "https://evil.example"})
    assert response.status_code == 403
