"""The Python client: produce, consume and administer.

`client.Client` combines the parts and `sync.SyncClient` is its twin for threads; `streamhouse` exports both. Records
are sent by `producer`, one `PartitionSender` per partition, and read by `consumer` and `reader`, or by
`group_consumer`; `serde` encodes and decodes them with schemas. No part is imported here: the command line uses them
one by one, and starts quickly.
"""

import logging

# While an agent is away, aiokafka reports every try. Programs that set up logging see it; others keep their terminal.
logging.getLogger("aiokafka").addHandler(logging.NullHandler())
