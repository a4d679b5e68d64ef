"""Every page is accessible, by axe, in light and dark, and fits a phone."""

import asyncio
import tarfile
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from playwright.async_api import Browser

from tests.support.npm import NpmPackage, fetched

from .conftest import PAGES, browsing, opened

AXE: Final = NpmPackage(
    "axe-core",
    "4.14.0",
    "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
)
PARTS: Final = (
    *PAGES,
    "topics/orders",
    "topics/orders?tab=records",
    "topics/orders?tab=segments",
    "topics/orders?tab=settings",
    "topics/orders?tab=consumers",
    "groups/billing",
    "schemas/orders-value",
    "schemas/orders-value?tab=draft",
    "security?tab=users",
    "security?tab=audit",
    "sql?text=SELECT 1 AS n -- one",
    "settings?tab=kafka",
    "tables/orders",
)
RULES: Final = ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]
CHECK: Final = "(tags) => axe.run(document, {runOnly: {type: 'tag', values: tags}}).then((found) => found.violations)"
PHONE: Final = {"width": 390, "height": 844}

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="session")
def axe() -> str:
    tarball = fetched(AXE)
    if tarball is None:
        pytest.skip("axe-core could not be fetched")
    with tarfile.open(tarball) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as browser:
        yield browser


def told(violations: list[dict[str, Any]]) -> list[str]:
    return [f"{each['id']}: {each['help']} at {node['html'][:200]}" for each in violations for node in each["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_on_any_page(origin: str, browser: Browser, axe: str, scheme: Any) -> None:
    found = {}
    async with opened(browser, origin, color_scheme=scheme, viewport={"width": 1280, "height": 900}) as page:
        for part in PARTS:
            await page.goto(f"{origin}/console/{part}")
            await page.wait_for_selector("main h1")
            await asyncio.sleep(0.7)
            await page.evaluate(axe)
            if violations := told(await page.evaluate(CHECK, RULES)):
                found[part] = violations
    assert found == {}


async def test_no_page_is_wider_than_a_phone(origin: str, browser: Browser) -> None:
    wide = {}
    async with opened(browser, origin, viewport=PHONE) as page:
        for part in PARTS:
            await page.goto(f"{origin}/console/{part}")
            await page.wait_for_selector("main h1")
            await asyncio.sleep(0.4)
            if (width := await page.evaluate("document.documentElement.scrollWidth")) > PHONE["width"]:
                wide[part] = width
        await page.get_by_role("button", name="Navigation").click()
        await page.locator("nav[aria-label=Pages] a", has_text="Groups").click()
        await page.wait_for_url(f"{origin}/console/groups")
    assert wide == {}
