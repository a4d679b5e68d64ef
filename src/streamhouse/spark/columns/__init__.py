"""Records, and values that have a schema, as Spark columns."""
