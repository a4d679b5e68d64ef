"""A transaction, as the door's calls see it: statements, awaited one after the other.

Data path   `transactions` -> **transaction** -> an engine
Owns        what a call may ask of an engine while its transaction is open; which rows calls lock
Leaves      beginning, committing, deadlines and drivers to the engines

The calls are written once, for engines that wait for a server and for engines that don't.
"""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from streamhouse.errors import Internal
from streamhouse.model.change import Change
from streamhouse.stores.metadata.rows import Params, Row
from streamhouse.stores.metadata.statements import Statements

T = TypeVar("T")


class Lock(StrEnum):
    """Rows to hold before they are read to decide something.

    Members stand in the order in which a call takes them. `find_session` and `find_partitions` hold what they find,
    against a claim and against any change.
    """

    PLACING = "lock_placing"
    GIVING_UP = "lock_giving_up"
    NODE_IDS = "lock_node_ids"
    TOPIC = "lock_topic"
    SESSIONS = "lock_sessions"
    PARTITIONS = "lock_partitions"
    PARTITIONS_OF_TOPIC = "lock_partitions_of_topic"
    PARTITIONS_HELD_BY = "lock_partitions_held_by"
    OBJECTS = "lock_objects"
    SCHEMAS = "lock_schemas"
    PIPELINES = "lock_pipelines"
    VIEW = "lock_view"


class Transaction(Protocol):
    @property
    def sql(self) -> Statements: ...

    async def now_ms(self) -> int:
        """The store's clock, the same at every reading; read first after the locks that a decision needs."""
        ...

    async def lock(self, what: Lock, params: Params) -> None:
        """Hold these rows until the end; nothing to do for an engine with one writer at a time."""
        ...

    async def rows(self, statement: str, params: Params | None = None) -> Sequence[Row]: ...

    async def row(self, statement: str, params: Params | None = None) -> Row | None:
        """The only row, or None."""
        ...

    async def rows_each(self, statement: str, params: Iterable[Params]) -> Sequence[Row]:
        """The rows for all sets of parameters together."""
        ...

    async def change(self, statement: str, params: Params) -> int:
        """Run a statement; returns how many rows it changed."""
        ...

    async def change_each(self, statement: str, params: Iterable[Params]) -> int:
        """Run a statement for each set of parameters; returns how many rows were changed in all."""
        ...

    def announce(self, *changes: Change) -> None:
        """Have these heard by whoever listens, exactly when the transaction is committed; each once."""
        ...


Work = Callable[[Transaction], Coroutine[Any, Any, T]]


def run_inline(work: Coroutine[Any, Any, T]) -> T:
    """Run a call whose engine never waits, without an event loop."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        work.close()
    raise Internal("a transaction waits for something that is no statement of its own")
