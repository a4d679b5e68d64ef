"""Analysis of SQL texts: names, columns, plans, and errors with line and column."""
