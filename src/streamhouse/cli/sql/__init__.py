"""`streamhouse sql`: the shell, and single statements."""
