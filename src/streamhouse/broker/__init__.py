"""The broker: what the platform promises, in its own words. No sockets, no SQL; `wal` alone touches the local disk."""
