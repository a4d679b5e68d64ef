"""The console's files over HTTP: who gets the page, caching, compression, the policy, what has no login."""

import gzip
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.console import PAGES
from streamhouse.wire.http.app import make_app

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
async def console(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_app(broker, CollectorRegistry(), console=PAGES))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        yield client


async def files_of(console: httpx.AsyncClient) -> list[str]:
    return re.findall(r'"(/console/files/[^"]+)"', (await console.get("/console/topics", headers=BROWSER)).text)


async def test_browsers_get_the_page_and_programs_the_root_of_the_registry(console: httpx.AsyncClient) -> None:
    page = await console.get("/", headers=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "Accept" in page.headers["vary"]
    for accept in ("*/*", "application/json", "application/vnd.schemaregistry.v1+json"):
        assert (await console.get("/", headers={"accept": accept})).json() == {}


async def test_every_url_of_the_console_has_its_page(console: httpx.AsyncClient) -> None:
    pages = [await console.get(url) for url in ("/console", "/console/topics/a%2Fb?tab=records", "/console/x/../y")]
    assert {(page.status_code, page.text) for page in pages} == {(200, (await console.get("/", headers=BROWSER)).text)}
    assert pages[0].headers["cache-control"] == "no-cache"


async def test_the_policy_allows_nothing_but_the_agents_own_files(console: httpx.AsyncClient) -> None:
    policy = (await console.get("/console")).headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


async def test_files_have_versioned_urls_and_are_kept_forever(console: httpx.AsyncClient) -> None:
    urls = await files_of(console)
    assert len(urls) > 5
    for url in urls:
        file = await console.get(url)
        assert file.status_code == 200
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        unchanged = await console.get(url, headers={"if-none-match": file.headers["etag"]})
        assert (unchanged.status_code, unchanged.content) == (304, b"")


async def test_files_are_compressed_for_those_who_take_it(console: httpx.AsyncClient) -> None:
    url = next(url for url in await files_of(console) if url.endswith("app.js"))
    async with console.stream("GET", url, headers={"accept-encoding": "gzip"}) as packed:
        body = b"".join([part async for part in packed.aiter_raw()])
        assert packed.headers["content-encoding"] == "gzip"
    plain = await console.get(url, headers={"accept-encoding": "identity"})
    assert gzip.decompress(body) == plain.content == (PAGES / "app.js").read_bytes()


@pytest.mark.parametrize("name", ["nothing.js", "../__init__.py", "%2e%2e/__init__.py", "/etc/passwd", ""])
async def test_there_are_no_other_files(console: httpx.AsyncClient, name: str) -> None:
    missing = await console.get(f"/console/files/0/{name}")
    assert missing.status_code in (200, 404)  # a URL that leads out of the folder is one of the page's
    assert "PAGES: Final" not in missing.text
    assert (await console.post("/console/files/0/app.js")).status_code == 405


async def test_links_out_of_the_folder_are_not_followed(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("page")
    (tmp_path / "secret.js").symlink_to("/etc/passwd")
    transport = httpx.ASGITransport(make_app(broker, CollectorRegistry(), console=tmp_path))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        assert (await client.get("/console/files/0/secret.js")).status_code == 404
        assert (await client.get("/console")).text == "page"
