"""PostgreSQL as the metadata store: the engine of a cluster (decision 0007)."""

from streamhouse.stores.metadata.postgres.database import PostgresMetadataStore

__all__ = ["PostgresMetadataStore"]
