"""Makes the screenshots of docs/console.md: `python -m tests.console.screenshots http://127.0.0.1:8080 [NAME…]`.

Where the cluster wants a login, STREAMHOUSE_USER and STREAMHOUSE_PASSWORD_FILE say whose. The cluster should have
something to show: topics with traffic, a group that reads, schemas; and an agent that is killed while its leases are
looked at. Pictures are shrunk to a palette, so that the repository stays small.
"""

import asyncio
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from PIL import Image
from playwright.async_api import Page

from tests.console.conftest import browsing, opened

FOLDER: Final = Path(__file__).parents[2] / "docs" / "images"
SIZE: Final = {"width": 1280, "height": 800}
OPTIONS: Final = {"viewport": SIZE, "ignore_https_errors": True}
PHONE: Final = {"width": 390, "height": 780}
COLOURS: Final = 128
WAIT_S: Final = 2.5


class Shot(NamedTuple):
    """A picture: its name, the page's path, what is clicked before, and how long figures collect."""

    name: str
    path: str
    click: str = ""
    wait_s: float = WAIT_S
    options: Mapping[str, Any] = MappingProxyType({})


SHOTS: Final = (
    Shot("console-overview", "/", wait_s=45),
    Shot("console-overview-dark", "/", wait_s=45, options={"color_scheme": "dark"}),
    Shot("console-records", "/console/topics/orders?tab=records", click="tbody tr"),
    Shot("console-search", "/console/topics/orders?tab=search&key=customer-7"),
    Shot("console-group", "/console/groups/billing-live"),
    Shot("console-agents", "/console/agents", wait_s=20, options={"color_scheme": "dark"}),
    Shot("console-phone", "/", wait_s=12, options={"viewport": PHONE}),
)


async def log_in(page: Page, password: str) -> None:
    """Wait for the page; log in first where the console asks for it."""
    await page.wait_for_selector("main h1")
    if await page.locator(".gate").count():
        await page.fill("input[name=user]", os.environ["STREAMHOUSE_USER"])
        await page.fill("input[name=password]", password)
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".page h1")


async def main(origin: str, names: Sequence[str], password: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    async with browsing() as browser:
        for shot in (shot for shot in SHOTS if not names or shot.name in names):
            async with opened(browser, origin, refusals=(401,), **{**OPTIONS, **shot.options}) as page:
                await page.goto(origin + shot.path)
                await log_in(page, password)
                if shot.click:
                    await page.click(shot.click)
                await asyncio.sleep(shot.wait_s)
                picture = Image.open(io.BytesIO(await page.screenshot())).convert("RGB")
                file = FOLDER / f"{shot.name}.png"
                picture.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
                print(file, file.stat().st_size)  # noqa: T201


if __name__ == "__main__":
    file = os.environ.get("STREAMHOUSE_PASSWORD_FILE")
    asyncio.run(main(sys.argv[1], sys.argv[2:], Path(file).read_text().strip() if file else ""))
