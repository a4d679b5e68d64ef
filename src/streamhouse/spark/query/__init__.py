"""What a SQL text means: names, columns, plans, and errors with line and column."""
