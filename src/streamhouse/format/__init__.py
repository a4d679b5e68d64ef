"""Formats of bytes at rest: record batches, segments, WAL files, object keys. Both directions, no I/O, no clock."""
