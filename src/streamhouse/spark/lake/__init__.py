"""Topics as tables of Iceberg, Delta or Parquet, which other engines read without StreamHouse."""
