"""Pipelines, tables and views: definitions, supervisors and reported status (decision 0019)."""
