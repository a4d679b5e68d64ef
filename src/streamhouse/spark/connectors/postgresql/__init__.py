"""Tables of PostgreSQL databases: read for joins, and written by key, each row exactly once."""
