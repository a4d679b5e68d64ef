"""Doors to the outside: objects (records) and metadata (facts). They speak bytes and rows, never protocols."""
