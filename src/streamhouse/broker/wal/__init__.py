"""The write-ahead log: where an append becomes durable before its ack.

`base` is the door. Two kinds stand behind it:

disk     `disk` writes local files, which it reaches through the narrower door `files`; `recovery` reads them
object   `objects` writes objects, one per window for all partitions; `object_recovery` reads them, and seals
"""
