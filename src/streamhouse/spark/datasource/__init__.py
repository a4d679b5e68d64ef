"""`format("streamhouse")`: topics as a PySpark data source."""
