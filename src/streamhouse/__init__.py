"""StreamHouse: an event log with Kafka's protocol, object storage for records and a database for facts.

Read the rooms top to bottom and you follow a record: `cli` and `agent`, then `wire` (protocols), `broker` (promises),
`stores` (doors to the outside), `format` (bytes at rest), `model` (nouns), and the ground floor. Calls go down,
never up; `docs/architecture.md` walks the path.
"""

__version__ = "0.1.0"
