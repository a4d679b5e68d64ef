"""External commits: segments that Spark wrote are appended to partitions, in one transaction over many leaders."""
