"""Flushed records: runs, block indexes, block caches, producer snapshots, aborted transactions."""
