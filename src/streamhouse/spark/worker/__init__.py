"""The warm Spark process behind `streamhouse sql`."""
