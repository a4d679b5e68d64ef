"""The broker: what the platform promises, in its own vocabulary. No sockets, no SQL; `wal` alone touches the local disk."""
