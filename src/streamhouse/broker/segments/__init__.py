"""Reading: from an offset to batches: runs, block indexes, caches, long polls."""
