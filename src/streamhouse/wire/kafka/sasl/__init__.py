"""SASL: how Kafka clients log in. `login` is the state of a connection, the other modules are the mechanisms."""
