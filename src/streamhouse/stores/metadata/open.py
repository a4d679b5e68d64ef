"""Opening the metadata store that a URL names.

Data path   none; called once at the start
Owns        the forms of URLs
Leaves      the engines to their packages
"""

from typing import Final
from urllib.parse import unquote, urlsplit

from streamhouse.clock import Clock
from streamhouse.config import MetadataSettings, without_password
from streamhouse.errors import Misconfigured
from streamhouse.stores.local_files import make_durable_parent
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.postgres import PostgresMetadataStore
from streamhouse.stores.metadata.postgres.connection import EXAMPLE, SCHEMES, PostgresSettings
from streamhouse.stores.metadata.sqlite import SqliteMetadataStore
from streamhouse.stores.metadata.sqlite.database import MEMORY, SqliteSettings

SUPPORTED: Final = f"sqlite:///absolute/path, sqlite::memory:, {EXAMPLE}"


async def open_metadata_store(url: str, *, clock: Clock, settings: MetadataSettings | None = None) -> MetadataStore:
    """Open the store of this URL; raises `Misconfigured` if the URL is invalid or the store can't be opened."""
    settings = settings or MetadataSettings()
    if urlsplit(url).scheme in SCHEMES:
        return await PostgresMetadataStore(url, postgres_settings(settings)).open()
    path = sqlite_path(url)
    if path != MEMORY:
        await make_durable_parent(path)
    return await SqliteMetadataStore(path, clock=clock, settings=SqliteSettings(timeout_s=settings.timeout_s)).open()


def postgres_settings(settings: MetadataSettings) -> PostgresSettings:
    return PostgresSettings(
        timeout_s=settings.timeout_s,
        connect_timeout_s=settings.connect_timeout_s,
        min_connections=settings.min_connections,
        max_connections=settings.max_connections,
    )


def sqlite_path(url: str) -> str:
    """The path of a sqlite URL."""
    if url == "sqlite::memory:":
        return MEMORY
    parts = urlsplit(url)
    absolute = parts.path.startswith("/") and parts.path.strip("/")
    if parts.scheme != "sqlite" or parts.netloc or not absolute or parts.query or parts.fragment:
        raise Misconfigured(f"not a metadata store; url={without_password(url)!r} supported={SUPPORTED}")
    return "/" + unquote(parts.path).lstrip("/")
