"""Fetching an OpenID provider's keys from a real https server that lies, hangs, redirects and grows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import zstandard

from streamhouse.config import SecuritySettings
from streamhouse.errors import Unavailable
from streamhouse.wire.http.issuer_keys import key_fetcher
from streamhouse.wire.tls import TlsFiles
from tests.support.certificates import make_authority

KEYS = b'{"keys": []}'
OK = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(KEYS), KEYS)


@asynccontextmanager
async def provider(folder: Path, response: bytes, *, hangs: bool = False, repeats: int = 1) -> AsyncIterator[str]:
    make_authority(folder).issue(folder, "server")
    make_authority(folder, "other")
    files = TlsFiles(
        settings=SecuritySettings(tls_certificate=str(folder / "server.pem"), tls_key=str(folder / "server.key"))
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for _ in range(repeats):
                writer.write(response)
                await writer.drain()
            if hangs:
                await reader.read()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=files.server_context())
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"


def settings(url: str, folder: Path, **changes: str | float | int) -> SecuritySettings:
    known = {"oauth_jwks_url": url, "oauth_ca": str(folder / "ca.pem"), "oauth_timeout_s": 5.0, "oauth_max_bytes": 1000}
    return SecuritySettings(**(known | changes))  # type: ignore[arg-type]


async def test_keys_are_fetched_over_https(tmp_path: Path) -> None:
    async with provider(tmp_path, OK) as url:
        assert await key_fetcher(settings(url, tmp_path))() == KEYS


async def test_another_authority_is_not_believed(tmp_path: Path) -> None:
    async with provider(tmp_path, OK) as url:
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await key_fetcher(settings(url, tmp_path, oauth_ca=str(tmp_path / "other.pem")))()


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    redirect = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
    async with provider(tmp_path, redirect) as url:
        with pytest.raises(Unavailable, match="status 302"):
            await key_fetcher(settings(url, tmp_path))()


async def test_a_provider_that_hangs_is_given_up(tmp_path: Path) -> None:
    async with provider(tmp_path, b"HTTP/1.1 200 OK\r\n", hangs=True) as url:
        with pytest.raises(Unavailable, match=r"didn't answer in 0\.2 s"):
            await key_fetcher(settings(url, tmp_path, oauth_timeout_s=0.2))()


async def test_a_provider_that_never_stops_is_given_up(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with provider(tmp_path, head + b"400\r\n" + b" " * 0x400 + b"\r\n") as url:
        with pytest.raises(Unavailable, match="oauth_max_bytes"):
            await key_fetcher(settings(url, tmp_path))()


@pytest.mark.parametrize("encoding", ["zstd", "gzip", "deflate", "br"])
async def test_a_compressed_response_is_not_read(tmp_path: Path, encoding: str) -> None:
    """A few kilobytes become gigabytes in one step, before anybody can count them."""
    body = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: %s\r\ncontent-length: %d\r\n\r\n" % (encoding.encode(), len(body))
    async with provider(tmp_path, head + body) as url:
        with pytest.raises(Unavailable, match="compressed"):
            await key_fetcher(settings(url, tmp_path))()
