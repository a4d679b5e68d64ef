"""Cluster identity: cluster ids and generations by which a database and an object store are checked to belong together.

Owns        the types, and the comparison of two stores
Leaves      the rows to the metadata store, the objects to `cluster.store_identity`

A healthy pair has the same cluster id, and `stored <= newest in the store <= begun`: a generation is begun in the
database, then written to the store, then noted in the database. So a store that is ahead of `begun` has seen a newer
database, and a store that is behind `stored` has lost what it had.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseIdentity:
    """The identity in the metadata store. `begun` is the last generation that was begun, `stored` the last one that is
    known to be in the object store."""

    cluster_id: str | None
    begun: int
    stored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketIdentity:
    """The identity in the object store. `newest` is its newest generation, 0 if it has none."""

    cluster_id: str | None
    newest: int


class Pairing(StrEnum):
    """The relation of a database and an object store."""

    SAME = "same"
    NEW = "new"  # never paired
    EMPTY_DATABASE = "empty database"
    FOREIGN = "foreign"
    OLDER_DATABASE = "older database"
    EMPTY_BUCKET = "empty bucket"
    OLDER_BUCKET = "older bucket"


def check_pairing(before: DatabaseIdentity, bucket: BucketIdentity, after: DatabaseIdentity) -> Pairing:
    """`before` and `after` are the database before and after the object store was read: other agents may raise the
    generation meanwhile."""
    if bucket.cluster_id is None:
        if before.begun > 0:
            return Pairing.EMPTY_BUCKET
        return Pairing.NEW if bucket.newest == 0 else Pairing.EMPTY_DATABASE
    if after.cluster_id is None:
        return Pairing.EMPTY_DATABASE
    if after.cluster_id != bucket.cluster_id:
        return Pairing.FOREIGN
    if bucket.newest > after.begun:
        return Pairing.OLDER_DATABASE
    return Pairing.OLDER_BUCKET if bucket.newest < before.stored else Pairing.SAME
