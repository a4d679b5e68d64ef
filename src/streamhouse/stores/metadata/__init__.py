"""The metadata store: its interface, an engine for SQLite and one for PostgreSQL, and named SQL statements."""
