"""Every page is accessible, by axe, in light and dark, keeps words together, and fits a phone."""

import tarfile
from typing import Any, Final

import pytest
from playwright.async_api import Browser, ViewportSize
from playwright.async_api import TimeoutError as WaitedTooLong

from tests.support.npm import NpmPackage, fetched

from .conftest import LONG, PAGES, opened

AXE: Final = NpmPackage(
    "axe-core",
    "4.14.0",
    "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
)
PARTS: Final = (
    *PAGES,
    "topics/orders",
    f"topics/{LONG}",
    "topics/orders?tab=records",
    "topics/orders?tab=search&key=customer-7",
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
CHECK: Final = """(only) => axe.run(document, {runOnly: only, resultTypes: ["violations"], selectors: false})
    .then((found) => found.violations)"""
DESKTOP: Final[ViewportSize] = {"width": 1280, "height": 900}
# Words in tables that are broken into a column of letters.
NARROW: Final = """[...document.querySelectorAll("td a, td code, td span, td button")]
    .filter((each) => { const box = each.getBoundingClientRect(); return box.width < 60 && box.height > 60; })
    .map((each) => each.textContent)"""
FITS: Final = "(width) => document.documentElement.scrollWidth <= width"
PHONE: Final[ViewportSize] = {"width": 390, "height": 844}

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


def reported(violations: list[dict[str, Any]]) -> list[str]:
    return [f"{each['id']}: {each['help']} at {node['html'][:200]}" for each in violations for node in each["nodes"]]


async def test_axe_finds_nothing_on_any_page_and_none_is_wider_than_a_phone(
    origin: str, browser: Browser, axe: str
) -> None:
    """In dark, only colours are others."""
    found: dict[str, list[str]] = {}
    wide: list[str] = []
    async with opened(browser, origin, viewport=DESKTOP) as page:
        page.set_default_timeout(20_000)
        for part in PARTS:
            await page.goto(f"{origin}/console/{part}")
            await page.wait_for_selector("main h1")
            await page.wait_for_timeout(700)
            assert await page.evaluate(NARROW) == []
            await page.evaluate(axe)
            violations = await page.evaluate(CHECK, {"type": "tag", "values": RULES})
            await page.evaluate("document.documentElement.dataset.theme = 'dark'")
            violations += await page.evaluate(CHECK, {"type": "rule", "values": ["color-contrast"]})
            if violations:
                found[part] = reported(violations)
            await page.set_viewport_size(PHONE)
            try:
                await page.wait_for_function(FITS, arg=PHONE["width"])
            except WaitedTooLong:
                wide.append(part)
            await page.set_viewport_size(DESKTOP)
    assert (found, wide) == ({}, [])


async def test_the_pages_of_a_phone_are_behind_a_button(origin: str, browser: Browser) -> None:
    async with opened(browser, origin, viewport=PHONE) as page:
        await page.goto(f"{origin}/console/topics")
        await page.get_by_role("button", name="Navigation").click()
        await page.locator("nav[aria-label=Pages] a", has_text="Groups").click()
        await page.wait_for_url(f"{origin}/console/groups")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_page_has_the_colours_of_the_system(origin: str, browser: Browser, scheme: Any) -> None:
    async with opened(browser, origin, color_scheme=scheme) as page:
        await page.goto(f"{origin}/console/settings")
        assert await page.evaluate("getComputedStyle(document.documentElement).colorScheme") == scheme
