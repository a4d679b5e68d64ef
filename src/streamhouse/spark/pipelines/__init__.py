"""Pipelines: a supervisor gets definitions by leases and keeps them running in Spark processes."""
