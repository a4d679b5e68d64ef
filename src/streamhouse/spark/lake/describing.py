"""Describing: what is in a lake table, for somebody who has no Spark.

Data path   the command line -> **describing** -> the table's own metadata
Owns        nothing
Leaves      metadata to each kind of table
"""

from collections.abc import Mapping

from streamhouse.model.table import Connector, Table
from streamhouse.spark.lake.base import Described, NoTable
from streamhouse.spark.lake.options import open_lake, options_of


def describe_table(name: str, connector: str, options: Mapping[str, str]) -> Described | None:
    """None where there is no table: nothing was committed yet."""
    table = Table(name=name, connector=Connector(connector), options=options)
    lake = open_lake(options_of(table, is_written=False))
    lake.last_batch("")  # the table as it is now
    try:
        return lake.describe()
    except NoTable:
        return None
