"""Addresses of agents as users write them: `host:port`, `http://host:port`, several with commas."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from streamhouse.config.fields import parse_address
from streamhouse.errors import Misconfigured

DEFAULT_PORT: Final = 8080

Bootstrap: TypeAlias = "str | Callable[[], Awaitable[str]]"
"""Kafka addresses, or a function that finds them."""


async def resolve_bootstrap(bootstrap: Bootstrap) -> str:
    return bootstrap if isinstance(bootstrap, str) else await bootstrap()


def agent_urls(text: str, *, scheme: str = "http") -> list[str]:
    """Return the base address of each: `host:port`, `http://host:port`, several with commas. Raises `Misconfigured`.

    `scheme` is the scheme of addresses without one.
    """
    urls = [_agent_url(part.strip(), scheme) for part in text.split(",") if part.strip()]
    if not urls:
        raise Misconfigured(f"no address; address={text!r}; give an agent's HTTP address such as localhost:8080")
    return urls


def _agent_url(text: str, default_scheme: str) -> str:
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = default_scheme, text
    try:
        if scheme not in ("http", "https"):
            raise ValueError("must be HOST:PORT, http:// or https://")
        parts = urlsplit(f"//{rest.rstrip('/')}")
        if parts.port is None:
            rest = f"{parts.netloc}:{443 if separator and scheme == 'https' else DEFAULT_PORT}"
        address = parse_address(rest.rstrip("/"))
    except ValueError as error:
        raise Misconfigured(
            f"not an agent's address; address={text!r} why={error}; give its HTTP address such as localhost:8080"
        ) from None
    return f"{scheme}://{address}"
