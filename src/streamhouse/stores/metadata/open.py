"""Opening the metadata store that a URL names.

Data path   none; called once at the start
Owns        the forms of URLs
Leaves      the engines to their packages
"""

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from streamhouse.clock import Clock
from streamhouse.config import POSTGRES_EXAMPLE, MetadataSettings, is_postgres, without_password
from streamhouse.errors import Misconfigured
from streamhouse.stores.local_files import make_durable_parent
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.sqlite import SqliteMetadataStore
from streamhouse.stores.metadata.sqlite.database import MEMORY, SqliteSettings

if TYPE_CHECKING:
    from streamhouse.stores.metadata.postgres import PostgresMetadataStore

SUPPORTED: Final = f"sqlite:///absolute/path, sqlite::memory:, {POSTGRES_EXAMPLE}"


async def open_metadata_store(url: str, *, clock: Clock, settings: MetadataSettings | None = None) -> MetadataStore:
    """Open the store of this URL; raises `Misconfigured` if the URL is invalid or the store can't be opened."""
    settings = settings or MetadataSettings()
    if is_postgres(url):
        return await _postgres_store(url, settings).open()
    path = sqlite_path(url)
    if path != MEMORY:
        await make_durable_parent(path)
    return await SqliteMetadataStore(path, clock=clock, settings=SqliteSettings(timeout_s=settings.timeout_s)).open()


def _postgres_store(url: str, settings: MetadataSettings) -> "PostgresMetadataStore":
    """The driver is imported only for a database: an agent with SQLite does without its memory."""
    from streamhouse.stores.metadata.postgres import PostgresMetadataStore
    from streamhouse.stores.metadata.postgres.connection import PostgresSettings

    return PostgresMetadataStore(
        url,
        PostgresSettings(
            timeout_s=settings.timeout_s,
            connect_timeout_s=settings.connect_timeout_s,
            min_connections=settings.min_connections,
            max_connections=settings.max_connections,
        ),
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
