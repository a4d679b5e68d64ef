"""Bytes at rest: record batches, segments, object keys. Both directions, no I/O, no clock."""
