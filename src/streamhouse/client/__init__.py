"""The Python client: what users import to produce, consume and administer.

Data path   a program or the command line -> **client** -> agents' Kafka and HTTP listeners
Owns        typed calls, batches, trying again, and errors named by what the caller should do
Leaves      connections and being a member of a group to aiokafka, HTTP to httpx, bytes to `format`

`client` puts the parts together and `sync` is its twin for threads; both are exported by `streamhouse`. Records go
through `producer` and its lanes, and come through `consumer` and `reading`, or `group_consumer`; `serde` knows schemas.
The command line takes the parts by themselves, so that one doesn't cost the start-up time of the others: no part is
imported here.
"""

import logging

# While an agent is away, aiokafka reports every try. Programs that set up logging see it; others keep their terminal.
logging.getLogger("aiokafka").addHandler(logging.NullHandler())
