"""Spark: topics as tables and streams, read from the object store and written to it.

Data path   Spark -> **source, sink** -> object store; agents only plan, place and serve the tail
Owns        `register`, which makes `format("streamhouse")` known to a session
Leaves      records' bytes to `format`, buckets to `stores`, agents to `client`
"""

from streamhouse.spark.registering import register

__all__ = ["register"]
