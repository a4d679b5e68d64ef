"""Pipelines: definitions, who runs them, what is told of them (decision 0019)."""
