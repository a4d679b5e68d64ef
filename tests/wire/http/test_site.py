"""The documentation that an agent serves: its files and nothing else, and words where it is missing."""

import base64
import hashlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.wire.http import site
from streamhouse.wire.http.app import make_app

INLINE = "document.body.dataset.theme = 'auto'"
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A site with neighbours that nobody may read through it."""
    (tmp_path / "secret.html").write_text("secret")
    pages = tmp_path / "site"
    (pages / "decisions").mkdir(parents=True)
    (pages / "index.html").write_text(f"<h1>home</h1><script>{INLINE}</script>")
    (pages / "search.html").write_text("search")
    (pages / "decisions" / "index.html").write_text("decisions")
    (pages / "site.css").write_text("body {}")
    (pages / "notes.txt").write_text("secret")
    (pages / ".hidden").write_text("secret")
    (pages / "leak.html").symlink_to(tmp_path / "secret.html")
    (pages / "outside").symlink_to(tmp_path)
    return pages


@pytest.fixture
async def client(broker: Broker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    built = site.Site(folder)
    monkeypatch.setattr("streamhouse.wire.http.app.Site", lambda: built)
    transport = httpx.ASGITransport(make_app(broker, CollectorRegistry()))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        yield client


@pytest.fixture
async def bare(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """An agent whose package has no documentation."""
    missing = site.Site(tmp_path / "missing")
    monkeypatch.setattr("streamhouse.wire.http.app.Site", lambda: missing)
    transport = httpx.ASGITransport(make_app(broker, CollectorRegistry()))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        yield client


async def test_docs_leads_to_the_home_page(client: httpx.AsyncClient) -> None:
    response = await client.get("/docs")
    assert (response.status_code, response.headers["location"]) == (307, "docs/")
    assert "<h1>home</h1>" in (await client.get("/docs/")).text


@pytest.mark.parametrize(
    ("path", "content_type", "text"),
    [
        ("/docs/index.html", "text/html; charset=utf-8", "home"),
        ("/docs/search.html?q=wal&check_keywords=yes", "text/html; charset=utf-8", "search"),
        ("/docs/decisions/", "text/html; charset=utf-8", "decisions"),
        ("/docs/decisions/index.html?v=1", "text/html; charset=utf-8", "decisions"),
        ("/docs/site.css?v=1a2b", "text/css; charset=utf-8", "body"),
    ],
)
async def test_files_are_served_as_what_they_are(
    client: httpx.AsyncClient, path: str, content_type: str, text: str
) -> None:
    response = await client.get(path)
    assert (response.status_code, response.headers["content-type"]) == (200, content_type)
    assert response.headers["x-content-type-options"] == "nosniff"
    assert text in response.text


@pytest.mark.parametrize(
    "path",
    [
        "/docs/../secret.html",
        "/docs/..%2fsecret.html",
        "/docs/%2e%2e/secret.html",
        "/docs/%2e%2e%2fsecret.html",
        "/docs/decisions/../../secret.html",
        "/docs/decisions/..%2f..%2fsecret.html",
        "/docs/..%5csecret.html",
        "/docs//etc/passwd",
        "/docs/%2fetc%2fpasswd",
        "/docs/leak.html",
        "/docs/outside/secret.html",
        "/docs/outside/",
        "/docs/notes.txt",
        "/docs/.hidden",
        "/docs/decisions",
        "/docs/index.html%00",
        "/docs/INDEX.HTML",
        "/docs/" + "a/" * 2000,
        "/docs/" + "a" * 5000,
    ],
)
async def test_nothing_else_is_served(client: httpx.AsyncClient, path: str) -> None:
    request = client.build_request("GET", "http://agent/")
    request.url = request.url.copy_with(raw_path=path.encode())  # as it is sent: httpx would resolve the dots
    response = await client.send(request)
    assert response.status_code in (400, 404)
    assert response.headers["content-type"] == "application/problem+json"
    assert "secret" not in response.text.replace("secret.html", "")


async def test_a_page_may_run_its_own_scripts_and_no_others(client: httpx.AsyncClient) -> None:
    response = await client.get("/docs/")
    policy = response.headers["content-security-policy"]
    scripts = next(part.strip() for part in policy.split(";") if "script-src" in part)
    digest = base64.b64encode(hashlib.sha256(INLINE.encode()).digest()).decode()
    assert scripts == f"script-src 'self' 'sha256-{digest}'"
    assert "default-src 'none'" in policy


async def test_a_page_that_a_browser_has_is_not_sent_again(client: httpx.AsyncClient) -> None:
    first = await client.get("/docs/")
    again = await client.get("/docs/", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_pages_are_only_read(client: httpx.AsyncClient) -> None:
    for method in ("POST", "PUT", "DELETE"):
        response = await client.request(method, "/docs/decisions/")
        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")


async def test_the_page_about_the_api_stands_beside_it(client: httpx.AsyncClient) -> None:
    assert "HTTP API" in (await client.get("/docs/api")).text
    assert (await client.get("/docs/docs.js")).headers["content-type"].startswith("text/javascript")


async def test_without_the_site_docs_is_the_page_about_the_api(bare: httpx.AsyncClient) -> None:
    response = await bare.get("/docs")
    assert (response.status_code, "HTTP API" in response.text) == (200, True)


@pytest.mark.parametrize("path", ["/docs/", "/docs/operations.html", "/docs/decisions/index.html"])
async def test_a_missing_site_is_explained(bare: httpx.AsyncClient, path: str) -> None:
    response = await bare.get(path, headers=BROWSER)
    assert (response.status_code, response.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "make docs" in response.text
    assert 'href="/docs/api"' in response.text
    problem = await bare.get(path)
    assert (problem.status_code, problem.headers["content-type"]) == (404, "application/problem+json")
    assert "make docs" in problem.json()["detail"]


async def test_a_missing_page_leads_back_and_repeats_nothing_of_the_request(client: httpx.AsyncClient) -> None:
    response = await client.get("/docs/<script>alert(1)</script>.html", headers=BROWSER)
    assert response.status_code == 404
    assert 'href="/docs/"' in response.text
    assert "alert" not in response.text


def test_links_and_large_files_are_left_out(folder: Path) -> None:
    large = folder / "large.js"
    large.touch()
    os.truncate(large, site.MAX_FILE_BYTES + 1)
    assert repr(site.Site(folder)) == "<Site files=4>"


@pytest.mark.skipif(not site.Site().is_built, reason="the documentation isn't built: make docs")
def test_the_pages_need_nothing_from_other_hosts() -> None:
    loaded = re.compile(r"""<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=["'](?:https?:)?//[^"']*""")
    imported = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")
    for file in site.PACKAGED.rglob("*"):
        if file.suffix in (".html", ".css", ".js"):
            text = file.read_text(encoding="utf-8")
            assert loaded.findall(text) == [], file
            assert imported.findall(text) == [], file
