"""Records, and values that have a schema, as Spark columns."""

from typing import Final

METADATA_PREFIX: Final = "_"
"""Prefix of the columns about a record, where the record's own fields are columns too."""
