"""Fetching the keys of an OpenID provider: https only, no redirects, no compression, a deadline, a limit of bytes."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import httpx

from streamhouse.config import SecuritySettings
from streamhouse.errors import Misconfigured, Unavailable

ACCEPTED: Final = {"accept": "application/json", "accept-encoding": "identity"}
"""Headers of requests to a provider. A few bytes of a compressed response could become gigabytes."""


def key_fetcher(settings: SecuritySettings) -> Callable[[], Awaitable[bytes]]:
    """A function that fetches `security.oauth_jwks_url`."""
    try:
        context = ssl.create_default_context(cafile=settings.oauth_ca or None)
    except OSError as error:
        raise Misconfigured(f"security.oauth_ca can't be used; path={settings.oauth_ca} why={error}") from None

    async def fetch() -> bytes:
        try:
            async with (
                asyncio.timeout(settings.oauth_timeout_s),
                httpx.AsyncClient(verify=context, trust_env=False, follow_redirects=False) as client,
                client.stream("GET", settings.oauth_jwks_url, headers=ACCEPTED) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    raise Unavailable(f"the issuer answered with status {response.status_code}")
                return await read_limited(response, settings.oauth_max_bytes)
        except TimeoutError:
            raise Unavailable(f"the issuer didn't answer in {settings.oauth_timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise Unavailable(f"the issuer can't be reached; why={type(error).__name__}: {str(error)[:200]}") from None

    return fetch


async def read_limited(response: httpx.Response, max_bytes: int) -> bytes:
    """The body of a provider's response; raises `Unavailable` if it is compressed or longer than `max_bytes`."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise Unavailable("the provider's response is compressed, which was not requested")
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > max_bytes:
            raise Unavailable(
                f"the provider's response is too long; setting=security.oauth_max_bytes limit={max_bytes}"
            )
    return bytes(data)
