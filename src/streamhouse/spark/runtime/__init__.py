"""A JVM, its Spark session, and the files and processes that belong to it."""
