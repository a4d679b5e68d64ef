"""Handlers: one file per API, whose docstring is its specification. Importing them fills the table in `support`."""

from . import (
    api_versions,
    create_topics,
    delete_topics,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)

__all__ = [
    "api_versions",
    "create_topics",
    "delete_topics",
    "fetch",
    "init_producer_id",
    "list_offsets",
    "metadata",
    "offset_for_leader_epoch",
    "produce",
]
