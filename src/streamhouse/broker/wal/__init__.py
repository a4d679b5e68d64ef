"""The write-ahead log: where an append becomes durable before its ack.

`base` has the interfaces. There are two kinds:

disk     `disk_wal` writes local files; `disk_recovery` reads them
object   `object_wal` writes objects, one per window for all partitions; `object_recovery` reads and seals them
"""
