"""SQLite as the metadata store: the engine of an embedded agent (decision 0003)."""

from streamhouse.stores.metadata.sqlite.store import SqliteMetadataStore

__all__ = ["SqliteMetadataStore"]
