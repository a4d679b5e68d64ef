"""Random queries over random records: a view equals the batch query, after every micro-batch, or it was refused."""
