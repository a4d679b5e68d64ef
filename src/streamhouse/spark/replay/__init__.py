"""Replaying: what is in a topic, or in files and tables, goes into a topic at full speed, each record once."""
