"""Stores: objects (records), metadata (rows) and local files. They know bytes and rows, never protocols."""
