"""Delta: a lake table, `WITH (connector = 'delta', location = '/lake/orders')`.

Data path   binding, pipelines -> **delta** -> `spark.lake`
Owns        the name of the connector
Leaves      everything to `spark.lake.connector`
"""

from streamhouse.spark.lake.connector import read, read_stream, write_stream

__all__ = ["read", "read_stream", "write_stream"]
