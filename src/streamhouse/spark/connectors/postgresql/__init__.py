"""PostgreSQL: tables of other people's databases, read for joins and written by key, each row once.

Data path   spark.connectors -> **postgresql** -> PostgreSQL, by COPY
Owns        connections by name, types both ways, the transaction of a micro-batch
Leaves      when to read and write to whoever asks
"""

from streamhouse.spark.connectors.postgresql.connector import read, read_stream, write_stream

__all__ = ["read", "read_stream", "write_stream"]
