"""Topic columns: what a lake table of a topic could be keyed and partitioned by.

Owns        that a topic without records and schema has no columns that anybody knows
Leaves      finding them to `sql.catalogue`
"""

from streamhouse.spark.sql.catalogue import NOTHING_YET, Catalogue


def topic_columns(agents: str, topic: str) -> tuple[str, ...] | None:
    """Declared, registered or inferred, as every query finds them; None before anybody can know. Blocks."""
    catalogue = Catalogue(agents)
    found = catalogue.find(topic)
    if found is None or not found.columns or catalogue.origin(topic) == NOTHING_YET:
        return None
    return tuple(column.name for column in found.columns)
