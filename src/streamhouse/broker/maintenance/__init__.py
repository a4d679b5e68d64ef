"""Maintenance of stored records: retention, deletion of objects, compaction, merging, object checks."""
