"""Makes the screenshots of docs/console.md: `python -m tests.console.screenshots http://127.0.0.1:8080 [NAME…]`.

The cluster should have something to show: topics with traffic, a group that reads, schemas. Pictures are shrunk to a
palette, so that the repository stays small.
"""

import asyncio
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from PIL import Image

from tests.console.conftest import browsing, opened

FOLDER: Final = Path(__file__).parents[2] / "docs" / "images"
SIZE: Final = {"width": 1280, "height": 800}
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
    Shot("console-agents", "/console/agents", wait_s=6, options={"color_scheme": "dark"}),
    Shot("console-phone", "/", wait_s=12, options={"viewport": PHONE}),
)


async def main(origin: str, names: Sequence[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    async with browsing() as browser:
        for shot in (shot for shot in SHOTS if not names or shot.name in names):
            async with opened(browser, origin, **{"viewport": SIZE, **shot.options}) as page:
                await page.goto(origin + shot.path)
                if shot.click:
                    await page.click(shot.click)
                await asyncio.sleep(shot.wait_s)
                picture = Image.open(io.BytesIO(await page.screenshot())).convert("RGB")
                file = FOLDER / f"{shot.name}.png"
                picture.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
                print(file, file.stat().st_size)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
