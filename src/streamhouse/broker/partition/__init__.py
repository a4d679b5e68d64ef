"""One open partition: its log, producer state, last stable offset, memory budgets and decoder."""
