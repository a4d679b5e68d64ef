"""Jobs that copy a topic or restore one from files, and that can be resumed."""
