"""Maintenance: what happens behind the data path: retention, collection, compaction, merging."""
