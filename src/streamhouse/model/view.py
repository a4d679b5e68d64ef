"""View: rows that a pipeline keeps up to date, found by key.

Owns        the nouns: what is known of a view, a row, a part of a batch that changes rows
Leaves      how keys are written and ordered to `format.view_key`, keeping rows to the metadata store

A batch of a query comes in parts, in order, each one transaction. A batch that was told wholly is told once; one that
was not may be told again from its first part, cut in another way: rows are set, not added to.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamhouse.model.pipeline import Fence
from streamhouse.model.table import Column

ViewKey = tuple[Any, ...]
"""Values of the key's columns, as JSON has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRow:
    """`version`: of which record it was made, so that an older row of its key never replaces it.

    `t` or `o`, then for each record 16 hex digits of its time, 8 of its partition, 16 of its offset and 8 of its topic,
    the newest record first. By offset where both begin with `o` and are of one partition, else by all of it. None: the
    row that comes last replaces. Rows that are read have none.
    """

    key: ViewKey
    row: Mapping[str, Any]
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPart:
    """`complete`: the batch is the whole view; what it doesn't have goes with its last part.

    `covers` is what the batch is made of (`model.replay`).
    """

    fence: Fence
    query: str
    batch: int
    part: int
    parts: int
    upserts: tuple[ViewRow, ...]
    deletes: tuple[ViewKey, ...]
    fresh_at_ms: int
    complete: bool = False
    key: tuple[str, ...] = ()
    columns: tuple[Column, ...] | None = None
    covers: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """What is kept of a view beside its rows; `parts_done` of `parts` of `batch` are in it. A batch of -1: none yet."""

    name: str
    query: str = ""
    batch: int = -1
    parts: int = 1
    parts_done: int = 1
    rows: int = 0
    fresh_at_ms: int = 0
    key: tuple[str, ...] = ()
    columns: tuple[Column, ...] | None = None
    covers: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the last batch is wholly in it."""
        return self.parts_done >= self.parts


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPage:
    """Rows in the order of their keys; `cursor` is where the next page begins, None at the end."""

    rows: tuple[ViewRow, ...]
    cursor: str | None
