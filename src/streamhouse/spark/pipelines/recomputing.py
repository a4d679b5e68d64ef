"""Recomputing: a view that reads no stream is computed anew when what it reads has changed.

Data path   ticks of a clock -> have the tables changed? -> **recomputing** -> the view's whole result
Owns        what stands for the state of a table, when a view has to be computed
Leaves      the query to `sql.binding`, rows to `connectors.view`, how often ticks come to the pipeline's trigger

For what Spark's streams can't do (ranks, averages of maxima) and for views of views: the whole query runs again, which
costs as much as its tables are large.
"""

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from streamhouse.model.names import TopicPartition
from streamhouse.model.table import Connector, Table
from streamhouse.spark.connectors.view import Computed, standing
from streamhouse.spark.sql.binding import Bound, Read
from streamhouse.spark.tail import connected

VARYING: Final = re.compile(
    r"\b(now|current_(time|timestamp|date)|curdate|localtimestamp|unix_timestamp|rand|randn|random|uuid|shuffle)\b",
    re.IGNORECASE,
)
"""Words of queries whose result changes by itself. A column of such a name costs a needless computation."""


def varies(select: str) -> bool:
    """Whether a query's result may change though its tables don't."""
    return VARYING.search(select) is not None


def ticks(spark: SparkSession) -> DataFrame:
    """A stream that always has something new, so that every trigger has its micro-batch."""
    return spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()


@dataclass(slots=True)
class Recomputing:
    """`bind` makes the query's frame, of the tables as they are now.

    `varies`: its result may change though they don't.
    """

    bind: Callable[[], Bound]
    agents: str
    varies: bool = False
    _seen: Hashable = field(default=None)

    def __call__(self) -> Computed:
        bound = self.bind()
        found, fresh_at_ms = self._state(bound.reads)
        if found is not None and found == self._seen:
            return Computed(frame=None, fresh_at_ms=fresh_at_ms)
        return Computed(frame=bound.frame, fresh_at_ms=fresh_at_ms, on_written=lambda: self._written(found))

    def _written(self, found: Hashable) -> None:
        """Only what agents have taken counts as seen."""
        self._seen = found

    def _state(self, reads: Iterable[Read]) -> tuple[Hashable, int | None]:
        """What the tables' contents go by, None where nobody can tell; and the time up to which all are right."""
        states: list[Hashable] = [None] if self.varies else []
        fresh_ms: list[int] = []
        for read in reads:
            if read.table.connector is Connector.TOPIC:
                states.append(self._ends(read.table))
            elif read.table.connector is Connector.VIEW:
                state, fresh_at_ms = standing(self.agents, read.table.name)
                states.append(str(state))
                fresh_ms += [] if fresh_at_ms is None else [fresh_at_ms]
            else:
                states.append(None)
        return None if None in states else tuple(states), min(fresh_ms, default=None)

    def _ends(self, table: Table) -> Hashable:
        topic = table.options.get("topic", table.name)
        loop, agents = connected(self.agents)
        partitions = loop.run(agents.topics()).get(topic, 0)
        extents = loop.run(agents.extents([TopicPartition(topic, number) for number in range(partitions)]))
        parts = ((place.partition, each.topic_id, each.log_start, each.end) for place, each in extents.items())
        return topic, tuple(sorted(parts))
